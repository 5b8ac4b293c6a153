"""Individual weights: only those are random about which single examples disagree most."""

import jax
import numpy as np

import partialbayes as pb

rng = np.random.default_rng(0)
x = rng.normal(size=(200, 4))
y = np.tanh(x[:, 0] - x[:, 1]) + 0.1 * rng.normal(size=200)
network = pb.mlp([4, 20, 1])
params = network.init(jax.random.key(0))
first_weight = np.zeros((4, 20), bool)
first_weight[0, 0] = True

subsets = {
    "one weight": pb.subsets.mask({"layers/0/kernel": first_weight}),
    "a random tenth": pb.subsets.random_fraction(0.1, seed=1),
    "ten largest": pb.subsets.largest(10, params, among="**/kernel"),
    "ten most variable": pb.subsets.most_variable_gradient(10, network, params, pb.gaussian(), (x, y)),
    "all but the biases": ~pb.subsets.biases(),
}
for name, subset in subsets.items():
    model = pb.partial_bnn(network, subset, pb.gaussian(pb.learned(0.1)), pb.priors.centered_on(params))
    print(f"{name:<20}{model.split.dim:>4} random weights")

chosen = subsets["ten most variable"] | pb.subsets.layer(-1)  # and so on: | & ~
model = pb.partial_bnn(network, chosen, pb.gaussian(pb.learned(0.1)), pb.priors.centered_on(params))
trained = pb.fit(pb.ohsmc(model), (x, y), epochs=20, batch_size=50)
rmse = pb.metrics.rmse(pb.predict(model, trained.posterior, x), y)
print(f"{model.split.dim} random weights, RMSE {rmse:.3f}")

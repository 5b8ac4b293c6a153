"""Make the last layer of a pretrained network Bayesian, with a prior around its weights."""

import numpy as np

import partialbayes as pb

rng = np.random.default_rng(0)
x = rng.uniform(-3, 3, size=(100, 1))
y = np.sin(2 * x[:, 0]) + 0.1 * rng.normal(size=100)

# Any network will do; this one is trained by MAP, on its own.
network = pb.mlp([1, 30, 30, 1])
plain = pb.partial_bnn(network, "**", pb.gaussian(0.01), pb.priors.normal(scale=10.0))
point = pb.fit(pb.map_estimate(plain), (x, y), epochs=300).posterior
weights = plain.split.merge(point.particles.values[0], point.psi.network)

pretrained = pb.from_params(weights, network.apply, pretrained=True)
around = pb.priors.centered_on(pretrained, 0.1)
model = pb.partial_bnn(pretrained, pb.subsets.layer(-1), pb.gaussian(0.01), around, freeze="**")
algorithm = pb.two_stage(model, pb.samplers.laplace(num_particles=200))  # nothing is trained
trained = pb.fit(algorithm, (x, y), epochs=1)

inside, outside = (pb.predict(model, trained.posterior, points) for points in (x, 3 * x))
print(f"RMSE {pb.metrics.rmse(inside, y):.3f}")
ratio = np.sqrt(outside.epistemic_variance.mean() / inside.epistemic_variance.mean())
print(f"uncertainty outside the data: {ratio:.1f} times that inside")

"""What becomes of a trained network when its last layer is made random, recipe by recipe.

    python -m benchmarks.pretrained [first words of the recipes to run]

A CNN trained on 1,097 of scikit-learn's digits; 200 choose, 500 score; turned by a right angle they are
the inputs from elsewhere. OHSMC has 50 particles, batches of 64, 20 epochs; ψ is frozen. "From the
prior" is what every trainer did before networks said whether they are pretrained.
"""

from __future__ import annotations

import sys
import time

import flax.nnx as nnx
import jax
import numpy as np
import optax
from sklearn.datasets import load_digits

import partialbayes as pb


class CNN(nnx.Module):
    def __init__(self, rngs):
        self.conv1 = nnx.Conv(1, 16, (3, 3), rngs=rngs)
        self.conv2 = nnx.Conv(16, 32, (3, 3), rngs=rngs)
        self.dense = nnx.Linear(128, 64, rngs=rngs)
        self.head = nnx.Linear(64, 10, rngs=rngs)

    def __call__(self, x):
        x = nnx.max_pool(nnx.relu(self.conv1(x)), (2, 2), (2, 2))
        x = nnx.max_pool(nnx.relu(self.conv2(x)), (2, 2), (2, 2))
        return self.head(nnx.relu(self.dense(x.reshape(x.shape[0], -1))))


@nnx.jit
def step(model, optimizer, x, y):
    def loss(model):
        return optax.softmax_cross_entropy_with_integer_labels(model(x), y).mean()

    optimizer.update(model, nnx.grad(loss)(model))


def trained_cnn(images, labels, rng):
    cnn = CNN(nnx.Rngs(0))
    optimizer = nnx.Optimizer(cnn, optax.adam(1e-3), wrt=nnx.Param)
    for _ in range(40):
        for rows in np.array_split(rng.permutation(len(images)), 18):
            step(cnn, optimizer, images[rows], labels[rows])
    return cnn


def main(wanted: list[str]) -> None:
    images, labels = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    order = rng.permutation(len(images))
    images = (images[order] / 16.0).reshape(-1, 8, 8, 1).astype(np.float32)
    labels = labels[order]
    train, validation, test = (
        (images[part], labels[part]) for part in (slice(0, 1097), slice(1097, 1297), slice(1297, None))
    )
    turned = np.rot90(test[0], axes=(1, 2)).copy()
    cnn = trained_cnn(*train, rng)
    network = pb.from_nnx(cnn, pretrained=True)
    weights = network.init(jax.random.key(0))
    around = pb.priors.centered_on(weights, 0.3)

    def model_of(network, prior):
        return pb.partial_bnn(network, pb.subsets.output_layer(), pb.categorical(), prior, freeze="**")

    def ohsmc(start, prior, kernel):
        model = model_of(start, prior)
        algorithm = pb.ohsmc(model, num_particles=50, kernel=kernel)
        return model, pb.fit(algorithm, train, epochs=20, batch_size=64).posterior

    def sampled(sampler):
        model = model_of(network, around)
        return model, pb.fit(pb.two_stage(model, sampler), train, epochs=1).posterior

    def as_it_was():
        model = model_of(network, around)
        return model, pb.training.pretrained_posterior(model)

    def one_call():
        result = pb.bayesianize(network, train, validation=validation)
        print(f"width {result.width:.3f}, temperature {result.temperature:.3f}, {result.widths}")
        features = [result.trunk.features(x)[0] for x in (train[0], test[0], turned)]
        density = pb.metrics.feature_density(features[0], train[1])
        for name, pair in (
            ("density of features", [density(one) for one in features[1:]]),
            ("strangeness", [result.strangeness(x) for x in (test[0], turned)]),
        ):
            print(f"AUROC, {name} {float(pb.metrics.auroc(*pair)):.3f}")
        return result.model, result.posterior

    walk, forget = pb.kernels.random_walk(0.01), pb.kernels.forgetting("diagonal")
    narrow = pb.priors.centered_on(weights, 0.1)
    chains = {"num_warmup": 200, "num_draws": 200, "num_particles": 100}
    recipes = {"as it was": as_it_was}
    for name, start in (("from the prior", pb.from_nnx(cnn)), ("from the weights", network)):
        recipes |= {
            f"{name}, random walk, scale 0.1": lambda start=start: ohsmc(start, narrow, walk),
            f"{name}, forgetting, scale 0.3": lambda start=start: ohsmc(start, around, forget),
            f"{name}, forgetting, standard normal": lambda start=start: ohsmc(start, None, forget),
        }
    recipes |= {
        "sampled by laplace, scale 0.3": lambda: sampled(pb.samplers.laplace(num_particles=100)),
        "sampled by nuts, scale 0.3": lambda: sampled(pb.samplers.nuts(**chains)),
        "bayesianize": one_call,
    }
    for name, run in recipes.items():
        if wanted and not name.startswith(tuple(wanted)):
            continue
        begin = time.perf_counter()
        model, posterior = run()
        seconds = time.perf_counter() - begin
        usual, strange = (pb.predict(model, posterior, x) for x in (test[0], turned))
        scores = {
            "NLPD": pb.metrics.nlpd(usual, test[1]),
            "accuracy": pb.metrics.accuracy(usual, test[1]),
            "ECE": pb.metrics.expected_calibration_error(usual, test[1]),
            "AUROC, entropy": pb.metrics.auroc(usual.entropy, strange.entropy),
            "mutual information": pb.metrics.auroc(usual.mutual_information, strange.mutual_information),
            "energy": pb.metrics.auroc(pb.metrics.energy(usual), pb.metrics.energy(strange)),
        }
        line = ", ".join(f"{key} {float(value):.3f}" for key, value in scores.items())
        print(f"{name:42s} {line}, {seconds:.0f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])

"""Two moons: a partial Bayesian network by OHSMC beside the same network as a single point (MAP).

Prints a table of test scores and writes a figure, demo/two_moons.png.
"""

import time
from pathlib import Path

import jax
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons

import partialbayes as pb

FIGURE = Path("demo/two_moons.png")
INK, BLUE, RED = "#22303c", "#2b6cb0", "#c05640"


def main() -> None:
    x, y = make_moons(300, noise=0.3, random_state=2)
    train, validation, test = ((x[i : i + 100], y[i : i + 100]) for i in (0, 100, 200))
    network = pb.mlp([2, 100, 20, 5, 1])
    model = pb.partial_bnn(network, stochastic="layers/2/**", likelihood=pb.bernoulli())
    print(f"{model.split.dim} of {sum(leaf.size for leaf in model.split.leaves)} weights are random.\n")

    methods = {
        "OHSMC": pb.ohsmc(model, num_particles=1000, kernel=pb.random_walk(0.01)),
        "MAP": pb.map_estimate(model),
    }
    posteriors = {}
    print(f"{'method':<8}{'NLPD':>8}{'ECE':>8}{'accuracy':>10}{'seconds':>9}")
    for name, algorithm in methods.items():
        start = time.perf_counter()
        trained = pb.fit(
            algorithm, train, epochs=100, batch_size=20, validation=validation, evaluate_every=1
        )
        seconds = time.perf_counter() - start
        posteriors[name] = trained.posterior
        nlpd = pb.nlpd(pb.log_predictive_density(model, trained.posterior, test))
        probability = pb.predict(model, trained.posterior, test[0]).mean
        ece = pb.expected_calibration_error(probability, test[1])
        accuracy = pb.accuracy(probability, test[1])
        print(f"{name:<8}{nlpd:>8.3f}{ece:>8.3f}{accuracy:>10.2f}{seconds:>9.1f}")

    draw(model, posteriors["OHSMC"], train)
    print(f"\nwrote {FIGURE}")


def draw(model: pb.Model, posterior: pb.Posterior, data: tuple) -> None:
    """Probability with the data, boundaries of single particles, and where they disagree."""
    across, up = np.meshgrid(np.linspace(-2.2, 3.2, 160), np.linspace(-1.9, 2.4, 160))
    grid = np.stack([across.ravel(), up.ravel()], axis=1)
    predictive = pb.predict(model, posterior, grid, data_chunk=4096)
    particles = posterior.particles
    chosen = jax.random.categorical(jax.random.key(0), particles.log_weights, shape=(40,))
    logits = jax.vmap(lambda phi: model.predict(phi, posterior.psi, grid))(particles.values[chosen])

    figure, axes = plt.subplots(
        1, 3, figsize=(13.5, 4.1), sharex=True, sharey=True, layout="constrained"
    )
    shown = axes[0].contourf(
        across, up, np.reshape(predictive.mean, across.shape), np.linspace(0, 1, 21), cmap="RdBu"
    )
    figure.colorbar(shown, ax=axes[0], ticks=[0, 0.5, 1], shrink=0.85)
    axes[0].set_title("Probability of the second moon")
    for boundary in np.reshape(logits, (-1, *across.shape)):
        axes[1].contour(across, up, boundary, [0.0], colors=[INK], alpha=0.25, linewidths=0.8)
    axes[1].set_title("Decision boundaries of 40 particles")
    spread = np.sqrt(np.reshape(predictive.epistemic, across.shape))
    shown = axes[2].contourf(across, up, spread, 20, cmap="magma_r")
    figure.colorbar(shown, ax=axes[2], shrink=0.85, format="%.2f")
    axes[2].set_title("Where the particles disagree (std)")
    inputs, labels = data
    for axis in axes:
        for label, colour in ((0, RED), (1, BLUE)):
            rows = inputs[labels == label]
            axis.scatter(rows[:, 0], rows[:, 1], s=16, c=colour, edgecolors="white", linewidths=0.6)
        axis.set(xticks=[], yticks=[], aspect="equal")
        axis.spines[:].set_visible(False)
        axis.title.set(color=INK, fontsize=11)
    FIGURE.parent.mkdir(exist_ok=True)
    figure.savefig(FIGURE, dpi=130)


if __name__ == "__main__":
    main()

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
DRAWS = 5
INK, BLUE, RED = "#22303c", "#2b6cb0", "#c05640"


def main() -> None:
    network = pb.mlp([2, 100, 20, 5, 1])
    model = pb.partial_bnn(network, stochastic="layers/2/**", likelihood=pb.bernoulli())
    print(f"{model.split.dim} of {sum(leaf.size for leaf in model.split.leaves)} weights are random.\n")
    methods = {
        "OHSMC": pb.ohsmc(model),
        "MAP": pb.map_estimate(model),
    }
    print(f"{f'mean of {DRAWS} draws of data':<26}{'NLPD':>7}{'ECE':>7}{'accuracy':>10}{'seconds':>9}")
    for name, algorithm in methods.items():
        start = time.perf_counter()
        runs = [score(model, algorithm, seed) for seed in range(DRAWS)]
        seconds = time.perf_counter() - start
        nlpd, ece, accuracy = np.mean([scores for scores, _ in runs], axis=0)
        print(f"{name:<26}{nlpd:>7.3f}{ece:>7.3f}{accuracy:>10.3f}{seconds:>9.1f}")
        if name == "OHSMC":
            draw(model, runs[0][1], moons(seed=0)[0])
    print(f"\nwrote {FIGURE}")


def moons(seed: int) -> list[tuple]:
    """Training, validation and test data."""
    x, y = make_moons(300, noise=0.3, random_state=seed)
    return [(x[i : i + 100], y[i : i + 100]) for i in (0, 100, 200)]


def score(
    model: pb.types.Model, algorithm: pb.types.Algorithm, seed: int
) -> tuple[list[float], pb.types.Posterior]:
    """Train on one draw of the data; NLPD, ECE and accuracy on its test set."""
    train, validation, test = moons(seed)
    trained = pb.fit(
        algorithm,
        train,
        epochs=100,
        batch_size=20,
        validation=pb.Validation(validation, every=5),
        key=seed,
    )
    probability = pb.predict(model, trained.posterior, test[0]).mean
    scores = [
        -pb.prediction.log_predictive_density(model, trained.posterior, test).mean(),
        pb.metrics.expected_calibration_error(probability, test[1]),
        pb.metrics.accuracy(probability, test[1]),
    ]
    return [float(value) for value in scores], trained.posterior


def draw(model: pb.types.Model, posterior: pb.types.Posterior, data: tuple) -> None:
    """Probability with the data, boundaries of single particles, and where they disagree."""
    across, up = np.meshgrid(np.linspace(-2.2, 3.2, 160), np.linspace(-1.9, 2.4, 160))
    grid = np.stack([across.ravel(), up.ravel()], axis=1)
    predictive = pb.predict(model, posterior, grid, chunks=pb.types.Chunks(rows=4096))
    particles = posterior.particles
    chosen = jax.random.categorical(jax.random.key(0), particles.log_weights, shape=(40,))
    logits = jax.vmap(lambda phi: model.parameters(phi, posterior.psi, grid))(particles.values[chosen])

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
    spread = np.sqrt(np.reshape(predictive.epistemic_variance, across.shape))
    shown = axes[2].contourf(across, up, spread, 20, cmap="magma_r")
    figure.colorbar(shown, ax=axes[2], shrink=0.85, format="%.2f")
    axes[2].set_title("Where the particles disagree (std)")
    inputs, labels = data
    for axis in axes:
        for label, color in ((0, RED), (1, BLUE)):
            rows = inputs[labels == label]
            axis.scatter(rows[:, 0], rows[:, 1], s=16, c=color, edgecolors="white", linewidths=0.6)
        axis.set(xticks=[], yticks=[], aspect="equal")
        axis.spines[:].set_visible(False)
        axis.title.set(color=INK, fontsize=11)
    FIGURE.parent.mkdir(exist_ok=True)
    figure.savefig(FIGURE, dpi=130)


if __name__ == "__main__":
    main()

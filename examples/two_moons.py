"""Two moons: the last layer of a network random, trained by OHSMC, beside the same network by MAP.

Prints test scores over many draws of the data, with the paired difference and its standard error, and
writes a figure, demo/two_moons.png.
"""

import time
from pathlib import Path

import jax
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from sklearn.datasets import make_moons

import partialbayes as pb

FIGURE = Path("demo/two_moons.png")
DRAWS = 20
INK, BLUE, ORANGE = "#22303c", "#0072B2", "#E69F00"
SHADES = LinearSegmentedColormap.from_list("moons", [BLUE, "white", ORANGE])


def main() -> None:
    network = pb.mlp([2, 50, 20, 1])
    model = pb.partial_bnn(network, pb.subsets.layer(-1), pb.bernoulli())
    print(f"{model.split.dim} of {sum(leaf.size for leaf in model.split.leaves)} weights are random.\n")
    methods = {"OHSMC": pb.ohsmc(model), "MAP": pb.map_estimate(model)}
    print(f"{f'mean of {DRAWS} draws of data':<26}{'NLPD':>7}{'ECE':>7}{'accuracy':>10}{'CPU s':>8}")
    scores = {}
    for name, algorithm in methods.items():
        start = time.process_time()
        runs = [score(model, algorithm, seed) for seed in range(DRAWS)]
        seconds = time.process_time() - start
        scores[name] = np.array([values for values, _ in runs])
        nlpd, ece, accuracy = scores[name].mean(axis=0)
        print(f"{name:<26}{nlpd:>7.3f}{ece:>7.3f}{accuracy:>10.3f}{seconds:>8.1f}")
        if name == "OHSMC":
            draw(model, runs[0][1], moons(seed=0)[0])
    difference = (scores["OHSMC"] - scores["MAP"])[:, 0]
    error = difference.std(ddof=1) / np.sqrt(DRAWS)
    print(f"\nOHSMC minus MAP, NLPD: {difference.mean():.3f} ± {error:.3f} (paired; lower is better)")
    print(f"wrote {FIGURE}")


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
        1, 3, figsize=(10.5, 2.9), sharex=True, sharey=True, layout="constrained"
    )
    probability = np.reshape(predictive.mean, across.shape)
    shown = axes[0].contourf(across, up, probability, np.linspace(0, 1, 21), cmap=SHADES)
    figure.colorbar(shown, ax=axes[0], ticks=[0, 0.5, 1], shrink=0.9)
    axes[0].set_title("probability of the lower moon")
    for boundary in np.reshape(logits, (-1, *across.shape)):
        axes[1].contour(across, up, boundary, [0.0], colors=[INK], alpha=0.25, linewidths=0.8)
    axes[1].set_title("boundaries of 40 particles")
    spread = np.sqrt(np.reshape(predictive.epistemic_variance, across.shape))
    shown = axes[2].contourf(across, up, spread, 20, cmap="Greys")
    figure.colorbar(shown, ax=axes[2], shrink=0.9, format="%.2f")
    axes[2].set_title("disagreement (std)")
    inputs, labels = data
    for axis in axes:
        for label, color, marker in ((0, BLUE, "o"), (1, ORANGE, "^")):
            rows = inputs[labels == label]
            axis.scatter(*rows.T, s=20, c=color, marker=marker, edgecolors="white", linewidths=0.6)
        axis.set(xticks=[], yticks=[], aspect="equal")
        axis.spines[:].set_visible(False)
        axis.title.set(color=INK, fontsize=12)
    FIGURE.parent.mkdir(exist_ok=True)
    figure.savefig(FIGURE, dpi=160)


if __name__ == "__main__":
    main()

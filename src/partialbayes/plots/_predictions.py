"""Plot predictions: bands, decision boundaries, predicted against observed values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from partialbayes.plots import _style as style
from partialbayes.prediction._predict import as_posterior, predict
from partialbayes.prediction._predictive import Predictive
from partialbayes.results import Fit
from partialbayes.types import Chunks, Model, Particles, Posterior


def predictive_bands(
    predictive: Predictive,
    data: Any = None,
    coverages: Sequence[float] = (0.5, 0.9),
    output: int | None = None,
    ax: Any = None,
) -> Any:
    """Plot the mean and central intervals along a single input, with the data.

    Args:
        predictive: The result of `predict`, at inputs of one column.
        data: A pair ``(inputs, targets)`` to plot as points.
        coverages: Probabilities inside the intervals.
        output: Index of the target to plot, if there are several.
        ax: Matplotlib axes to draw on; a new figure by default.

    Returns:
        The Matplotlib axes.

    Example:
        >>> import partialbayes as pb  # predictive and x as in the example of predict
        >>> ax = pb.plots.predictive_bands(predictive, (x, x))
    """
    inputs = _column(predictive.inputs)
    number = 1 if predictive.mean.ndim == 1 else predictive.mean.shape[1]
    if predictive.mean.ndim > 2 or not (output in range(number) or (output is None and number == 1)):
        raise ValueError(
            f"output must be one of 0 to {number - 1}, not {output!r}: the predictive has targets of "
            f"shape {predictive.mean.shape}."
        )

    def chosen(values: Any) -> Any:
        array = np.asarray(values)
        return array if array.ndim == 1 else array[:, output or 0]

    ax = style.axes(ax)
    order = np.argsort(inputs)
    across = inputs[order]
    widest_first = sorted(coverages, reverse=True)
    for index, coverage in enumerate(widest_first):
        low, high = (chosen(bound)[order] for bound in predictive.interval(coverage))
        alpha = 0.25 + 0.3 * index / max(1, len(widest_first) - 1)
        label = f"{100 * coverage:g} % interval"
        ax.fill_between(across, low, high, color=style.SKY, alpha=alpha, linewidth=0, label=label)
    ax.plot(across, chosen(predictive.mean)[order], color=style.BLUE, linewidth=1.6, label="mean")
    if data is not None:
        points, targets = _column(data[0]), chosen(data[1])
        ax.plot(points, targets, ".", color=style.INK, markersize=3.5, alpha=0.7, label="data")
    ax.set(xlabel="input", ylabel="target")
    style.legend(ax, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4, columnspacing=1.0)
    return ax


def predicted_against_observed(
    predictive: Predictive, targets: Any, coverage: float = 0.9, rows: int = 300, ax: Any = None
) -> Any:
    """Plot the predicted mean and interval of each example against the observed value.

    Args:
        predictive: The result of `predict`, with one target.
        targets: Observed targets.
        coverage: Probability inside the intervals.
        rows: Largest number of examples to plot, evenly spaced.
        ax: Matplotlib axes to draw on; a new figure by default.

    Returns:
        The Matplotlib axes.

    Example:
        >>> import partialbayes as pb  # predictive and x as in the example of predict
        >>> ax = pb.plots.predicted_against_observed(predictive, x)
    """
    mean, observed = np.asarray(predictive.mean), np.ravel(np.asarray(targets, float))
    if mean.shape != observed.shape:
        raise ValueError(f"targets have shape {np.shape(targets)}, not {mean.shape} as the predictions.")
    low, high = (np.asarray(bound) for bound in predictive.interval(coverage))
    shown = style.evenly(len(mean), rows)
    ax = style.axes(ax, size=(4.0, 3.8))
    label = f"{100 * coverage:g} % interval"
    bars = {"color": style.SKY, "alpha": 0.6, "linewidth": 1.0, "label": label}
    ax.vlines(observed[shown], low[shown], high[shown], **bars)
    ax.plot(observed[shown], mean[shown], ".", color=style.BLUE, markersize=4, label="mean")
    ends = [min(observed.min(), mean.min()), max(observed.max(), mean.max())]
    ax.plot(ends, ends, color=style.INK, linewidth=0.9, linestyle="--")
    ax.set(xlabel="observed", ylabel="predicted", title="Predicted against observed")
    style.legend(ax)
    return ax


def decision_boundary(
    model: Model,
    posterior: Posterior | Fit,
    data: Any = None,
    limits: tuple[float, float, float, float] | None = None,
    samples: int = 20,
    resolution: int = 100,
    ax: Any = None,
) -> Any:
    """Plot the classes of two inputs: the mixture as color, single particles as lines.

    Args:
        model: A trained classification model with two inputs.
        posterior: What `fit` returned, or the posterior in it.
        data: A pair ``(inputs, labels)`` to plot as points.
        limits: Limits ``(left, right, bottom, top)`` of the plot; around the data by default.
        samples: Number of particles, drawn by weight, whose boundaries are plotted.
        resolution: Number of grid points along each axis.
        ax: Matplotlib axes to draw on; a new figure by default.

    Returns:
        The Matplotlib axes.

    Example:
        >>> import jax, partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([2, 5, 1]), "layers/0/*", pb.bernoulli())
        >>> x = jax.random.normal(jax.random.key(0), (20, 2))
        >>> y = (x[:, 0] > 0).astype(int)
        >>> trained = pb.fit(pb.ohsmc(model, num_particles=10), (x, y), epochs=2)
        >>> ax = pb.plots.decision_boundary(model, trained.posterior, (x, y), resolution=10)
    """
    posterior = as_posterior(posterior)
    if data is None and limits is None:
        raise ValueError("limits are needed without data; pass limits=(left, right, bottom, top).")
    if limits is None:
        points = np.asarray(data[0], float)
        (left, bottom), (right, top) = points.min(axis=0), points.max(axis=0)
        margin = 0.12 * max(right - left, top - bottom)
        limits = (left - margin, right + margin, bottom - margin, top + margin)
    left, right, bottom, top = limits
    across, up = np.meshgrid(np.linspace(left, right, resolution), np.linspace(bottom, top, resolution))
    grid = np.stack([across.ravel(), up.ravel()], axis=1)
    probabilities = np.asarray(predict(model, posterior, grid, chunks=Chunks(rows=2048)).probabilities)
    classes = probabilities.shape[-1]
    drawn = predict(model, _draw(posterior, samples), grid, chunks=Chunks(rows=2048))
    single = np.asarray(drawn.components().mean)

    ax = style.axes(ax, size=(4.6, 4.0))
    ax.grid(visible=False)
    square = across.shape
    if classes == 2:
        from matplotlib.colors import LinearSegmentedColormap

        colors: tuple[str, ...] = (style.BLUE, style.ORANGE)
        shades = LinearSegmentedColormap.from_list("classes", [colors[0], "white", colors[1]])
        level = probabilities[:, 1].reshape(square)
        shown = ax.contourf(across, up, level, np.linspace(0, 1, 21), cmap=shades, alpha=0.85)
        bar = ax.figure.colorbar(shown, ax=ax, ticks=[0, 0.5, 1], shrink=0.8)
        bar.set_label("probability of class 1", color=style.INK, fontsize=9)
        bar.ax.tick_params(labelsize=8.5, colors=style.INK)
        ones = single if single.ndim == 2 else single[..., 1]
        lines = [one.reshape(square) - 0.5 for one in ones]
    else:
        from matplotlib.colors import to_rgb

        colors = tuple(style.COLORS[index % len(style.COLORS)] for index in range(classes))
        image = 1.0 - 0.5 * (1.0 - probabilities @ np.asarray([to_rgb(name) for name in colors]))
        ax.imshow(image.reshape(*square, 3), extent=limits, origin="lower", aspect="auto")
        # Probability of a class minus the best of the rest: zero on its boundary.
        lines = [
            (one[:, label] - np.delete(one, label, axis=1).max(axis=1)).reshape(square)
            for one in single
            for label in range(classes - 1)
        ]
    for line in lines:
        if line.min() < 0.0 < line.max():
            ax.contour(across, up, line, [0.0], colors=[style.INK], alpha=0.3, linewidths=0.8)
    if data is not None:
        inputs, labels = np.asarray(data[0]), np.ravel(np.asarray(data[1]))
        for label in range(classes):
            chosen = inputs[labels == label]
            edge = {"edgecolors": "white", "linewidths": 0.6}
            look = {"color": colors[label], "marker": style.MARKERS[label % len(style.MARKERS)]}
            ax.scatter(*chosen.T, s=24, label=f"class {label}", **look, **edge)
        style.legend(ax, loc="upper center", bbox_to_anchor=(0.5, -0.02), ncols=min(classes, 4))
    ax.set(xticks=[], yticks=[], xlim=limits[:2], ylim=limits[2:])
    ax.spines[:].set_visible(False)
    return ax


def _column(inputs: Any) -> Any:
    array = np.asarray(inputs)
    if array.ndim > 2 or (array.ndim == 2 and array.shape[1] != 1):
        raise ValueError(
            f"inputs have shape {array.shape}; bands are drawn along one column. For several use "
            "predicted_against_observed."
        )
    return np.ravel(array)


def _draw(posterior: Posterior, number: int) -> Posterior:
    """Draw particles by weight; those of an ensemble become members of one particle."""
    psi, (values, log_weights) = posterior
    chosen = jax.random.categorical(jax.random.key(0), log_weights.ravel(), shape=(number,))
    equal = jnp.full(number, -jnp.log(number))
    drawn = values.reshape(-1, values.shape[-1])[chosen]
    if not posterior.is_ensemble:
        return Posterior(psi, Particles(drawn, equal))
    members = chosen // log_weights.shape[1]
    psi = jax.tree.map(lambda leaf: leaf[members], psi)
    return Posterior(psi, Particles(drawn[:, None], equal[:, None]))

"""Plot the posterior of the random weights: marginals, pairs, and snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from partialbayes.callbacks import Snapshots
from partialbayes.plots import _style as style
from partialbayes.types import Particles


def marginals(
    particles: Particles,
    dims: Sequence[int] | None = None,
    names: Sequence[str] | None = None,
    ax: Any = None,
) -> Any:
    """Plot the density of each coordinate of φ, with its mean and 90 % interval.

    Args:
        particles: The weighted particles of a posterior.
        dims: Coordinates to plot; the first ten by default.
        names: Labels of the coordinates.
        ax: Matplotlib axes to draw on; a new figure by default.

    Returns:
        The Matplotlib axes.

    Example:
        >>> import jax, partialbayes as pb
        >>> values = jax.random.normal(jax.random.key(0), (100, 3))
        >>> ax = pb.plots.marginals(pb.types.Particles(values, jax.numpy.full(100, -4.6)))
    """
    values, weights = _flat(particles)
    dims = _require_dims(dims, values.shape[1], 10)
    labels = _labels(dims, names)
    ax = style.axes(ax, size=(4.8, 1.2 + 0.38 * len(dims)))
    bases = np.arange(len(dims))[::-1]
    for base, dim in zip(bases, dims, strict=True):
        places, height = _density(values[:, dim], weights)
        curve = base + 0.8 * height / height.max()
        ax.fill_between(places, base, curve, color=style.SKY, alpha=0.55, linewidth=0)
        ax.plot(places, curve, color=style.BLUE, linewidth=0.9)
        interval = _quantiles(values[:, dim], weights, (0.05, 0.95))
        ax.plot(interval, [base, base], color=style.INK, linewidth=1.6, solid_capstyle="butt")
        ax.plot(weights @ values[:, dim], base, "o", color=style.INK, markersize=3.5)
    ax.set(yticks=bases, yticklabels=labels, ylim=(-0.3, len(dims)))
    ax.set(title="Posterior of the random weights", xlabel="value; line: 90 % interval, dot: mean")
    ax.spines["left"].set_visible(False)
    ax.grid(visible=False, axis="y")
    ax.tick_params(axis="y", length=0)
    return ax


def pairs(
    particles: Particles,
    dims: Sequence[int] | None = None,
    names: Sequence[str] | None = None,
    ax: Any = None,
) -> Any:
    """Plot coordinates of φ against each other; the area of a point is its weight.

    Args:
        particles: The weighted particles of a posterior.
        dims: Coordinates to plot; the first four by default.
        names: Labels of the coordinates.
        ax: Matplotlib axes: one for two coordinates, or a square array; a new figure by default.

    Returns:
        The axes: one for two coordinates, else an array with marginals on its diagonal.

    Example:
        >>> import jax, partialbayes as pb
        >>> values = jax.random.normal(jax.random.key(0), (100, 2))
        >>> ax = pb.plots.pairs(pb.types.Particles(values, jax.numpy.full(100, -4.6)))
    """
    values, weights = _flat(particles)
    dims = _require_dims(dims, values.shape[1], 4)
    labels = _labels(dims, names)
    if len(dims) == 2:
        ax = style.axes(ax, size=(4.0, 3.8))
        _scatter(ax, values[:, dims[0]], values[:, dims[1]], weights)
        ax.set(xlabel=labels[0], ylabel=labels[1])
        return ax
    count = len(dims)
    grid = np.asarray(style.axes(ax, count, count, size=(2.1, 2.0)), dtype=object).reshape(count, count)
    for row, below in enumerate(dims):
        for column, across in enumerate(dims):
            place = grid[row, column]
            if column > row:
                place.set_visible(False)
                continue
            if column == row:
                place.hist(values[:, below], bins=30, weights=weights, color=style.SKY)
                place.set_yticks([])
            else:
                _scatter(place, values[:, across], values[:, below], weights)
            place.set(
                xlabel=labels[column] if row == count - 1 else "",
                ylabel=labels[row] if column == 0 and row > 0 else "",
            )
            if row < count - 1:
                place.tick_params(labelbottom=False)
            if column > 0:
                place.tick_params(labelleft=False)
    return grid


def flow(
    snapshots: Snapshots, dims: tuple[int, int] = (0, 1), panels: int = 5, ax: Any = None
) -> list[Any]:
    """Plot the cloud at several steps of training in two coordinates of φ, as the paper's flow figure.

    Args:
        snapshots: The callback that collected the snapshots.
        dims: The two coordinates to plot.
        panels: Number of snapshots to plot, evenly spaced and including the last.
        ax: Matplotlib axes, one per snapshot; a new figure by default.

    Returns:
        The axes, one per snapshot.

    Example:
        >>> import jax, partialbayes as pb
        >>> seen = pb.callbacks.Snapshots(every=100)  # fit(..., run=pb.Run(callbacks=[seen]))
        >>> for step in (100, 200):
        ...     values = jax.random.normal(jax.random.key(step), (50, 2))
        ...     particles = pb.types.Particles(values, jax.numpy.full(50, -3.9))
        ...     seen.steps.append(step)
        ...     seen.posteriors.append(pb.types.Posterior(None, particles))
        >>> len(pb.plots.flow(seen))
        2
    """
    if not snapshots.steps:
        raise ValueError(
            "snapshots holds none; pass it to fit by Run(callbacks=[...]), for enough steps."
        )
    chosen = style.evenly(len(snapshots.steps), panels)
    clouds = [_flat(snapshots.posteriors[index].particles) for index in chosen]
    pair = list(_require_dims(dims, clouds[0][0].shape[1], 2))
    places = style.panels(ax, len(chosen), size=(2.7, 2.7))
    seen = np.concatenate([values[weights > 0][:, pair] for values, weights in clouds])
    low, high = np.quantile(seen, [0.002, 0.998], axis=0)
    margin = 0.08 * (high - low) + 1e-6
    for place, index, (values, weights) in zip(places, chosen, clouds, strict=True):
        _scatter(place, values[:, pair[0]], values[:, pair[1]], weights)
        place.set(
            xlim=(low[0] - margin[0], high[0] + margin[0]),
            ylim=(low[1] - margin[1], high[1] + margin[1]),
            title=f"step {snapshots.steps[index]}",
            xlabel=f"φ[{pair[0]}]",
        )
    places[0].set_ylabel(f"φ[{pair[1]}]")
    return places


def _flat(particles: Particles) -> tuple[Any, Any]:
    """Return values and weights, with ensemble members concatenated and zero weights dropped."""
    values = np.asarray(particles.values, float)
    weights = np.exp(np.asarray(particles.log_weights, float)).ravel()
    values = values.reshape(-1, values.shape[-1])[weights > 0]
    weights = weights[weights > 0]
    return values, weights / weights.sum()


def _require_dims(dims: Sequence[int] | None, there: int, most: int) -> list[int]:
    chosen = list(range(min(most, there))) if dims is None else list(dims)
    if not chosen or any(not 0 <= dim < there for dim in chosen):
        raise ValueError(
            f"dims is {dims!r}, but φ has the coordinates 0 to {there - 1}; choose among them."
        )
    return chosen


def _labels(dims: Sequence[int], names: Sequence[str] | None) -> list[str]:
    if names is None:
        return [f"φ[{dim}]" for dim in dims]
    if len(names) != len(dims):
        raise ValueError(
            f"names holds {len(names)}, but there are {len(dims)} coordinates; pass one for each."
        )
    return list(names)


def _scatter(ax: Any, across: Any, up: Any, weights: Any) -> None:
    """Draw points whose total area is the same for any number and weights."""
    area = np.clip(900.0 * weights, 0.3, 60.0)
    ax.scatter(across, up, s=area, color=style.BLUE, alpha=0.45, linewidths=0)


def _density(values: Any, weights: Any) -> tuple[Any, Any]:
    """Compute a kernel density estimate, with a bandwidth by the effective sample size."""
    spread = np.sqrt(weights @ np.square(values - weights @ values)) or 1e-6 * (1.0 + abs(values[0]))
    width = spread * np.sum(np.square(weights)) ** 0.2
    places = np.linspace(values.min() - 3.0 * width, values.max() + 3.0 * width, 200)
    height = np.exp(-0.5 * np.square((places[:, None] - values[None]) / width)) @ weights
    return places, height


def _quantiles(values: Any, weights: Any, levels: Sequence[float]) -> Any:
    order = np.argsort(values)
    cumulative = np.cumsum(weights[order])
    index = np.searchsorted(cumulative, np.asarray(levels) * cumulative[-1])
    return values[order[np.clip(index, 0, len(values) - 1)]]

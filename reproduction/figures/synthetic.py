"""The paper's figures on synthetic data, from small arrays: see `records` for what each needs.

Each returns a Matplotlib figure; ``figure.savefig(path, dpi=200)`` writes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from partialbayes.plots import _style as style
from reproduction.figures.records import Boundaries, Clouds, Curves, Flow, Traces
from reproduction.figures.style import (
    label_outer,
    legend_below,
    make_grid,
    make_panels,
    method_style,
    title_panel,
)

_MASSES = (0.99, 0.9, 0.5)  # inside the contours of a density


def parameter_traces(traces: Traces) -> Any:
    """Plot ψ of each method over training, with the value that is best on these data.

    Args:
        traces: Of the methods.
    """
    figure, places = make_grid(1, 1, (5.6, 3.6))
    ax = places[0, 0]
    for method, values in traces.psi.items():
        values, color = np.asarray(values), method_style(method).color
        # Methods take different numbers of steps: each over its own training.
        done = np.arange(1, len(values) + 1) / len(values)
        width = len(values) // 50 if len(values) > 500 else 1  # few are shown as they are
        smooth = np.median(np.lib.stride_tricks.sliding_window_view(values, width), axis=1)
        ax.plot(done, values, color=color, linewidth=0.5, alpha=0.3)
        ax.plot(done[width // 2 :][: len(smooth)], smooth, color=color, linewidth=1.6, label=method)
    lines = (
        (float(traces.best), style.INK, "--", "exact maximum, these data"),
        (1.0, style.SOFT, ":", "the data were drawn at"),
    )
    for value, color, kind, name in lines:
        ax.axhline(value, color=color, linewidth=1.3, linestyle=kind, label=f"{name} {value:.3g}")
    ax.set(xlabel="share of training", ylabel="ψ", xlim=(0, 1))
    style.legend(ax, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def crescent_posterior(clouds: Clouds) -> Any:
    """Plot each method's draws on the density by quadrature, whose contours hold 50, 90 and 99 %.

    Args:
        clouds: The density and the draws.
    """
    figure, places = make_panels(len(clouds.samples), (2.3, 2.4), sharex=True, sharey=True)
    limits = _limits(clouds, *clouds.samples.values())
    for place, (method, samples) in zip(places, clouds.samples.items(), strict=True):
        _density(place, clouds)
        _points(place, samples, method_style(method).color)
        place.set(**limits)
        title_panel(place, method)
    label_outer(places, "φ₀", "φ₁")
    return figure


def particle_flow(flow: Flow, clouds: Clouds | None = None) -> Any:
    """Plot the particles of OHSMC at several epochs, on the density where it is given.

    Args:
        flow: The particles.
        clouds: Whose density to draw.
    """
    figure, places = make_panels(len(flow.epochs), (2.3, 2.4), sharex=True, sharey=True)
    limits = _limits(clouds, *flow.particles)
    for index, place in enumerate(places):
        if clouds is not None:
            _density(place, clouds)
        _points(place, flow.particles[index], method_style("OHSMC").color)
        place.set_title(f"epoch {int(flow.epochs[index])}, ψ = {float(flow.psi[index]):.2f}")
        place.set(**limits)
    label_outer(places, "φ₀", "φ₁")
    return figure


def predictive_curves(run: Curves) -> Any:
    """Plot what single particles predict, with the true function and the test data; a panel per method.

    Args:
        run: One run.
    """
    return _by_method(run, _curves, ("x", "y"), (2.5, 2.5))


def predictive_curves_by_seed(runs: Mapping[int, Curves]) -> Any:
    """Plot the same for several runs: a row per run, a column per method.

    Args:
        runs: By their numbers.
    """
    return _by_seed(runs, _curves, ("x", "y"))


def decision_lines(run: Boundaries) -> Any:
    """Plot where single particles put the boundary of the moons; a panel per method.

    Args:
        run: One run.
    """
    return _by_method(run, _lines, ("x₀", "x₁"), (2.4, 2.3))


def decision_lines_by_seed(runs: Mapping[int, Boundaries]) -> Any:
    """Plot the same for several runs: a row per run, a column per method.

    Args:
        runs: By their numbers.
    """
    return _by_seed(runs, _lines, ("x₀", "x₁"))


_Draw: TypeAlias = Callable[[Any, Any, str], None]


def _by_method(run: Any, draw: _Draw, labels: tuple[str, str], size: tuple[float, float]) -> Any:
    figure, places = make_panels(len(run.samples), size, sharex=True, sharey=True)
    for place, method in zip(places, run.samples, strict=True):
        draw(place, run, method)
        title_panel(place, method)
    label_outer(places, *labels)
    legend_below(figure, *places[0].get_legend_handles_labels())
    return figure


def _by_seed(runs: Mapping[int, Any], draw: _Draw, labels: tuple[str, str]) -> Any:
    methods = list(dict.fromkeys(method for run in runs.values() for method in run.samples))
    figure, places = make_grid(len(runs), len(methods), (2.0, 1.7), sharex=True, sharey=True)
    for row, run in zip(places, runs.values(), strict=True):
        for place, method in zip(row, methods, strict=True):
            if method in run.samples:
                draw(place, run, method)
            else:  # it has not run so often, or diverged
                place.set_axis_off()
    for place, method in zip(places[0], methods, strict=True):
        title_panel(place, method)
    label_outer(places, *labels)
    for number, row in zip(runs, places, strict=True):
        row[0].set_ylabel(f"run {number}\n{labels[1]}")
    legend_below(figure, *places[0, 0].get_legend_handles_labels())
    return figure


def _levels(density: Any) -> list[float]:
    """The heights above which there is so much of a density, the lowest first, and the highest."""
    heights = np.sort(density.ravel())[::-1]
    inside = np.cumsum(heights) / heights.sum()
    return [*(heights[np.searchsorted(inside, mass)] for mass in _MASSES), heights[0]]


def _limits(clouds: Clouds | None, *samples: Any) -> dict[str, tuple[float, float]]:
    """Of axes that show the density and nearly all samples of each method."""
    ends = [np.quantile(np.asarray(values), [0.01, 0.99], axis=0) for values in samples]
    if clouds is not None:
        density = np.asarray(clouds.density, float)
        up, across = np.nonzero(density >= _levels(density)[0])
        inside = np.asarray(clouds.first)[across], np.asarray(clouds.second)[up]
        ends.append(np.asarray([[side.min() for side in inside], [side.max() for side in inside]]))
    low, high = np.min(ends, axis=(0, 1)), np.max(ends, axis=(0, 1))
    margin = 0.1 * (high - low) + 1e-6
    low, high = low - margin, high + margin
    return {"xlim": (low[0], high[0]), "ylim": (low[1], high[1])}


def _density(ax: Any, clouds: Clouds) -> None:
    density = np.asarray(clouds.density, float)
    levels = _levels(density)
    first, second = np.asarray(clouds.first), np.asarray(clouds.second)
    shades = ["#eef1f3", "#dde3e7", "#c5ced4"]
    ax.contourf(first, second, density, levels, colors=shades)
    ax.contour(first, second, density, levels[:-1], colors=[style.SOFT], linewidths=0.6)


def _points(ax: Any, samples: Any, color: str) -> None:
    values = np.unique(np.asarray(samples), axis=0)
    size, alpha = (3.0, 0.35) if len(values) > 1 else (25.0, 1.0)  # a point is to be seen
    ax.scatter(values[:, 0], values[:, 1], s=size, color=color, alpha=alpha, linewidths=0)


def _curves(ax: Any, run: Curves, method: str) -> None:
    inputs, curves = np.asarray(run.grid), np.asarray(run.samples[method])
    ax.plot(inputs, curves.T, color=style.SOFT, linewidth=0.6, alpha=0.35)
    ax.plot([], [], color=style.SOFT, linewidth=0.9, label="particles")
    ax.plot(inputs, curves.mean(axis=0), color=method_style(method).color, linewidth=1.5)
    ax.plot([], [], color=style.INK, linewidth=1.5, label=f"mean of those {len(curves)}")
    ax.plot(inputs, run.truth, color=style.INK, linewidth=1.1, linestyle="--", label="true function")
    ax.plot(
        run.test_inputs,
        run.test_targets,
        ".",
        color=style.INK,
        markersize=2.5,
        alpha=0.6,
        label="test data",
    )
    # The scale of what is known: a wild curve runs out of the picture.
    seen = np.concatenate([np.ravel(run.truth), np.ravel(run.test_targets)])
    margin = 0.15 * np.ptp(seen)
    ax.set(xlim=(inputs[0], inputs[-1]), ylim=(seen.min() - margin, seen.max() + margin))


def _lines(ax: Any, run: Boundaries, method: str) -> None:
    across, up = np.asarray(run.across), np.asarray(run.up)
    samples = np.asarray(run.samples[method], float)
    for one in samples:
        if one.min() < 0.5 < one.max():
            ax.contour(across, up, one, [0.5], colors=[style.SOFT], linewidths=0.6, alpha=0.45)
    mixture = samples.mean(axis=0)
    if mixture.min() < 0.5 < mixture.max():
        ax.contour(across, up, mixture, [0.5], colors=[method_style(method).color], linewidths=1.6)
    ax.plot([], [], color=style.SOFT, linewidth=0.9, label="particles")
    ax.plot([], [], color=style.INK, linewidth=1.6, label=f"mixture of those {len(samples)}")
    labels = np.ravel(run.test_labels)
    for label, face in ((0, "white"), (1, style.INK)):
        points = np.asarray(run.test_inputs)[labels == label]
        marks = {"facecolors": face, "edgecolors": style.INK, "linewidths": 0.7}
        ax.scatter(points[:, 0], points[:, 1], s=9, zorder=3, label=f"test, class {label}", **marks)
    ax.set(xlim=(across[0], across[-1]), ylim=(up[0], up[-1]))

"""Figures of scores: dots over data sets, and what the model does not know."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from partialbayes import metrics
from partialbayes.plots import _style as style
from reproduction.figures.records import Novelty
from reproduction.figures.style import (
    label_outer,
    legend_below,
    make_grid,
    make_panels,
    method_style,
    title_panel,
)
from reproduction.tables.aggregate import REFERENCE, Difference, Row
from reproduction.tables.published import PAPER


def score_dots(rows: Sequence[Row], differences: Sequence[Difference] = (), metric: str = "nlpd") -> Any:
    """Plot a score of each method less OHSMC's, over data sets: regressions left, classifications right.

    OHSMC's is the paper's where all data sets of a panel have it; otherwise ours, and the differences
    and their errors are paired. Dots far beyond the others stand at the edge, with their number.

    Args:
        rows: The lines of ``table.csv``.
        differences: The lines of ``differences.csv``.
        metric: Which rows to show.
    """
    own = [row for row in rows if row.metric == metric and row.mean is not None]
    if not own:
        raise ValueError(f"metric is {metric!r}, and no row has a mean of it.")
    known = {row.dataset for row in own if row.method == REFERENCE}
    datasets = [name for name in dict.fromkeys(row.dataset for row in own) if name in known]
    regressions = [name for name in datasets if (name, REFERENCE, "rmse") in PAPER]
    others = [name for name in datasets if name not in regressions]
    sides = [side for side in (regressions, others) if side]
    methods = list(dict.fromkeys(row.method for row in own))
    tallest = max(map(len, sides))
    height = 1.4 + (0.13 * len(methods) + 0.12) * tallest
    figure, places = make_grid(1, len(sides), (4.4, height))
    paired = {
        (one.dataset, one.method): one
        for one in differences
        if (one.metric, one.reference) == (metric, REFERENCE)
    }
    for place, side in zip(places[0], sides, strict=True):
        inside = [row for row in own if row.dataset in side]
        from_paper = all(row.paper_mean is not None for row in inside if row.method == REFERENCE)
        dots = _against_paper(inside) if from_paper else _against_ours(inside, paired)
        _draw_dots(place, dots, side, methods)
        whose = "the paper's" if from_paper else "our"
        place.set_xlabel(f"{metric.upper()} less {whose} {REFERENCE}, ± standard error")
        place.set_title("regression" if side is regressions else "classification")
    handles = [place.get_legend_handles_labels() for place in places[0]]
    legend_below(figure, *max(handles, key=lambda pair: len(pair[1])))
    return figure


class _Dot(NamedTuple):
    """A method on a data set; hollow where it ran less than half as often as others there."""

    method: str
    dataset: str
    value: float
    error: float
    hollow: bool


def _against_paper(rows: Sequence[Row]) -> list[_Dot]:
    paper = {row.dataset: row.paper_mean or 0.0 for row in rows if row.method == REFERENCE}
    return [
        _Dot(row.method, row.dataset, row.mean - paper[row.dataset], row.se or 0.0, _rare(row, rows))
        for row in rows
        if row.mean is not None
    ]


def _against_ours(rows: Sequence[Row], paired: Mapping[tuple[str, str], Difference]) -> list[_Dot]:
    dots = []
    for row in rows:
        one = paired.get((row.dataset, row.method))
        if row.method == REFERENCE:
            dots.append(_Dot(row.method, row.dataset, 0.0, 0.0, hollow=False))
        elif one is not None:
            dots.append(_Dot(row.method, row.dataset, one.mean, one.se or 0.0, _rare(row, rows)))
    return dots


def _rare(row: Row, rows: Sequence[Row]) -> bool:
    return row.repeats < max(other.repeats for other in rows if other.dataset == row.dataset) / 2


def _draw_dots(ax: Any, dots: Sequence[_Dot], datasets: Sequence[str], methods: Sequence[str]) -> None:
    offsets = dict(zip(methods, np.linspace(-0.36, 0.36, len(methods)), strict=True))
    reach = _reach([dot.value for dot in dots])
    for dot in dots:
        color, marker = method_style(dot.method)
        height = datasets.index(dot.dataset) + offsets[dot.method]
        if abs(dot.value) > reach:
            edge = math.copysign(reach, dot.value)
            ax.plot(edge, height, marker=">" if edge > 0 else "<", color=color, markersize=4)
            side = {"ha": "right" if edge > 0 else "left", "va": "center", "fontsize": 7.5}
            ax.text(0.97 * edge, height, f"{dot.value:+.2f} ", color=color, **side)
            continue
        face = "white" if dot.hollow else color
        looks = {"color": color, "fmt": marker, "markerfacecolor": face}
        ax.errorbar(dot.value, height, xerr=dot.error, markersize=4, elinewidth=1.2, **looks)
    for method in methods:  # in the legend
        if any(dot.method == method for dot in dots):
            color, marker = method_style(method)
            ax.plot([], [], marker, color=color, markersize=4, label=method)
    if any(dot.hollow for dot in dots):
        ax.plot(
            [], [], "o", color=style.SOFT, markerfacecolor="white", markersize=4, label="few repeats"
        )
    if any(abs(dot.value) > reach for dot in dots):
        ax.set_xlim(*(1.04 * reach * np.array([-1.0, 1.0])))
    ax.locator_params(axis="x", nbins=6)
    for border in range(1, len(datasets)):
        ax.axhline(border - 0.5, color="#e6eaed", linewidth=0.8)
    ax.axvline(0.0, color=style.INK, linewidth=0.9, linestyle="--", zorder=0)
    ax.set_yticks(range(len(datasets)), [name.replace("_", " ") for name in datasets])
    ax.set_ylim(len(datasets) - 0.5, -0.5)
    ax.grid(visible=False, axis="y")


def _reach(values: Sequence[float]) -> float:
    """How far from zero the axis goes, so that a few values far off do not squeeze the others."""
    sizes = np.abs(values)
    usual = 3.0 * float(np.quantile(sizes, 0.8))
    return usual if 0.0 < 1.5 * usual < sizes.max() else float(sizes.max())


_LEAST = 1e-7
"""What is told apart from zero: the mutual information was kept in 16 bits."""


def mutual_information(novelty: Novelty) -> Any:
    """Plot mutual information on MNIST and on Fashion-MNIST, which it should tell apart.

    Args:
        novelty: On the test images of both.
    """
    figure, places = make_panels(len(novelty.known), (3.4, 3.0), sharex=True, sharey=True)
    bins = np.logspace(math.log10(_LEAST), math.log10(math.log(10.0)), 41)
    for place, (method, known) in zip(places, novelty.known.items(), strict=True):
        known, unknown = np.asarray(known, float), np.asarray(novelty.unknown[method], float)
        area = float(metrics.auroc(known, unknown))
        sides = (
            (known, style.SOFT, "MNIST"),
            (unknown, method_style(method).color, "Fashion-MNIST, in the method's color"),
        )
        for values, color, name in sides:
            share = np.full(len(values), 1.0 / len(values))
            shown = np.maximum(values, _LEAST)
            place.hist(shown, bins, weights=share, color=color, alpha=0.6, label=name, linewidth=0)
        title_panel(place, method)
        place.set(xscale="log", yscale="log")
        corner = {"transform": place.transAxes, "ha": "right", "va": "top", "fontsize": 9}
        place.text(0.97, 0.95, f"AUROC {area:.3f}", color=style.INK, **corner)
    label_outer(places, "mutual information (nats)", "share of images")
    legend_below(figure, *places[0].get_legend_handles_labels())
    return figure

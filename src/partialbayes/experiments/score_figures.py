"""Figures of scores: dots over data sets, and what the model does not know."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from partialbayes import metrics
from partialbayes.experiments.averages import REFERENCE, Row
from partialbayes.experiments.figure_data import Novelty
from partialbayes.experiments.looks import grid, label_outer, legend_below, look, panels
from partialbayes.experiments.paper import PAPER
from partialbayes.plots import style


def score_dots(rows: Sequence[Row], metric: str = "nlpd") -> Any:
    """A score of each method less OHSMC's, over data sets: regressions left, classifications right.

    OHSMC's is the paper's where all data sets of a panel have it, otherwise ours.

    Args:
        rows: Of ``table.csv``.
        metric: Of the rows to show.
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
    figure, places = grid(1, len(sides), (4.4, height))
    for place, side in zip(places[0], sides, strict=True):
        _dots(place, [row for row in own if row.dataset in side], side, methods, metric)
        place.set_title("regression" if side is regressions else "classification")
    legend_below(figure, *places[0, 0].get_legend_handles_labels())
    return figure


def _dots(
    ax: Any, rows: Sequence[Row], datasets: Sequence[str], methods: Sequence[str], metric: str
) -> None:
    theirs = {row.dataset: row.paper_mean for row in rows if row.method == REFERENCE}
    ours = {row.dataset: row.mean for row in rows if row.method == REFERENCE}
    from_paper = all(value is not None for value in theirs.values())
    reference = theirs if from_paper else ours
    offsets = dict(zip(methods, np.linspace(-0.36, 0.36, len(methods)), strict=True))
    for method in methods:
        shown = [row for row in rows if row.method == method]
        colour, marker = look(method)
        ax.errorbar(
            [row.mean - reference[row.dataset] for row in shown],  # type: ignore[operator]
            [datasets.index(row.dataset) + offsets[method] for row in shown],
            xerr=[row.se or 0.0 for row in shown],
            color=colour,
            fmt=marker,
            markersize=4,
            elinewidth=1.2,
            label=method,
        )
    if max(abs(row.mean - reference[row.dataset]) for row in rows) > 1.0:  # type: ignore[operator]
        ax.set_xscale("symlog", linthresh=0.1)
    else:
        ax.locator_params(axis="x", nbins=6)
    for border in range(1, len(datasets)):
        ax.axhline(border - 0.5, color="#e6eaed", linewidth=0.8)
    ax.axvline(0.0, color=style.INK, linewidth=0.9, linestyle="--", zorder=0)
    ax.set_yticks(range(len(datasets)), [name.replace("_", " ") for name in datasets])
    ax.set_ylim(len(datasets) - 0.5, -0.5)
    ax.grid(visible=False, axis="y")
    whose = "the paper's" if from_paper else "our"
    ax.set_xlabel(f"{metric.upper()} less {whose} {REFERENCE}, ± standard error")


def mutual_information(novelty: Novelty) -> Any:
    """Mutual information on MNIST and on Fashion-MNIST, which it should tell apart; a panel a method.

    Args:
        novelty: On the test images of both.
    """
    figure, places = panels(len(novelty.known), (3.4, 3.0), sharex=True, sharey=True)
    highest = max(float(np.max(values)) for values in novelty.unknown.values())
    bins = np.linspace(0.0, max(highest, 1e-6), 41)
    for place, (method, known) in zip(places, novelty.known.items(), strict=True):
        known, unknown = np.asarray(known), np.asarray(novelty.unknown[method])
        area = float(metrics.auroc(known, unknown))
        sides = ((known, style.SOFT, "MNIST"), (unknown, look(method).colour, "Fashion-MNIST"))
        for values, colour, name in sides:
            share = np.full(len(values), 1.0 / len(values))
            place.hist(values, bins, weights=share, color=colour, alpha=0.6, label=name, linewidth=0)
        place.set_title(method, color=look(method).colour, fontsize=10, fontweight="bold")
        place.set_yscale("log")
        style.legend(place, title=f"AUROC {area:.3f}", title_fontsize=9, loc="upper right")
    label_outer(places, "mutual information (nats)", "share of images")
    return figure

"""All pictures of a folder of results, from what was kept there: no training."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from partialbayes._utils.atomic import write_atomically
from reproduction.figures import scores, synthetic
from reproduction.figures.records import FIGURE_DATA, load_records
from reproduction.tables.aggregate import Difference, Row

_MANY = 3  # data sets, from which on there are dots over them

# By the name of a record: what draws run 0 by itself, and what draws all runs.
_RUN_0: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "traces": ("traces", synthetic.parameter_traces),
    "clouds": ("posterior", synthetic.crescent_posterior),
    "curves": ("curves", synthetic.predictive_curves),
    "boundaries": ("boundaries", synthetic.decision_lines),
    "novelty": ("mutual_information", scores.mutual_information),
}
_ALL_RUNS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "curves": ("curves_by_seed", synthetic.predictive_curves_by_seed),
    "boundaries": ("boundaries_by_seed", synthetic.decision_lines_by_seed),
}


def write_figures(
    folder: Path, rows: Sequence[Row] = (), differences: Sequence[Difference] = ()
) -> list[Path]:
    """Draw what there is data for, as ``.png`` files beside it.

    Args:
        folder: ``results/<experiment>/<track>``, with ``figures.npz`` or without.
        rows: The lines of its ``table.csv``.
        differences: The lines of its ``differences.csv``.

    Returns:
        The files written.
    """
    figures = _draw_records(folder / FIGURE_DATA)
    if len({row.dataset for row in rows if row.metric == "nlpd" and row.mean is not None}) >= _MANY:
        figures["nlpd"] = scores.score_dots(rows, differences)
    for name, figure in figures.items():
        content = io.BytesIO()
        figure.savefig(content, format="png", dpi=140)
        write_atomically(folder / f"{name}.png", content.getvalue(), mode=0o644)
    return [folder / f"{name}.png" for name in figures]


def _draw_records(path: Path) -> dict[str, Any]:
    """Return the figures of a file of records, by name."""
    figures: dict[str, Any] = {}
    records = load_records(path)
    for kind, runs in records.items():
        if kind in _RUN_0 and 0 in runs:
            name, draw = _RUN_0[kind]
            figures[name] = draw(runs[0])
        if kind in _ALL_RUNS and len(runs) > 1:
            name, draw = _ALL_RUNS[kind]
            figures[name] = draw(runs)
    if "flow" in records:
        figures["flow"] = synthetic.particle_flow(records["flow"][0], records.get("clouds", {}).get(0))
    return figures

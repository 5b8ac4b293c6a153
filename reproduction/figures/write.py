"""All pictures of a folder of results, from what was kept there: no training."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from partialbayes._utils.atomic import write_atomically
from reproduction.figures import scores as score_figures
from reproduction.figures import synthetic as figures
from reproduction.figures.records import load_figure_data
from reproduction.tables.write import read_differences, read_rows

DATA = "figures.npz"
"""The file of `save_figure_data` that is looked for; the names of its records are those below."""

_MANY = 3  # data sets, from which on there are dots over them


def write_figures(folder: Path) -> list[Path]:
    """Draw what there is data for, as ``.png`` files beside it.

    Of several records named "curves" or "boundaries" the first is drawn by itself, too.

    Args:
        folder: ``results/<experiment>/<track>``, with ``figures.npz``, ``table.csv``, or both.

    Returns:
        The files written.
    """
    drawn = _of_records(folder / DATA) if (folder / DATA).exists() else {}
    if (folder / "table.csv").exists():
        rows = [row for row in read_rows(folder / "table.csv") if row.metric == "nlpd"]
        if len({row.dataset for row in rows if row.mean is not None}) >= _MANY:
            paired = folder / "differences.csv"
            differences = read_differences(paired) if paired.exists() else []
            drawn["nlpd"] = score_figures.score_dots(rows, differences)
    for name, figure in drawn.items():
        content = io.BytesIO()
        figure.savefig(content, format="png", dpi=140)
        write_atomically(folder / f"{name}.png", content.getvalue(), mode=0o644)
    return [folder / f"{name}.png" for name in drawn]


def _of_records(path: Path) -> dict[str, Any]:
    """Figures by name of the records "traces", "clouds", "flow", "curves", and so on."""
    records = load_figure_data(path)
    drawn: dict[str, Any] = {}
    if "traces" in records:
        drawn["traces"] = figures.parameter_traces(records["traces"][0])
    if "clouds" in records:
        drawn["posterior"] = figures.crescent_posterior(records["clouds"][0])
    if "flow" in records:
        behind = records["clouds"][0] if "clouds" in records else None
        drawn["flow"] = figures.particle_flow(records["flow"][0], behind)
    if "curves" in records:
        drawn["curves"] = figures.predictive_curves(records["curves"][0])
        if len(records["curves"]) > 1:
            drawn["curves_by_seed"] = figures.predictive_curves_by_seed(records["curves"])
    if "boundaries" in records:
        drawn["boundaries"] = figures.decision_lines(records["boundaries"][0])
        if len(records["boundaries"]) > 1:
            drawn["boundaries_by_seed"] = figures.decision_lines_by_seed(records["boundaries"])
    if "novelty" in records:
        drawn["mutual_information"] = score_figures.mutual_information(records["novelty"][0])
    return drawn

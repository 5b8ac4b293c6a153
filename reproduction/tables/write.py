"""The tables of an experiment, written beside its runs."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from partialbayes._utils.atomic import write_atomically
from reproduction.tables.aggregate import Difference, Row, paired_differences, read_runs, summarize
from reproduction.tables.markdown import format_tables


def write_tables(folder: Path) -> tuple[list[Row], list[Difference]]:
    r"""Write ``table.csv``, ``differences.csv`` and ``table.md`` of the runs in a folder.

    Args:
        folder: ``results/<experiment>/<track>``, with ``per_run.csv``.

    Returns:
        The lines of the first two.

    Example:
        >>> import pathlib, tempfile
        >>> from reproduction.tables.write import write_tables
        >>> folder = pathlib.Path(tempfile.mkdtemp()) / "moons" / "paper"
        >>> folder.mkdir(parents=True)
        >>> runs = "moons,OHSMC,0,nlpd,0.2\nmoons,OHSMC,1,nlpd,0.3\n"
        >>> _ = (folder / "per_run.csv").write_text("dataset,method,repeat,metric,value\n" + runs)
        >>> rows, _ = write_tables(folder)
        >>> rows[0].mean
        0.25
        >>> print((folder / "table.csv").read_text().splitlines()[1])
        moons,OHSMC,nlpd,0.25,0.0707107,0.05,2,0.28,0.07
    """
    experiment, track = folder.parts[-2:]
    runs = read_runs(folder / "per_run.csv")
    settings = folder / "settings.json"
    notes = read_notes(json.loads(settings.read_text())) if settings.exists() else {}
    rows, differences = summarize(runs, track), paired_differences(runs)
    columns = [*Difference._fields[:-1], "less"]  # the last one's name in the files
    texts = {
        "table.csv": _format_csv(Row._fields, rows),
        "differences.csv": _format_csv(columns, differences),
        "table.md": format_tables(experiment, track, runs, rows, differences, notes),
    }
    for name, text in texts.items():
        write_atomically(folder / name, text.encode(), mode=0o644)
    return rows, differences


def read_notes(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return what a reader has to know of each data set; those without are left out.

    Args:
        settings: The content of ``settings.json``.
    """
    declared = settings.get("declaration", {}).items()
    return {
        dataset: one["note"] for dataset, one in declared if isinstance(one, dict) and one.get("note")
    }


def _format_csv(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    for row in rows:
        writer.writerow([f"{cell:.6g}" if isinstance(cell, float) else cell for cell in row])
    return text.getvalue()

"""The tables of an experiment, written beside its runs."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from partialbayes._utils.atomic import write_atomically
from reproduction.tables.aggregate import Difference, Row, paired, read_runs, summarize
from reproduction.tables.markdown import table_text


def write_tables(folder: Path, experiment: str) -> None:
    r"""Write ``table.csv``, ``differences.csv`` and ``table.md`` of the runs in a folder.

    Args:
        folder: ``results/<experiment>/<track>``, with ``per_run.csv``.
        experiment: Such as ``"uci"``; for the title.

    Example:
        >>> import pathlib, tempfile
        >>> from reproduction.tables.write import write_tables
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> runs = "moons,OHSMC,0,nlpd,0.2\nmoons,OHSMC,1,nlpd,0.3\n"
        >>> _ = (folder / "per_run.csv").write_text("dataset,method,repeat,metric,value\n" + runs)
        >>> write_tables(folder, "moons")
        >>> print((folder / "table.csv").read_text().splitlines()[1])
        moons,OHSMC,nlpd,0.25,0.0707107,0.05,2,0.28,0.07
    """
    track = folder.name
    runs = read_runs(folder / "per_run.csv")
    settings = folder / "settings.json"
    notes = notes_of(json.loads(settings.read_text())) if settings.exists() else {}
    rows, differences = summarize(runs, track), paired(runs)
    _write(folder / "table.csv", _csv(Row._fields, rows))
    _write(folder / "differences.csv", _csv(Difference._fields, differences))
    _write(folder / "table.md", table_text(experiment, track, runs, rows, differences, notes))


def notes_of(settings: Mapping[str, Any]) -> dict[str, str]:
    """What a reader has to know of each data set; those without are left out.

    Args:
        settings: The content of ``settings.json``.
    """
    declared = settings.get("declaration", {}).items()
    return {
        dataset: one["note"] for dataset, one in declared if isinstance(one, dict) and one.get("note")
    }


def read_rows(path: Path) -> list[Row]:
    """The lines of a ``table.csv``.

    Args:
        path: The file.
    """
    numbers = ("mean", "std", "se", "paper_mean", "paper_std")
    return [Row(**line) for line in _lines(path, numbers)]


def read_differences(path: Path) -> list[Difference]:
    """The lines of a ``differences.csv``.

    Args:
        path: The file.
    """
    return [Difference(**line) for line in _lines(path, ("mean", "se"))]


def _lines(path: Path, numbers: Sequence[str]) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8", newline="") as file:
        lines: list[dict[str, Any]] = list(csv.DictReader(file))
    for line in lines:
        line |= {name: float(line[name]) if line[name] else None for name in numbers}
        line["repeats"] = int(line["repeats"])
    return lines


def _csv(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    for row in rows:
        writer.writerow([f"{cell:.6g}" if isinstance(cell, float) else cell for cell in row])
    return text.getvalue()


def _write(path: Path, text: str) -> None:
    write_atomically(path, text.encode(), mode=0o644)

"""Implement the command report, which writes an HTML page on a model."""

from __future__ import annotations

import contextlib
from importlib.metadata import version
from pathlib import Path
from typing import Any

from partialbayes.cli._files import Loaded, load, require_writable, rows_of
from partialbayes.cli._terminal import status, tell
from partialbayes.errors import TableError


def report(command: Any) -> int:
    """Write the HTML report on a model."""
    import partialbayes
    from partialbayes.reporting import About, Baseline

    loaded = load(command.model)
    require_writable(command.out)
    path = command.table or Path(loaded.notes["data"])
    if command.table is None and not path.is_file():
        raise TableError(f"the training table {path} no longer exists; name a table to score on.")
    rows = rows_of(command, loaded, path, with_targets=True)
    estimator, schema = loaded.estimator, loaded.estimator.schema_
    about = About(
        target=loaded.target.name,
        facts=_facts(loaded, path),
        columns=[_in_words(column) for column in schema.columns],
        notes=rows.notes,
        classes=[str(label) for label in getattr(estimator, "classes_", ())],
        rows=rows.are,
        names=_names_of(rows.frame, schema.ids),
        groups=_groups(schema),
        baseline=Baseline(**loaded.notes["baseline"]),
        predict=rows.predict,
    )
    with status("writing the report"):
        partialbayes.report(
            estimator.model_,
            estimator.posterior_,
            (rows.encoded.values, rows.targets),
            command.out,
            history=getattr(estimator, "history_", None),
            target_scale=estimator.target_scale_,
            title=f"{loaded.target.name}, by {estimator.method}",
            about=about,
        )
    tell(f"the report is in {command.out}.")
    return 0


def _facts(loaded: Loaded, path: Path) -> dict[str, str]:
    notes, estimator = loaded.notes, loaded.estimator
    facts = {
        "trained on": f"{notes['rows']} rows of {Path(notes['data']).name}",
        "trained at": notes["when"].replace("T", " "),
        "version": f"partialbayes {version('partialbayes')}",
        "seed": str(notes["seed"]),
        "method": str(estimator.method),
        "scored on": path.name,
    }
    with contextlib.suppress(AttributeError):
        if bool(estimator.target_scale_.log):
            facts["target"] = (
                f"the logarithm of {loaded.target.name} was learned; this page uses its original units"
            )
    return facts


def _in_words(column: Any) -> tuple[str, str, str]:
    """Describe a column by its name, its kind and its details."""
    if column.kind == "dropped":
        return column.name, "left out", column.why
    details = []
    if column.kind == "category":
        details.append(f"{len(column.levels)} levels")
        details += ["and rare ones"] if column.has_rare else []
    if column.units and column.kind == "number":
        details.append(f"in {column.units[0]}")
    if column.kind == "date":
        details.append(", ".join(column.parts))
    if column.has_gaps:
        details.append("with missing values")
    return column.name, column.kind, "; ".join(details)


def _groups(schema: Any) -> dict[str, list[int]]:
    """Return the indices of the inputs of each column of the table."""
    found: dict[str, list[int]] = {}
    for place, feature in enumerate(schema.features(one_hot=True)):
        found.setdefault(feature.source, []).append(place)
    return found


def _names_of(frame: Any, ids: Any) -> list[str]:
    """Return the name of each row: its identifier, or its number in the file."""
    there = [name for name in ids if name in frame.columns]
    if there:
        return [str(value) for value in frame[there[-1]]]
    return [f"row {int(place) + 1}" for place in frame.index]

"""Tables for the command line: files to numbers, by rules learned from the training rows alone.

Numbers stay numbers, their gaps filled by the median with a column that says so; text becomes one
column per category, a missing one among them. Each thing that is wrong is one sentence.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float

from partialbayes._utils.atomic import write_atomically
from partialbayes.errors import TableError

_MISSING = "(missing)"
_MOST_CLASSES = 10  # whole numbers with more values than this are taken for amounts


class Schema(NamedTuple):
    """How the columns of a table become numbers; all of it goes into JSON.

    Attributes:
        target: The column to predict.
        task: "regression" or "classification".
        numeric: From each numeric column to the median of its training rows.
        gaps: The numeric columns that had gaps.
        categories: From each column of text to its categories.
        notes: What a person should know: columns left out, rows dropped, what was guessed.
    """

    target: str
    task: str
    numeric: dict[str, float]
    gaps: list[str]
    categories: dict[str, list[str]]
    notes: list[str]


def read_table(path: str | Path) -> Any:
    """A data frame from a CSV or Parquet file."""
    path = Path(path)
    if not path.is_file():
        raise TableError(f"there is no file {path}.")
    if path.stat().st_size == 0:
        raise TableError(f"{path} is empty.")
    try:
        frame = pd.read_parquet(path) if path.suffix in (".parquet", ".pq") else pd.read_csv(path)
    except Exception as error:  # whatever the readers raise, it is the file
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise TableError(f"{path} cannot be read as a table ({text}).") from None
    if len(frame) == 0:
        raise TableError(f"{path} has no rows.")
    frame.columns = [str(name) for name in frame.columns]
    return frame


def write_table(path: str | Path, frame: Any) -> None:
    """Write a CSV or Parquet file, whole or not at all."""
    path = Path(path)
    content = io.BytesIO()
    if path.suffix in (".parquet", ".pq"):
        frame.to_parquet(content, index=False)
    else:
        frame.to_csv(content, index=False)
    try:
        write_atomically(path, content.getvalue(), mode=0o644)
    except OSError as error:
        raise TableError(f"{path} cannot be written ({error.strerror or error}).") from None


def learn_schema(frame: Any, target: str, task: str | None) -> Schema:
    """What the columns are, from the training table."""
    require_columns(frame, [target], "target column")
    notes: list[str] = []
    rows = frame[frame[target].notna()]
    if len(rows) < len(frame):
        notes.append(f"{len(frame) - len(rows)} rows without {target} are left out")
    if len(rows) < 2:
        raise TableError(f"only {len(rows)} rows have a value of {target!r}; training needs more.")
    numeric: dict[str, float] = {}
    gaps: list[str] = []
    categories: dict[str, list[str]] = {}
    for name in rows.columns:
        column = rows[name]
        if name == target:
            continue
        if column.isna().all():
            notes.append(f"column {name!r} is empty and left out")
        elif pd.api.types.is_datetime64_any_dtype(column):
            notes.append(f"column {name!r} holds dates and is left out")
        elif _is_numeric(name, column):
            values = _numbers(name, column)
            numeric[name] = float(np.nanmedian(values))
            if np.isnan(values).any():
                gaps.append(name)
        else:
            levels = sorted(set(_text(column)))
            if len(levels) > max(20, len(rows) // 10):
                notes.append(f"column {name!r} has {len(levels)} different texts and is left out")
            else:
                categories[name] = levels
    if not numeric and not categories:
        raise TableError(f"there is no column to predict {target!r} from.")
    if task is None:
        task, why = _guess_task(target, rows[target])
        notes.append(f"{task}, because {why}; --task says otherwise")
    if task == "regression":
        _numbers(target, rows[target])
    return Schema(target, task, numeric, gaps, categories, notes)


def encode(frame: Any, schema: Schema) -> Float[np.ndarray, "row feature"]:
    """The inputs of a table as numbers."""
    require_columns(frame, [*schema.numeric, *schema.categories], "column")
    columns = []
    for name, median in schema.numeric.items():
        values = _numbers(name, frame[name])
        columns.append(np.where(np.isnan(values), median, values))
        if name in schema.gaps:
            columns.append(np.isnan(values).astype(float))
    for name, levels in schema.categories.items():
        text = _text(frame[name])
        new = sorted(set(text) - set(levels) - {_MISSING})
        if new:
            known = ", ".join(map(repr, levels[:8])) + (", …" if len(levels) > 8 else "")
            raise TableError(
                f"column {name!r} holds the category {new[0]!r}, which was not there in training "
                f"(known: {known})."
            )
        columns += [(np.asarray(text) == level).astype(float) for level in levels]
    return np.stack(columns, axis=1)


def targets_of(frame: Any, schema: Schema) -> tuple[Any, Any]:
    """The rows that have a target, and their targets."""
    require_columns(frame, [schema.target], "target column")
    rows = frame[frame[schema.target].notna()]
    if len(rows) == 0:
        raise TableError(f"no row has a value of {schema.target!r}.")
    if schema.task == "regression":
        return rows, _numbers(schema.target, rows[schema.target])
    return rows, np.asarray(_labels(rows[schema.target]))


def require_columns(frame: Any, names: list[str], kind: str) -> None:
    """Refuse a table that lacks columns."""
    missing = [name for name in names if name not in frame.columns]
    if missing:
        there = ", ".join(map(repr, list(frame.columns)[:12]))
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise TableError(f"there is no {kind} {missing[0]!r}{more}; the table has {there}.")


def _guess_task(target: str, column: Any) -> tuple[str, str]:
    distinct = column.nunique()
    if not pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column):
        if _share_of_numbers(column) < 0.5 or pd.api.types.is_bool_dtype(column):
            return "classification", f"{target} holds labels"
        return "regression", f"{target} holds numbers"
    whole = np.all(np.mod(column.to_numpy(float), 1) == 0)
    if whole and distinct <= _MOST_CLASSES:
        return "classification", f"{target} takes {distinct} whole numbers"
    return "regression", f"{target} takes {distinct} different numbers"


def _share_of_numbers(column: Any) -> float:
    there = column[column.notna()]
    return float(pd.to_numeric(there, errors="coerce").notna().mean()) if len(there) else 0.0


def _is_numeric(name: str, column: Any) -> bool:
    # Mostly numbers with some text in between is a mistake in the file, not a set of categories.
    return bool(pd.api.types.is_numeric_dtype(column)) or _share_of_numbers(column) >= 0.5


def _numbers(name: str, column: Any) -> Any:
    values = pd.to_numeric(column, errors="coerce")
    bad = values.isna() & column.notna()
    if bad.any():
        row = int(np.flatnonzero(bad.to_numpy())[0])
        raise TableError(
            f"column {name!r} should hold numbers, but row {int(column.index[row]) + 1} holds "
            f"{column.iloc[row]!r}."
        )
    array = values.to_numpy(float, na_value=np.nan)
    if np.isinf(array).any():
        raise TableError(f"column {name!r} holds infinite numbers.")
    return array


def _text(column: Any) -> list[str]:
    return [_MISSING if gap else str(value) for value, gap in zip(column, column.isna(), strict=True)]


def _labels(column: Any) -> list[Any]:
    """Labels as they are, numbers as whole numbers where they are whole."""
    values = column.to_list()
    if all(isinstance(value, float) and value.is_integer() for value in values):
        return [int(value) for value in values]
    if pd.api.types.is_bool_dtype(column) or not pd.api.types.is_numeric_dtype(column):
        return [str(value) for value in values]
    return values

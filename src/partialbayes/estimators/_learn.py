"""Learn what the columns of a table are, from the training rows alone.

Numbers stay numbers, their gaps filled by the median with a column that says so. Texts become
categories, with a level for those that are rare or were never seen, and one for gaps. Dates become a
time, a place in the year, in the week and in the day. Columns that say nothing, or name their row, are
left out, with the reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from partialbayes.errors import TableError
from partialbayes.estimators import _cells as cells
from partialbayes.estimators._schema import (
    Column,
    Labeled,
    Schema,
    as_columns,
    parts_of,
    require_columns,
    some,
)

_MOST_LEVELS = 100  # of a category; the rarer ones share a level
_FEWEST_IN_LEVEL = 2  # rows of a level by itself
_MOSTLY = 0.9  # share of cells that makes a column one of numbers
_ENOUGH_ROWS = 50  # to call a column the same in all but a few rows
_TIMES = ("year", "month", "day", "week", "hour", "time", "date", "age", "t", "step")


def learn(
    table: Any,
    *,
    skip: Iterable[str] = (),
    categorical: Iterable[str] = (),
    columns: Sequence[str] | None = None,
    drop: Iterable[str] = (),
    decimal: str | None = None,
    leave_out_ids: bool = True,
) -> Schema:
    """Learn what the columns of a table are.

    Args:
        table: What `as_columns` takes.
        skip: Columns that are none of the inputs, such as the target; they are not spoken of.
        categorical: Columns to take for categories, whatever they hold.
        columns: The only columns to use; all by default. One that is named here is never taken for an
            identifier.
        drop: Columns to leave out.
        decimal: The decimal mark, if it is known.
        leave_out_ids: Whether columns that seem to name their rows are left out.

    Raises:
        TableError: There is no such column, a column can be read in no way, or none is left.
    """
    named = as_columns(table)
    skip, categorical, drop = set(skip), set(categorical), set(drop)
    for option, names in (("columns", columns or ()), ("categorical", categorical), ("drop", drop)):
        require_columns(named, names, f"{option}: there is no column")
    rows = len(next(iter(named.values()), ()))
    mark = decimal or cells.decimal_mark(named.values(), ".")
    found = []
    for name, cell in named.items():
        if name in skip:
            continue
        if name in drop or (columns is not None and name not in columns):
            found.append(Column(name, "dropped", "as asked for"))
            continue
        asked = name in (columns or ()) or name in categorical
        found.append(
            _learn_column(name, cell, name in categorical, decimal, mark, leave_out_ids and not asked)
        )
    schema = Schema(tuple(found), rows)
    if not schema.used:
        reasons = "; ".join(f"{column.name!r} {column.why}" for column in found[:5])
        raise TableError(
            "no column is left to predict from" + (f": {reasons}." if reasons else ", the target aside.")
        )
    return schema._replace(notes=tuple(_notes(schema)))


def _learn_column(
    name: str, column: Any, is_category: bool, decimal: str | None, mark: str | None, leave_out_ids: bool
) -> Column:
    missing = cells.gaps(column)
    if missing.all():
        return Column(name, "dropped", "is empty")
    there = column[~missing]
    levels = Counter(text for text in cells.texts(there) if text is not None)
    commonest = levels.most_common(1)[0][1]
    if len(levels) == 1 and not missing.any():
        return Column(name, "dropped", f"is {next(iter(levels))!r:.40} in every row")
    few = max(1, len(column) // 1000)
    if len(column) >= _ENOUGH_ROWS and not missing.any() and len(there) - commonest <= few:
        return Column(name, "dropped", f"is the same in all but {len(there) - commonest} rows")
    if is_category or isinstance(column, Labeled):
        return _category(name, levels, missing, len(column), asked=is_category)
    flags = cells.read_flags(column)
    if flags is not None:
        return Column(
            name, "flag", fill=float(np.nanmedian(flags).round()), has_gaps=bool(missing.any())
        )
    numbers = cells.read_numbers(column, decimal, mark)
    share = 1.0 - float(numbers.bad.sum()) / len(there)
    if leave_out_ids and (why := _is_id(name, there, numbers, share, levels)):
        return Column(name, "dropped", why, is_id=True)
    may_be_dates = share < 1.0 or column.dtype.kind == "M" or cells.are_compact_dates(there.tolist())
    order = cells.date_order(there.tolist()) if may_be_dates else None
    if order == "unclear":
        return Column(
            name, "dropped", "holds dates that may be day/month or month/day; write them as 2026-12-31"
        )
    if order is not None:
        return _date(name, column, order)
    mixes_units = len(numbers.units) > 1 and share >= _MOSTLY
    if len(numbers.units) > 1 or (share > 0 and _is_code(there)):
        share = 0.0
    if share >= _MOSTLY:
        require_moderate(name, numbers.values)
        values = numbers.values
        if len(levels) > 1 and np.nanmax(values) == np.nanmin(values):
            return Column(name, "dropped", "holds numbers that differ only after their 15th digit")
        return Column(
            name,
            "number",
            fill=float(np.nanmedian(values)),
            has_gaps=bool(np.isnan(values).any()),
            units=numbers.units,
            mark=numbers.mark,
            strange=str(column[numbers.bad][0])[:40] if numbers.bad.any() else "",
        )
    if share >= 0.5:
        require_numbers(name, column, numbers, "column")
    found = _category(name, levels, missing, len(column))
    return found._replace(units=numbers.units) if mixes_units else found


def _category(name: str, levels: Counter[str], missing: Any, rows: int, asked: bool = False) -> Column:
    kept = [level for level, count in levels.most_common(_MOST_LEVELS) if count >= _FEWEST_IN_LEVEL]
    covered = sum(levels[level] for level in kept)
    if not asked and covered < 0.5 * levels.total():
        return Column(name, "dropped", f"holds {len(levels)} different texts, most of them once")
    if not kept:
        return Column(name, "dropped", "holds a different text in every row")
    return Column(
        name,
        "category",
        levels=tuple(sorted(kept)),
        has_rare=covered < levels.total(),
        has_gaps=bool(missing.any()),
    )


def _date(name: str, column: Any, order: str) -> Column:
    days = cells.read_dates(column, order)
    there = days[~np.isnan(days)]
    parts = ["time"]
    span = float(np.ptp(there))
    if span > 60:
        parts += ["year sine", "year cosine"]
    if span > 14:
        parts += ["week sine", "week cosine", "weekend"]
    if np.ptp(there % 1.0) > 0:
        parts += ["day sine", "day cosine"]
    found = Column(
        name,
        "date",
        fill=float(np.median(there)),
        has_gaps=bool(np.isnan(days).any()),
        order=order,
        parts=tuple(parts),
    )
    # Every Monday is the same place in the week.
    spread = [float(np.ptp(part)) for part in parts_of(there, found)]
    kept = [part for part, width in zip(parts, spread, strict=True) if width > 1e-9 or part == "time"]
    return found._replace(parts=tuple(kept))


def _is_id(
    name: str, there: Any, numbers: cells.Numbers, share: float, levels: Counter[str]
) -> str | None:
    """Why a column names its rows; None if it does not."""
    if len(levels) < len(there) or len(there) < 5:
        return None
    plain = name.strip().lower()
    if plain.startswith("unnamed:") or plain in ("index", "", "row", "rownames", "level_0"):
        return "is the index of the rows"
    words = plain.replace("-", "_").replace(" ", "_").split("_")
    called_id = words[-1] in ("id", "uuid", "guid", "key", "nr", "no", "number") or plain.endswith("id")
    if share == 0.0:
        return "names the row" if called_id else None
    values = numbers.values[~np.isnan(numbers.values)]
    if share < 1.0 or numbers.units or not np.isfinite(values).all() or np.any(values % 1 != 0):
        return None
    if called_id and words[-1] not in ("number", "key"):
        return "names the row: a different whole number in each"
    counts = np.ptp(values) == len(values) - 1 and values.min() in (0, 1)
    if counts and len(values) >= 20 and words[-1] not in _TIMES:
        return f"counts the rows from {values.min():.0f}"
    return None


def _is_code(there: Any) -> bool:
    """Whether whole numbers are written with leading zeros, as postal codes are."""
    return any(
        isinstance(cell, str) and len(cell) > 1 and cell[0] == "0" and cell.isdigit() for cell in there
    )


def require_numbers(name: str, column: Any, numbers: cells.Numbers, what: str) -> None:
    if numbers.bad.any():
        row = int(np.flatnonzero(numbers.bad)[0])
        remedy = (
            "" if what == "the target" else "; --categorical, or the dtype category, takes it for one"
        )
        raise TableError(
            f"{what} {name!r} should hold numbers, but row {row + 1} holds "
            f"{str(column[row])!r:.60}{remedy}."
        )


def require_moderate(name: str, values: Any) -> None:
    """Refuse numbers that single precision cannot hold once they are scaled."""
    if np.isinf(values).any():
        row = int(np.flatnonzero(np.isinf(values))[0])
        raise TableError(f"column {name!r} holds an infinite number in row {row + 1}.")
    largest = np.nanmax(np.abs(values))
    if largest > 1e30:
        raise TableError(
            f"column {name!r} holds {largest:.3g}, which is too large to compute with; if it stands for "
            "a gap, leave the cell empty, else use another unit."
        )


def _notes(schema: Schema) -> list[str]:
    """What a person should know, in sentences."""
    notes = []
    for column in schema.columns:
        name = column.name
        if column.kind == "dropped":
            if column.why != "as asked for":
                notes.append(f"column {name!r} is left out: it {column.why}")
        elif column.kind == "category" and column.units:
            units = some(column.units)
            notes.append(f"column {name!r} mixes units ({units}), so that its texts are categories")
        elif column.units or (column.kind == "number" and column.mark == ","):
            numbers = cells.Numbers(np.zeros(0), np.zeros(0, bool), column.units, False, column.mark)
            notes.append(about_numbers(name, numbers))
        elif column.kind == "date":
            written = {"iso": "", "words": " in words"}.get(column.order, f", {column.order},")
            notes.append(f"column {name!r} holds dates{written} and becomes {some(column.parts, 8)}")
        elif column.kind == "category" and column.has_rare:
            notes.append(
                f"column {name!r} has {len(column.levels)} categories; the rarest share a level"
            )
        if column.strange:
            notes.append(f"column {name!r} holds {column.strange!r} among its numbers, counted as a gap")
    return notes


def about_numbers(name: str, numbers: cells.Numbers) -> str:
    said = []
    if numbers.units:
        said.append(f"numbers in {numbers.units[0]!r}")
    if numbers.mark == ",":
        said.append("decimal commas")
    if numbers.grouped:
        said.append("separators between thousands")
    return f"column {name!r} holds {' and '.join(said) or 'numbers'}, read as plain numbers"

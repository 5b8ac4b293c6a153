"""Turn a table into numbers by what was learned from the training rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from partialbayes.errors import TableError
from partialbayes.estimators import _cells as cells
from partialbayes.estimators._schema import (
    Column,
    Encoded,
    Schema,
    as_columns,
    parts_of,
    require_columns,
    some,
)


def encode(
    table: Any,
    schema: Schema,
    *,
    one_hot: bool = False,
    strict: bool = False,
    decimal: str | None = None,
) -> Encoded:
    """Turn a table into numbers by what was learned.

    Args:
        table: What `as_columns` takes, with the columns that are used.
        schema: From `learn`.
        one_hot: Whether a category becomes a column of zeros and ones for each level. If not it is one
            column that holds the number of the level.
        strict: Whether to refuse categories that were not there in training, and text in place of
            numbers. If not they get the level of the others, and count as gaps.
        decimal: The decimal mark of this table, if it is known.

    Raises:
        TableError: A column is missing; or ``strict``, and a cell does not fit.
    """
    named = as_columns(table)
    require_columns(named, [column.name for column in schema.used], "there is no column")
    mark = decimal or cells.decimal_mark(named[column.name] for column in schema.used)
    blocks: list[Any] = []
    notes: list[str] = []
    for column in schema.used:
        blocks += _encode_column(column, named[column.name], one_hot, strict, decimal, mark, notes)
    return Encoded(np.stack(blocks, axis=1), schema.features(one_hot), tuple(notes))


def _encode_column(
    column: Column,
    found: Any,
    one_hot: bool,
    strict: bool,
    decimal: str | None,
    mark: str | None,
    notes: list[str],
) -> list[Any]:
    name = column.name
    missing = cells.gaps(found)
    if column.kind == "category":
        return _encode_category(column, found, one_hot, strict, notes)
    if column.kind == "date":
        values = cells.read_dates(found, column.order)
    elif column.kind == "flag":
        flags = cells.read_flags(found)
        # Written as 0 and 1 in this table, or with something else in between.
        values = cells.read_numbers(found).values if flags is None else flags
        values = np.where(np.isin(values, (0.0, 1.0)), values, np.nan)
    else:
        own = cells.decimal_mark([found]) or mark or column.mark
        numbers = cells.read_numbers(found, decimal or (own if own == "," else None), own)
        values = numbers.values
        new = [unit for unit in numbers.units if column.units and unit not in column.units]
        if new:
            raise TableError(
                f"column {name!r} holds numbers in {new[0]!r}, but in training they were in "
                f"{column.units[0]!r}."
            )
        infinite = np.isinf(values) | (np.abs(values) > 1e30)
        values = np.where(infinite, np.nan, values)
    bad = np.isnan(values) & ~missing
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        what = {"number": "numbers", "date": "dates", "flag": "true or false"}[column.kind]
        if strict:
            raise TableError(
                f"column {name!r} should hold {what}, but row {row + 1} holds {str(found[row])!r:.60}."
            )
        notes.append(
            f"column {name!r} should hold {what} but does not in {count_rows(bad)} (row {row + 1}: "
            f"{str(found[row])!r:.40}), counted as gaps"
        )
    if missing.any() and not column.has_gaps:
        notes.append(f"column {name!r} is empty in {count_rows(missing)}, and never was in training")
    gap = np.isnan(values)
    filled = np.where(gap, column.fill, values)
    blocks = parts_of(filled, column) if column.kind == "date" else [filled]
    return [*blocks, gap.astype(float)] if column.has_gaps else blocks


def _encode_category(
    column: Column, found: Any, one_hot: bool, strict: bool, notes: list[str]
) -> list[Any]:
    texts = cells.texts(found)
    places = {level: place for place, level in enumerate(column.levels)}
    other, missing = len(places), len(places) + 1
    codes = np.asarray([missing if text is None else places.get(text, other) for text in texts])
    new = sorted({text for text in texts if text is not None and text not in places})
    if new and not column.has_rare:
        if strict:
            raise TableError(
                f"column {column.name!r} holds the category {new[0]!r}, which was not there in training "
                f"(known: {some(column.levels, 8)})."
            )
        notes.append(
            f"column {column.name!r} holds a category that was not there in training in "
            f"{count_rows(codes == other)} ({some(new)})"
        )
    if (codes == missing).any() and not column.has_gaps:
        notes.append(
            f"column {column.name!r} is empty in {count_rows(codes == missing)}, and never was in "
            "training"
        )
    if not one_hot:
        return [codes.astype(float)]
    learned = [*range(other), *([other] if column.has_rare else [])]
    learned += [missing] if column.has_gaps else []
    return [(codes == level).astype(float) for level in learned]


def count_rows(mask: Any) -> str:
    count = int(np.sum(mask))
    return f"{count} row" if count == 1 else f"{count} rows"

"""What the columns of a table are, and how they become numbers: learned from the training rows alone.

Numbers stay numbers, their gaps filled by the median with a column that says so. Texts become
categories, with a level for those that are rare or were never seen, and one for gaps. Dates become a
time, a place in the year, in the week and in the day. Columns that say nothing, or name their row, are
left out, with the reason. Everything that was learned goes into JSON.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Float

from partialbayes.errors import TableError
from partialbayes.estimators import _cells as cells

Kind: TypeAlias = Literal["number", "flag", "category", "date", "dropped"]
Task: TypeAlias = Literal["regression", "classification"]

_MOST_LEVELS = 100  # of a category; the rarer ones share a level
_FEWEST_IN_LEVEL = 2  # rows of a level by itself
_MOST_CLASSES = 100  # of a target, unless it is said that these are classes
_FEW_NUMBERS = 10  # a target of so many whole numbers is taken for classes
_MOSTLY = 0.9  # share of cells that makes a column one of numbers
_ENOUGH_ROWS = 50  # to call a column the same in all but a few rows
_TIMES = ("year", "month", "day", "week", "hour", "time", "date", "age", "t", "step")
MISSING, OTHER = "(missing)", "(other)"


class Column(NamedTuple):
    """One column of the table, and how it becomes numbers.

    Attributes:
        name: What it is called.
        kind: What it is.
        why: Of a column that is dropped, the reason.
        is_id: Whether it names the row rather than describe it.
        fill: What gaps are filled with: a median, or that of a date in days.
        has_gaps: Whether the training rows had gaps, so that a column says where.
        levels: The categories with a level of their own.
        has_rare: Whether there were rarer ones, so that the level of the others was learned.
        units: What was taken off the numbers.
        mark: The decimal mark of the numbers.
        order: How dates were written.
        parts: What is made of a date.
    """

    name: str
    kind: Kind
    why: str = ""
    is_id: bool = False
    fill: float = 0.0
    has_gaps: bool = False
    levels: tuple[str, ...] = ()
    has_rare: bool = False
    units: tuple[str, ...] = ()
    mark: str = "."
    order: str = "iso"
    parts: tuple[str, ...] = ()


class Feature(NamedTuple):
    """One column of the matrix that a table becomes.

    Attributes:
        name: What it is called.
        kind: "number"; "flag", which is 0 or 1; or "category", which holds the number of a level.
        cardinality: How many levels a category has: those of `Column.levels`, then one for categories
            that are rare or new, then one for gaps. Two for a flag, zero for a number.
        source: The column of the table it was made from.
    """

    name: str
    kind: Literal["number", "flag", "category"]
    cardinality: int
    source: str


class Encoded(NamedTuple):
    """A table as numbers.

    Attributes:
        values: One row per row of the table, one column per feature.
        features: What each column is.
        notes: What was met that was not there in training, in sentences.
    """

    values: Float[np.ndarray, "row feature"]
    features: tuple[Feature, ...]
    notes: tuple[str, ...]


class Schema(NamedTuple):
    """What was learned from a table.

    Attributes:
        columns: Every column of the table, those that are left out too.
        rows: How many rows it was learned from.
        notes: What a person should know about it, in sentences.

    Example:
        >>> from partialbayes.estimators._schema import encode, learn
        >>> table = {"size": ["80 m2", "95,5 m2", ""] * 9, "town": ["Oslo", "Bergen", "Oslo"] * 9}
        >>> schema = learn(table)
        >>> [(feature.name, feature.kind, feature.cardinality) for feature in schema.features()]
        [('size', 'number', 0), ('size is missing', 'flag', 2), ('town', 'category', 4)]
        >>> encode(table, schema).values[2].tolist()
        [87.75, 1.0, 1.0]
    """

    columns: tuple[Column, ...]
    rows: int
    notes: tuple[str, ...] = ()

    @property
    def used(self) -> tuple[Column, ...]:
        """The columns that become numbers."""
        return tuple(column for column in self.columns if column.kind != "dropped")

    @property
    def ids(self) -> tuple[str, ...]:
        """The columns that name the row."""
        return tuple(column.name for column in self.columns if column.is_id)

    def features(self, one_hot: bool = False) -> tuple[Feature, ...]:
        """What each column of the matrix is."""
        return tuple(feature for column in self.used for feature in _features(column, one_hot))

    def to_json(self) -> dict[str, Any]:
        """All of it, as JSON can hold it."""
        return self._asdict() | {"columns": [column._asdict() for column in self.columns]}

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> Schema:
        """What `to_json` wrote."""
        columns = []
        for column in saved["columns"]:
            fields: dict[str, Any] = {
                name: tuple(value) if isinstance(value, list) else value
                for name, value in column.items()
            }
            columns.append(Column(**fields))
        return cls(tuple(columns), int(saved["rows"]), tuple(saved["notes"]))


class Target(NamedTuple):
    """The column to predict.

    Attributes:
        name: What it is called.
        task: "regression" or "classification".
        why: How the task was found.
        units: What was taken off the numbers.
        mark: The decimal mark of the numbers.
        notes: What a person should know about it, in sentences.
    """

    name: str
    task: Task
    why: str = ""
    units: tuple[str, ...] = ()
    mark: str = "."
    notes: tuple[str, ...] = ()


def as_columns(table: Any) -> dict[str, Any]:
    """The columns of a table by name.

    Args:
        table: A data frame, a dictionary of columns, a structured array, or an array with one row per
            example, whose columns are called x0, x1, ….

    Raises:
        TableError: Two columns have one name, or columns differ in length.
    """
    if isinstance(table, Mapping):
        named = {str(name): _array(column) for name, column in table.items()}
    elif hasattr(table, "columns") and hasattr(table, "__getitem__"):
        names = [str(name) for name in table.columns]
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            raise TableError(f"there are two columns {twice[0]!r}; rename one.")
        named = {name: _array(table[own]) for name, own in zip(names, table.columns, strict=True)}
    else:
        array = np.asarray(table)
        if array.dtype.names:
            named = {name: array[name] for name in array.dtype.names}
        elif array.ndim == 2:
            named = {f"x{place}": array[:, place] for place in range(array.shape[1])}
        else:
            raise TableError(f"a table has rows and columns, but this has shape {array.shape}.")
    lengths = {len(column) for column in named.values()}
    if len(lengths) > 1:
        raise TableError(f"the columns of the table differ in length: {sorted(lengths)} rows.")
    return named


class _Category(np.ndarray):
    """A column that its owner calls a category, whatever it holds."""


def _array(column: Any) -> Any:
    kind = str(getattr(column, "dtype", "")).lower()
    if kind == "category" or kind.startswith(("categorical", "enum")):
        return np.asarray(column, object).view(_Category)
    return np.asarray(column)


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
    mark = decimal or _mark_of(named)
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
    mark = decimal or cells.decimal_mark(_texts_only(named[column.name] for column in schema.used))
    blocks: list[Any] = []
    notes: list[str] = []
    for column in schema.used:
        blocks += _encode_column(column, named[column.name], one_hot, strict, decimal, mark, notes)
    return Encoded(np.stack(blocks, axis=1), schema.features(one_hot), tuple(notes))


def learn_target(table: Any, name: str, task: Task | None = None, decimal: str | None = None) -> Target:
    """What the column to predict is.

    Args:
        table: What `as_columns` takes.
        name: The column.
        task: "regression" or "classification"; guessed by default.
        decimal: The decimal mark, if it is known.

    Raises:
        TableError: There is no such column, it can be read in no way, or has too many classes.
    """
    named = as_columns(table)
    require_columns(named, [name], "there is no target column")
    column = named[name]
    there = column[~cells.gaps(column)]
    if len(there) < 2:
        raise TableError(
            f"only {len(there)} of {len(column)} rows have a value of {name!r}; training needs more."
        )
    fallback = decimal or _mark_of(named)
    numbers = cells.read_numbers(there, decimal, fallback)
    share = 1.0 - float(numbers.bad.mean())
    if _is_flags(there):
        share = 0.0
    labels = len(set(cells.texts(there)))
    why = ""
    if task is None:
        task, why = _guess_task(name, there, numbers, share, labels)
    if task == "classification":
        _refuse_classes(name, there, numbers, share, labels, said=not why)
        return Target(name, task, why)
    _require_numbers(name, column, cells.read_numbers(column, decimal, fallback), "the target")
    if len(numbers.units) > 1:
        raise TableError(
            f"the target {name!r} mixes units ({_some(numbers.units)}); bring it to one of them."
        )
    _require_moderate(name, numbers.values)
    if labels == 1:
        raise TableError(f"the target {name!r} is {there[0]} in every row; there is nothing to learn.")
    notes = [_about_numbers(name, numbers)] if numbers.units or numbers.grouped else []
    return Target(name, task, why, numbers.units, numbers.mark, tuple(notes))


def targets_of(table: Any, target: Target, decimal: str | None = None) -> tuple[Any, Any]:
    """Which rows have a target, and their targets.

    Args:
        table: What `as_columns` takes.
        target: From `learn_target`.
        decimal: The decimal mark of this table, if it is known.

    Returns:
        Numbers of the rows, and numbers or labels, one each.
    """
    named = as_columns(table)
    require_columns(named, [target.name], "there is no target column")
    column = named[target.name]
    rows = np.flatnonzero(~cells.gaps(column))
    if len(rows) == 0:
        raise TableError(f"no row has a value of {target.name!r}.")
    if target.task == "classification":
        return rows, np.asarray(_labels(column[rows]))
    mark = decimal or cells.decimal_mark(_texts_only([column])) or _mark_of(named, target.mark)
    numbers = cells.read_numbers(column, mark if mark == "," else decimal, mark)
    _require_numbers(target.name, column, numbers, "the target")
    return rows, numbers.values[rows]


def require_columns(named: Mapping[str, Any], names: Iterable[str], what: str) -> None:
    """Refuse a table that lacks columns."""
    missing = [name for name in names if name not in named]
    if missing:
        there = ", ".join(map(repr, list(named)[:12])) + (", …" if len(named) > 12 else "")
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise TableError(f"{what} {missing[0]!r}{more}; the table has {there or 'none'}.")


def _learn_column(
    name: str, column: Any, is_category: bool, decimal: str | None, mark: str, leave_out_ids: bool
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
    if is_category or isinstance(column, _Category):
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
    order = cells.date_order(there.tolist()) if share < 1.0 or column.dtype.kind == "M" else None
    if order == "unclear":
        return Column(
            name, "dropped", "holds dates that may be day/month or month/day; write them as 2026-12-31"
        )
    if order is not None:
        return _date(name, column, order)
    if len(numbers.units) > 1 or (share > 0 and _is_code(there)):
        share = 0.0
    if share >= _MOSTLY:
        _require_moderate(name, numbers.values)
        values = numbers.values
        return Column(
            name,
            "number",
            fill=float(np.nanmedian(values)),
            has_gaps=bool(np.isnan(values).any()),
            units=numbers.units,
            mark=numbers.mark,
        )
    if share >= 0.5:
        _require_numbers(name, column, numbers, "column")
    return _category(name, levels, missing, len(column))


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
    spread = [float(np.ptp(part)) for part in _parts_of(there, found)]
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


def _is_flags(there: Any) -> bool:
    return cells.read_flags(there) is not None


def _guess_task(
    name: str, there: Any, numbers: cells.Numbers, share: float, labels: int
) -> tuple[Task, str]:
    if share < 0.5:
        return "classification", f"{name} holds labels"
    values = numbers.values[~numbers.bad]
    plain = not numbers.units and not numbers.grouped and np.isfinite(values).all()
    if plain and np.all(values % 1 == 0) and labels <= _FEW_NUMBERS:
        return "classification", f"{name} takes {labels} whole numbers"
    return "regression", f"{name} takes {labels} different numbers"


def _refuse_classes(
    name: str, there: Any, numbers: cells.Numbers, share: float, labels: int, said: bool
) -> None:
    """Refuse a target of one class, or of so many that it can be none, with the likely reason."""
    if labels == 1:
        raise TableError(
            f"the target {name!r} is {str(there[0])!r} in every row; there is nothing to learn."
        )
    too_many = labels > 0.5 * len(there) and labels > _FEW_NUMBERS
    if not too_many and (labels <= _MOST_CLASSES or said):
        return
    if share > 0.5:
        reason = "these look like amounts; --task regression takes them for such"
    elif share > 0.05 or len(numbers.units) > 1:
        bad = int(np.flatnonzero(numbers.bad)[0]) if numbers.bad.any() else 0
        reason = (
            f"{100 * share:.0f} % of them are numbers, so that this looks like a column of numbers with "
            f"something else in it, such as {str(there[bad])!r:.40}; mend or remove those cells"
        )
    elif cells.date_order(there.tolist()) is not None:
        reason = "these are dates; predict a number of days instead"
    elif labels > 0.9 * len(there):
        reason = "nearly every row has its own, as names and identifiers do; choose another target"
    else:
        reason = "merge the rare ones, or choose another target"
    raise TableError(f"the target {name!r} has {labels} classes in {len(there)} rows: {reason}.")


def _require_numbers(name: str, column: Any, numbers: cells.Numbers, what: str) -> None:
    if numbers.bad.any():
        row = int(np.flatnonzero(numbers.bad)[0])
        remedy = (
            "" if what == "the target" else "; --categorical, or the dtype category, takes it for one"
        )
        raise TableError(
            f"{what} {name!r} should hold numbers, but row {row + 1} holds "
            f"{str(column[row])!r:.60}{remedy}."
        )


def _require_moderate(name: str, values: Any) -> None:
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


def _features(column: Column, one_hot: bool) -> list[Feature]:
    name = column.name
    gap = [Feature(f"{name} is missing", "flag", 2, name)] if column.has_gaps else []
    if column.kind == "category":
        if not one_hot:
            return [Feature(name, "category", len(column.levels) + 2, name)]
        levels = [*column.levels, *([OTHER] if column.has_rare else [])]
        levels += [MISSING] if column.has_gaps else []
        return [Feature(f"{name} is {level}", "flag", 2, name) for level in levels]
    if column.kind == "date":
        parts = [
            Feature(f"{name}, {part}", *(("flag", 2) if part == "weekend" else ("number", 0)), name)
            for part in column.parts
        ]
        return [*parts, *gap]
    own = ("flag", 2) if column.kind == "flag" else ("number", 0)
    return [Feature(name, *own, name), *gap]  # type: ignore[arg-type]


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
        own = cells.decimal_mark(_texts_only([found]), None) or mark or column.mark
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
            f"column {name!r} should hold {what} but does not in {_rows(bad)} (row {row + 1}: "
            f"{str(found[row])!r:.40}), counted as gaps"
        )
    if missing.any() and not column.has_gaps:
        notes.append(f"column {name!r} is empty in {_rows(missing)}, and never was in training")
    gap = np.isnan(values)
    filled = np.where(gap, column.fill, values)
    blocks = _parts_of(filled, column) if column.kind == "date" else [filled]
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
                f"(known: {_some(column.levels, 8)})."
            )
        notes.append(
            f"column {column.name!r} holds a category that was not there in training in "
            f"{_rows(codes == other)} ({_some(new)})"
        )
    if (codes == missing).any() and not column.has_gaps:
        notes.append(
            f"column {column.name!r} is empty in {_rows(codes == missing)}, and never was in training"
        )
    if not one_hot:
        return [codes.astype(float)]
    learned = [*range(other), *([other] if column.has_rare else [])]
    learned += [missing] if column.has_gaps else []
    return [(codes == level).astype(float) for level in learned]


def _parts_of(days: Any, column: Column) -> list[Any]:
    """What is made of a date, given in days since 1970-01-01, a Thursday."""
    turns = {"year": days / 365.2425, "week": (days + 3.0) / 7.0, "day": days}
    made = []
    for part in column.parts:
        if part == "time":
            made.append(days - column.fill)
        elif part == "weekend":
            made.append(((days + 3.0) % 7.0 >= 5.0).astype(float))
        else:
            period, wave = part.split()
            turn = 2.0 * np.pi * turns[period]
            made.append(np.sin(turn) if wave == "sine" else np.cos(turn))
    return made


def _notes(schema: Schema) -> list[str]:
    """What a person should know, in sentences."""
    notes = []
    for column in schema.columns:
        name = column.name
        if column.kind == "dropped":
            if column.why != "as asked for":
                notes.append(f"column {name!r} is left out: it {column.why}")
        elif column.units or (column.kind == "number" and column.mark == ","):
            numbers = cells.Numbers(np.zeros(0), np.zeros(0, bool), column.units, False, column.mark)
            notes.append(_about_numbers(name, numbers))
        elif column.kind == "date":
            written = "" if column.order == "iso" else f", {column.order},"
            notes.append(f"column {name!r} holds dates{written} and becomes {_some(column.parts, 8)}")
        elif column.has_rare:
            notes.append(
                f"column {name!r} has {len(column.levels)} categories; the rarest share a level"
            )
    return notes


def _about_numbers(name: str, numbers: cells.Numbers) -> str:
    said = []
    if numbers.units:
        said.append(f"numbers in {numbers.units[0]!r}")
    if numbers.mark == ",":
        said.append("decimal commas")
    if numbers.grouped:
        said.append("separators between thousands")
    return f"column {name!r} holds {' and '.join(said) or 'numbers'}, read as plain numbers"


def _labels(column: Any) -> list[Any]:
    """Labels as they are; numbers as whole numbers where they are whole."""
    values = column.tolist()
    if all(isinstance(value, float) and value.is_integer() for value in values):
        return [int(value) for value in values]
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return values
    texts = [str(text) for text in cells.texts(column)]
    # A file knows no kinds: whole numbers stay numbers, so that 10 comes after 9.
    if all(text.lstrip("-").isdigit() and str(int(text)) == text for text in texts):
        return [int(text) for text in texts]
    return texts


def _mark_of(named: Mapping[str, Any], fallback: str = ".") -> str:
    return cells.decimal_mark(_texts_only(named.values()), fallback) or fallback


def _texts_only(columns: Iterable[Any]) -> list[Any]:
    return [column for column in columns if np.asarray(column).dtype.kind in "OUST"]


def _rows(mask: Any) -> str:
    count = int(np.sum(mask))
    return f"{count} row" if count == 1 else f"{count} rows"


def _some(names: Sequence[str], most: int = 4) -> str:
    return ", ".join(map(repr, names[:most])) + (", …" if len(names) > most else "")

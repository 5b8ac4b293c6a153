"""What the columns of a table are: learned by `_learn`, used by `_encode`, written to JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Float

from partialbayes.errors import TableError

Kind: TypeAlias = Literal["number", "flag", "category", "date", "dropped"]
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
        strange: The first text among the numbers, which is counted as a gap.
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
    strange: str = ""


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
        >>> from partialbayes.estimators._encode import encode
        >>> from partialbayes.estimators._learn import learn
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


def parts_of(days: Any, column: Column) -> list[Any]:
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


class Labeled(np.ndarray):
    """A column that its owner calls a category, whatever it holds."""


def _array(column: Any) -> Any:
    kind = str(getattr(column, "dtype", "")).lower()
    if kind == "category" or kind.startswith(("categorical", "enum")):
        return np.asarray(column, object).view(Labeled)
    return np.asarray(column)


def require_columns(named: Mapping[str, Any], names: Iterable[str], what: str) -> None:
    """Refuse a table that lacks columns."""
    missing = [name for name in names if name not in named]
    if missing:
        there = ", ".join(map(repr, list(named)[:12])) + (", …" if len(named) > 12 else "")
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        lacks = " (does it lack a header?)" if named and all(map(is_number, named)) else ""
        raise TableError(f"{what} {missing[0]!r}{more}; the table has {there or 'none'}{lacks}.")


def is_number(name: str) -> bool:
    """Whether a name is a number, as where a table has no header."""
    try:
        float(name)
    except ValueError:
        return False
    return True


def some(names: Sequence[str], most: int = 4) -> str:
    return ", ".join(map(repr, names[:most])) + (", …" if len(names) > most else "")

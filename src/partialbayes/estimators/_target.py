"""The column to predict: whether it holds amounts or classes, and its values."""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from partialbayes.errors import TableError
from partialbayes.estimators import _cells as cells
from partialbayes.estimators._learn import about_numbers, require_moderate, require_numbers
from partialbayes.estimators._schema import as_columns, require_columns, some

Task: TypeAlias = Literal["regression", "classification"]

_MOST_CLASSES = 100  # of a target, unless it is said that these are classes
_FEW_NUMBERS = 10  # a target of so many whole numbers is taken for classes


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
    fallback = decimal or cells.decimal_mark(named.values(), ".")
    numbers = cells.read_numbers(there, decimal, fallback)
    share = 1.0 - float(numbers.bad.mean())
    if cells.read_flags(there) is not None:
        share = 0.0
    labels = len(set(cells.texts(there)))
    why = ""
    if task is None:
        task, why = _guess_task(name, there, numbers, share, labels)
    if task == "classification":
        _refuse_classes(name, there, numbers, share, labels, said=not why)
        return Target(name, task, why, notes=_about_classes(name, there))
    require_numbers(name, column, cells.read_numbers(column, decimal, fallback), "the target")
    if len(numbers.units) > 1:
        raise TableError(
            f"the target {name!r} mixes units ({some(numbers.units)}); bring it to one of them."
        )
    require_moderate(name, numbers.values)
    if labels == 1:
        raise TableError(f"the target {name!r} is {there[0]} in every row; there is nothing to learn.")
    notes = [about_numbers(name, numbers)] if numbers.units or numbers.grouped else []
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
    mark = decimal or cells.decimal_mark([column]) or cells.decimal_mark(named.values(), target.mark)
    numbers = cells.read_numbers(column, mark if mark == "," else decimal, mark)
    require_numbers(target.name, column, numbers, "the target")
    return rows, numbers.values[rows]


def has_long_tail(values: Any) -> bool:
    """Whether numbers are positive and skewed, and their logarithms much less so."""
    if np.ndim(values) != 1 or np.min(values) <= 0:
        return False
    skewness = _skewness(values)
    return skewness >= 1.0 and abs(_skewness(np.log(values))) <= 0.5 * skewness


def _skewness(values: Any) -> float:
    centered = values - np.mean(values)
    spread = np.std(values)
    return float(np.mean(centered**3) / spread**3) if spread > 0 else 0.0


def _about_classes(name: str, there: Any) -> tuple[str, ...]:
    counts = Counter(str(text) for text in cells.texts(there))
    single = [label for label, count in counts.items() if count == 1]
    if not single:
        return ()
    what = (
        f"class {single[0]!r} of {name!r} has"
        if len(single) == 1
        else (f"{len(single)} classes of {name!r} ({some(single)}) have")
    )
    return (f"{what} a single row, so that nothing can tell how well it is predicted",)


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

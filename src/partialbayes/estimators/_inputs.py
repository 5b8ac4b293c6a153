"""Inputs of an estimator: an array of numbers as it is, a table by its schema."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from datetime import date
from typing import Any

import numpy as np
from sklearn.utils.validation import check_array, check_consistent_length, validate_data

from partialbayes._utils.warn import warn
from partialbayes.errors import TableWarning
from partialbayes.estimators._checks import require_labels, require_real_table, validated
from partialbayes.estimators._encode import encode
from partialbayes.estimators._learn import learn
from partialbayes.estimators._schema import Encoded, Schema, as_columns


def inputs_of(estimator: Any, X: Any, *, reset: bool, schema: Schema | None = None) -> Any:  # noqa: N803
    """Inputs as numbers, one row per example; the estimator's ``schema_`` is learned or used.

    Args:
        estimator: Gets ``schema_`` (None for an array of numbers), and what scikit-learn sets.
        X: An array, or a table: a data frame or dictionary of columns with categories, booleans, dates
            and gaps.
        reset: Whether these are the rows to learn from.
        schema: What is known about the table; learned if None.

    Warns:
        TableWarning: Columns are left out; or cells that training did not see.
    """
    if isinstance(X, Encoded):
        return X.values
    if reset:
        if schema is None and is_table(X):
            schema = learn(X, leave_out_ids=False)
            _warn(note for note in schema.notes if "left out" in note)
        estimator.schema_ = schema
    is_mapping = isinstance(X, Mapping) and not hasattr(X, "toarray")
    has_names = is_mapping or bool(getattr(getattr(X, "dtype", None), "names", None))
    if getattr(estimator, "schema_", None) is None:
        if has_names:
            X = np.column_stack(list(as_columns(X).values()))  # noqa: N806
        return validated(estimator, X, reset=reset, dtype=np.float64)
    if not has_names:
        validate_data(estimator, X, reset=reset, skip_check_array=True)
    elif reset:  # scikit-learn knows no names but those of data frames
        estimator.feature_names_in_ = np.asarray(list(as_columns(X)), dtype=object)
        estimator.n_features_in_ = len(estimator.feature_names_in_)
    encoded = encode(X, estimator.schema_, one_hot=True)
    if not reset:
        _warn(encoded.notes)
    return encoded.values


def pair_of(
    estimator: Any,
    X: Any,  # noqa: N803
    y: Any,
    *,
    reset: bool,
    schema: Schema | None = None,
    **of_targets: Any,
) -> tuple[Any, Any]:
    """Inputs and targets, checked; the rest is scikit-learn's ``y_numeric`` and ``multi_output``."""
    numbers_of_y = of_targets.get("y_numeric", False)
    if not numbers_of_y:
        require_labels("y", y)
    if schema is None and not is_table(X) and (reset or getattr(estimator, "schema_", None) is None):
        if reset:
            estimator.schema_ = None
        return validated(estimator, X, y, reset=reset, dtype=np.float64, **of_targets)
    require_real_table("y", y)
    y = check_array(
        y,
        ensure_2d=False,
        dtype=np.float64 if numbers_of_y else None,
        input_name="y",
        estimator=estimator,
    )
    if not (y.ndim == 2 and of_targets.get("multi_output", False)):
        y = np.ravel(y)
    inputs = inputs_of(estimator, X, reset=reset, schema=schema)
    check_consistent_length(inputs, y)
    return inputs, y


def is_table(X: Any) -> bool:  # noqa: N803
    """Whether there is anything in it that is not a number: texts, categories, dates, gaps."""
    if hasattr(X, "toarray"):  # sparse; scikit-learn says that it is not taken
        return False
    if isinstance(X, Mapping):
        return True
    if hasattr(X, "columns") and hasattr(X, "__getitem__"):
        return not all(_is_plain(np.asarray(column)) for column in as_columns(X).values())
    try:
        array = np.asarray(X)
    except (TypeError, ValueError):
        return False
    if array.dtype.names:
        return True
    if array.ndim != 2 or array.size == 0:
        return False
    if array.dtype.kind == "O":
        known = (str, numbers.Number, date, np.datetime64, np.bool_, type(None))
        odd = any(cell is None or isinstance(cell, str | date) or cell != cell for cell in array.flat)
        return odd and all(isinstance(cell, known) for cell in array.flat)
    return array.dtype.kind == "f" and bool(np.isnan(array).any()) and not bool(np.isinf(array).any())


def _is_plain(column: Any) -> bool:
    return column.dtype.kind in "biu" or (column.dtype.kind == "f" and not bool(np.isnan(column).any()))


def _warn(notes: Any) -> None:
    for note in notes:
        warn(f"{note}.", TableWarning)

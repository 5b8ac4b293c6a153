"""Checks of an estimator's settings and tables, before anything is computed."""

from __future__ import annotations

import threading
import weakref
from typing import Any

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, validate_data

from partialbayes._utils.checks import (
    require_non_negative,
    require_positive,
    require_positive_int,
    require_real,
)
from partialbayes._utils.forks import require_not_forked
from partialbayes.estimators._methods import require_method
from partialbayes.estimators._recipe import EFFORTS

_MOST_HELD_OUT = 0.9
_locks: weakref.WeakKeyDictionary[Any, threading.RLock] = weakref.WeakKeyDictionary()
_access = threading.Lock()


def lock_of(estimator: Any) -> threading.RLock:
    """The lock that lets one thread at a time train an estimator; none of its attributes."""
    with _access:
        return _locks.setdefault(estimator, threading.RLock())


def validated(estimator: Any, inputs: Any, *targets: Any, **settings: Any) -> Any:
    """The tables as arrays, by scikit-learn, after what it would take without a word."""
    for name, table in zip(("X", "y"), (inputs, *targets), strict=False):
        require_real_table(name, table)
    return validate_data(estimator, inputs, *targets, **settings)


def require_real_table(name: str, table: Any) -> None:
    """Refuse masked entries, complex numbers and dates, which scikit-learn takes without a word."""
    if hasattr(table, "dtypes") and hasattr(table, "columns"):  # a data frame
        for column in table.columns:
            require_real(f"{name}, column {column!r},", np.zeros(0, _plain(table[column].dtype)))
    elif hasattr(table, "dtype"):
        require_real(name, table if isinstance(table, np.ndarray) else np.zeros(0, _plain(table.dtype)))


def require_labels(name: str, labels: Any) -> None:
    """Refuse rows without a label."""
    array = np.asarray(labels)
    missing = np.zeros(array.shape, bool)
    if array.dtype.kind == "O":
        missing = np.array([_is_missing(label) for label in array.flat], bool)
    elif array.dtype.kind in "fM":
        missing = np.isnan(array)
    if missing.any():
        raise ValueError(
            f"{name} contains NaN: row {int(np.argmax(missing))} has no label; drop such rows."
        )


def labels_of(groups: Any, rows: int) -> Any:
    """The group of each row, one label each."""
    array = np.asarray(groups)
    if array.shape != (rows,):
        raise ValueError(f"groups must hold one label for each of the {rows} rows, not {array.shape}.")
    require_labels("groups", array)
    return array


def _is_missing(label: Any) -> bool:
    try:
        return label is None or bool(label != label)
    except TypeError:  # what pandas has for a gap can be compared with nothing
        return True


def weights_of(sample_weight: Any, inputs: Any) -> Any:
    """A weight for each row, none negative; None if all count alike."""
    if sample_weight is None:
        return None
    if np.asarray(sample_weight).dtype.kind in "US":
        raise ValueError(f"sample_weight must be one number per row, not {sample_weight!r:.80}.")
    return _check_sample_weight(sample_weight, inputs, ensure_non_negative=True)


def require_settings(estimator: Any) -> None:
    """Refuse settings that no training could make sense of, by their names."""
    require_not_forked()
    sizes = () if estimator.hidden_layer_sizes is None else estimator.hidden_layer_sizes
    if isinstance(sizes, str) or not hasattr(sizes, "__len__"):
        raise ValueError(
            f"hidden_layer_sizes must be a sequence of whole numbers, such as (50, 50), not {sizes!r}."
        )
    for size in sizes:
        require_positive_int("every entry of hidden_layer_sizes", size, "the width of a layer.")
    require_method(estimator.method)
    require_positive_int("window_size", estimator.window_size, "rows that partial_fit remembers.")
    _require_effort(estimator.effort)
    if not isinstance(estimator.log_targets, bool | np.bool_ | None):
        raise ValueError(f"log_targets must be True, False or None, not {estimator.log_targets!r}.")
    if not isinstance(estimator.verbose, bool | np.bool_ | int | np.integer) or estimator.verbose < 0:
        raise ValueError(f"verbose must be True or False, not {estimator.verbose!r}.")
    if estimator.n_folds is not None:
        require_positive_int("n_folds", estimator.n_folds, "or None.")
        if estimator.n_folds < 2:
            raise ValueError(f"n_folds must be at least 2, not {estimator.n_folds!r}.")
    for name in ("num_particles", "batch_size", "max_iter", "n_iter_no_change"):
        if getattr(estimator, name) is not None:
            require_positive_int(name, getattr(estimator, name), "or None.")
    if estimator.n_jobs is not None and estimator.n_jobs != -1:
        require_positive_int("n_jobs", estimator.n_jobs, "-1 or None.")
    if estimator.learning_rate is not None:
        require_positive("learning_rate", estimator.learning_rate)
        if np.ndim(estimator.learning_rate):
            raise ValueError(f"learning_rate must be one number, not {estimator.learning_rate!r}.")
    for name in ("weight_decay", "validation_fraction"):
        if getattr(estimator, name) is not None:
            require_non_negative(name, getattr(estimator, name))
    if not estimator.validation_fraction <= _MOST_HELD_OUT:
        raise ValueError(
            f"validation_fraction must lie between 0 and {_MOST_HELD_OUT}, not "
            f"{estimator.validation_fraction!r}; 0.15 is the default."
        )
    replays = estimator.n_replays
    if isinstance(replays, bool) or not isinstance(replays, int | np.integer) or replays < 0:
        raise ValueError(f"n_replays must be a whole number of at least 0, not {replays!r}.")
    try:
        check_random_state(estimator.random_state)
    except ValueError as error:
        raise ValueError(f"random_state: {error}.") from None


def _require_effort(effort: Any) -> None:
    """Refuse an effort that is neither one of the names nor a number of seconds."""
    if isinstance(effort, str):
        if effort in EFFORTS:
            return
    elif isinstance(effort, int | float | np.number) and not isinstance(effort, bool):
        require_positive("effort in seconds", effort)
        return
    raise ValueError(f'effort must be "fast", "default", "best" or a number of seconds, not {effort!r}.')


def _plain(dtype: Any) -> Any:
    """The dtype of NumPy, where there is one; pandas has its own."""
    return dtype if isinstance(dtype, np.dtype) else getattr(dtype, "numpy_dtype", np.dtype(object))

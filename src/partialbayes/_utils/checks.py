"""Checks of arguments: each error names the argument, what was wrong and what to do."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PyTree

from partialbayes._utils.forks import require_not_forked


def require_positive(name: str, value: Any) -> None:
    """Refuse numbers that are not positive and finite; traced values pass unchecked."""
    if isinstance(value, jax.core.Tracer):
        return
    array = np.asarray(value)
    if not (np.issubdtype(array.dtype, np.number) and np.all(np.isfinite(array) & (array > 0))):
        raise ValueError(f"{name} must be positive and finite, not {value!r}.")


def require_probability(name: str, value: Any, remedy: str) -> None:
    """Refuse numbers outside (0, 1); traced values pass unchecked."""
    require_positive(name, value)
    if not isinstance(value, jax.core.Tracer) and not np.all(np.asarray(value) < 1):
        raise ValueError(f"{name} must be a probability below 1, not {value!r}; {remedy}")


def require_positive_int(name: str, value: Any, remedy: str) -> None:
    """Refuse anything but a whole number of at least one."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, not {value!r}; {remedy}")


def require_non_negative(name: str, value: Any) -> None:
    """Refuse anything but one finite number of at least 0."""
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float | np.number)
        or not 0 <= value < np.inf
    ):
        raise ValueError(f"{name} must be a finite number of at least 0, not {value!r}.")


def as_key(key: Key[Array, "*runs"] | int | np.integer) -> Key[Array, "*runs"]:
    """Return a typed key, made from a whole number where one is given."""
    require_not_forked()
    if isinstance(key, int | np.integer) and not isinstance(key, bool):
        if not -(2**31) <= key < 2**32:  # JAX would drop the rest, and take 2⁴⁰ + 3 for 3
            raise ValueError(f"key must be a whole number from -2**31 to 2**32 - 1, not {key!r}.")
        return jax.random.key(int(key))
    if not isinstance(key, jax.Array):
        raise ValueError(
            f"key must be a jax.random.key or a whole number, not {key!r:.80}; several keys are an "
            "array, such as jax.random.split(jax.random.key(0), 3)."
        )
    if not jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        raise ValueError(
            f"key must be a jax.random.key or a whole number, not an array of {key.dtype}; of a raw key "
            "jax.random.wrap_key_data makes one."
        )
    return key


def num_rows(name: str, tree: PyTree) -> int:
    """The common length of the leading axis of every array in the tree."""
    shapes = [np.shape(leaf) for leaf in jax.tree.leaves(tree)]
    if not shapes:
        raise ValueError(f"{name} holds no array; pass an array with one row per example.")
    if any(len(shape) == 0 for shape in shapes):
        raise ValueError(
            f"{name} must be an array with one row per example, but holds a scalar; turn a list into an "
            "array by numpy.asarray."
        )
    lengths = {shape[0] for shape in shapes}
    if len(lengths) > 1:
        raise ValueError(f"the arrays of {name} differ in length: {sorted(lengths)} rows.")
    if lengths == {0}:
        raise ValueError(f"{name} has no rows; at least one example is needed.")
    return shapes[0][0]


def require_instance(name: str, value: Any, kind: type, remedy: str) -> None:
    """Refuse an argument of another kind, where it is easily mistaken for one."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be a {kind.__name__}, not {value!r:.80}; {remedy}")


def require_real(name: str, tree: PyTree) -> None:
    """Refuse what NumPy would turn into numbers silently: masked entries, complex numbers, dates."""
    for leaf in jax.tree.leaves(tree):
        if isinstance(leaf, np.ma.MaskedArray) and np.ma.is_masked(leaf):
            raise ValueError(
                f"{name} has masked entries, whose mask would be ignored; drop those rows or fill "
                "the gaps by filled()."
            )
        dtype = leaf.dtype if isinstance(leaf, jax.Array) else np.asarray(leaf).dtype
        if np.issubdtype(dtype, np.complexfloating):
            raise ValueError(
                f"Complex data not supported: {name} must be real numbers, not {dtype}; pass real and "
                "imaginary parts."
            )
        if np.issubdtype(dtype, np.datetime64) or np.issubdtype(dtype, np.timedelta64):
            raise ValueError(
                f"{name} must be numbers, not {dtype}; turn dates into numbers first, such as days "
                "since the first of them."
            )


def require_numeric(name: str, tree: PyTree) -> None:
    """Refuse what is not real numbers that JAX can hold: text, dates, gaps, huge integers."""
    require_real(name, tree)
    for leaf in jax.tree.leaves(tree):
        array = leaf if isinstance(leaf, jax.Array) else np.asarray(leaf)
        dtype = array.dtype
        if not (np.issubdtype(dtype, np.number) or np.issubdtype(dtype, np.bool_)):
            raise ValueError(
                f"{name} must be numbers, not {dtype}; encode text and categories as numbers first."
            )
        if np.issubdtype(dtype, np.integer) and isinstance(array, np.ndarray) and array.size:
            _require_integers_fit(name, array)


def _require_integers_fit(name: str, array: Any) -> None:
    held = np.iinfo(jax.dtypes.canonicalize_dtype(array.dtype))
    for value in (array.min(), array.max()):
        if not held.min <= int(value) <= held.max:
            raise ValueError(
                f"{name} holds the whole number {value}, which does not fit {held.dtype}, integers of "
                "JAX; number identifiers from 0, or pass amounts as floats."
            )


def require_told_apart(name: str, tree: PyTree) -> None:
    """Refuse columns whose values become one and the same in the precision of the device.

    Such as 1e9 + z with z of order one: single precision has seven digits.
    """
    precision = np.finfo(jnp.result_type(float)).eps
    for leaf in jax.tree.leaves(tree):
        if isinstance(leaf, jax.Array) or np.asarray(leaf).dtype != np.float64 or precision < 1e-10:
            continue
        columns = np.asarray(leaf).reshape(len(leaf), -1)
        low, high = (edge(columns, axis=0) for edge in (np.fmin.reduce, np.fmax.reduce))
        magnitude = np.maximum(np.abs(low), np.abs(high))
        apart = high / 2 - low / 2  # halves, so that they cannot overflow
        lost = (apart < 50 * precision * magnitude) & (apart > 1e-13 * magnitude)
        if lost.any():
            column = int(np.argmax(lost))
            raise ValueError(
                f"{name} lie between {low[column]!r} and {high[column]!r} in column {column}: in single "
                "precision they are nearly the same. Subtract their mean first, in double precision."
            )


def require_finite(name: str, tree: PyTree, remedy: str) -> None:
    """Refuse NaN and infinity, naming the first row that holds one; traced values pass unchecked."""
    for leaf in jax.tree.leaves(tree):
        if isinstance(leaf, jax.core.Tracer):
            continue
        array = np.asarray(leaf)
        if not np.issubdtype(array.dtype, np.inexact):
            continue
        largest = np.finfo(jnp.result_type(float)).max
        bad = ~(np.abs(array) <= largest)
        if bad.any():
            row = int(np.argwhere(bad)[0][0])
            kind = "an infinite value"
            if np.isnan(array[bad]).any():
                kind = "NaN"
            elif np.isfinite(array[bad]).any():
                kind = f"values above {largest:.1e}, too large for single precision"
            raise ValueError(
                f"{name} contains {kind} ({int(bad.sum())} in all, the first in row {row}); {remedy}"
            )


def as_float_arrays(tree: PyTree) -> PyTree:
    """Arrays on the device; floating ones in JAX's default precision, others as they are."""

    def convert(leaf: Any) -> jax.Array:
        array = leaf if isinstance(leaf, jax.Array) else np.asarray(leaf)
        if np.issubdtype(array.dtype, np.floating):
            return jnp.asarray(array, jnp.result_type(float))
        return jnp.asarray(array)

    return jax.tree.map(convert, tree)

"""Check arguments; each error names the argument, the problem and the remedy."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PyTree

from partialbayes._utils.forks import require_not_forked


def require_positive(name: str, value: Any) -> None:
    """Require positive finite numbers; traced values are not checked."""
    if isinstance(value, jax.core.Tracer):
        return
    array = np.asarray(value)
    if not (np.issubdtype(array.dtype, np.number) and np.all(np.isfinite(array) & (array > 0))):
        raise ValueError(f"{name} must be positive and finite, not {value!r}.")


def require_probability(name: str, value: Any, remedy: str) -> None:
    """Require numbers in (0, 1); traced values are not checked."""
    require_positive(name, value)
    if not isinstance(value, jax.core.Tracer) and not np.all(np.asarray(value) < 1):
        raise ValueError(f"{name} must be a probability below 1, not {value!r}; {remedy}")


def require_positive_int(name: str, value: Any, remedy: str) -> None:
    """Require an integer of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, not {value!r}; {remedy}")


def require_non_negative(name: str, value: Any) -> None:
    """Require one finite number of at least 0."""
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float | np.number)
        or not 0 <= value < np.inf
    ):
        raise ValueError(f"{name} must be a finite number of at least 0, not {value!r}.")


def require_coverage(value: Any) -> None:
    """Require the probability that an interval or a set is to have."""
    is_number = isinstance(value, int | float | np.number) or getattr(value, "shape", None) == ()
    if not (is_number and 0.0 < value < 1.0):
        raise ValueError(f"coverage must lie strictly between 0 and 1, not {value!r}.")


def as_key(key: Key[Array, "*runs"] | int | np.integer) -> Key[Array, "*runs"]:
    """Return a typed key, made from an integer if one is given."""
    require_not_forked()
    if isinstance(key, int | np.integer) and not isinstance(key, bool):
        if not -(2**31) <= key < 2**32:  # JAX would keep only the low bits
            raise ValueError(f"key must be a whole number from -2**31 to 2**32 - 1, not {key!r}.")
        return jax.random.key(int(key))
    if not isinstance(key, jax.Array):
        raise ValueError(
            f"key must be a jax.random.key or a whole number, not {key!r:.80}; several keys are an "
            "array, such as jax.random.split(jax.random.key(0), 3)."
        )
    if not jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        raise ValueError(
            f"key must be a jax.random.key or a whole number, not an array of {key.dtype}; "
            "convert a raw key by jax.random.wrap_key_data."
        )
    return key


def num_rows(name: str, tree: PyTree) -> int:
    """Return the common length of the leading axis of all arrays."""
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
        raise ValueError(
            f"{name} has arrays that differ in length: {sorted(lengths)} rows; pass one row per example."
        )
    if lengths == {0}:
        raise ValueError(f"{name} has no rows; at least one example is needed.")
    return shapes[0][0]


def require_instance(name: str, value: Any, kind: type, remedy: str) -> None:
    """Require an instance of a type."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be a {kind.__name__}, not {value!r:.80}; {remedy}")


def require_real(name: str, tree: PyTree) -> None:
    """Reject masked entries, complex numbers and dates, which NumPy would convert silently."""
    for leaf in jax.tree.leaves(tree):
        if isinstance(leaf, np.ma.MaskedArray) and np.ma.is_masked(leaf):
            raise ValueError(f"{name} has masked entries; drop those rows or fill them by filled().")
        dtype = leaf.dtype if isinstance(leaf, jax.Array) else np.asarray(leaf).dtype
        if np.issubdtype(dtype, np.complexfloating):
            raise ValueError(
                f"Complex data not supported: {name} must be real numbers, not {dtype}; pass real and "
                "imaginary parts."
            )
        if np.issubdtype(dtype, np.datetime64) or np.issubdtype(dtype, np.timedelta64):
            raise ValueError(
                f"{name} must be numbers, not {dtype}; convert dates to numbers first, such as days "
                "since the first."
            )


def require_numeric(name: str, tree: PyTree) -> None:
    """Require real numbers that JAX can hold: no text, dates, masked entries or huge integers."""
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
                f"{name} holds the whole number {value}, which does not fit JAX's {held.dtype}; "
                "number identifiers from 0, or pass amounts as floats."
            )


def require_distinguishable(name: str, tree: PyTree) -> None:
    """Reject columns whose values coincide in the precision of the device.

    An example is 1e9 + z with z of order one: single precision has seven digits.
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
                f"{name} lie between {low[column]!r} and {high[column]!r} in column {column}, which "
                "single precision hardly distinguishes; subtract their mean first, in double precision."
            )


def require_finite(name: str, tree: PyTree, remedy: str) -> None:
    """Reject NaN and infinity, and name the first row with one; traced values are not checked."""
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
    """Convert leaves to JAX arrays, floating ones to the default precision."""

    def convert(leaf: Any) -> jax.Array:
        array = leaf if isinstance(leaf, jax.Array) else np.asarray(leaf)
        if np.issubdtype(array.dtype, np.floating):
            # JAX compiles a program for each shape to convert an array, and to take one without a dtype.
            kind = jnp.result_type(float)
            return jnp.asarray(array.astype(kind), kind)
        return jnp.asarray(array)

    return jax.tree.map(convert, tree)

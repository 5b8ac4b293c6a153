"""Checks of arguments: each error names the argument, what was wrong and what to do."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PyTree


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


def as_key(key: Key[Array, "*runs"] | int | np.integer) -> Key[Array, "*runs"]:
    """Return a typed key, made from a whole number where one is given."""
    return jax.random.key(key) if isinstance(key, int | np.integer) else key


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


def require_numeric(name: str, tree: PyTree) -> None:
    """Refuse text and mixed columns."""
    for leaf in jax.tree.leaves(tree):
        dtype = leaf.dtype if isinstance(leaf, jax.Array) else np.asarray(leaf).dtype
        if not (np.issubdtype(dtype, np.number) or np.issubdtype(dtype, np.bool_)):
            raise ValueError(
                f"{name} must be numbers, not {dtype}; encode text and categories as numbers first."
            )


def require_finite(name: str, tree: PyTree, remedy: str) -> None:
    """Refuse NaN and infinity, naming the first row that holds one; traced values pass unchecked."""
    for leaf in jax.tree.leaves(tree):
        if isinstance(leaf, jax.core.Tracer):
            continue
        array = np.asarray(leaf)
        if not np.issubdtype(array.dtype, np.inexact):
            continue
        bad = ~np.isfinite(array)
        if bad.any():
            row = int(np.argwhere(bad)[0][0])
            kind = "NaN" if np.isnan(array[bad]).any() else "an infinite value"
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

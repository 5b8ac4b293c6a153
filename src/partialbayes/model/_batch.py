"""Operations on a `Batch`: check, pad and cut rows of data."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from partialbayes._utils.checks import (
    as_float_arrays,
    num_rows,
    require_finite,
    require_instance,
    require_numeric,
    require_real,
    require_told_apart,
)
from partialbayes._utils.forks import require_not_forked
from partialbayes.parallel._sharding import replicate_row
from partialbayes.types import Batch, Model


def full_batch(inputs: PyTree, targets: PyTree) -> Batch:
    """All the data as one batch."""
    rows = num_rows("inputs", inputs)
    return Batch(inputs, targets, jnp.ones(rows, bool), jnp.ones((), jnp.result_type(float)))


def overwrite_masked_rows(batch: Batch) -> Batch:
    """The batch with a row that counts in place of those that do not.

    Whatever stands in a masked row, NaN even, can then reach neither values nor gradients.
    """
    counted = jnp.argmax(batch.mask)

    def fill(leaf: Array) -> Array:
        mask = jnp.expand_dims(batch.mask, tuple(range(1, leaf.ndim)))
        return jnp.where(mask, leaf, replicate_row(leaf, counted)[None])

    inputs, targets = jax.tree.map(fill, (batch.inputs, batch.targets))
    return batch._replace(inputs=inputs, targets=targets)


def as_batch(model: Model, data: Any, name: str, *, training: bool = False) -> Batch:
    """The data a user passed, checked against the model, on the device, as one batch.

    Args:
        model: The model that is to see them.
        data: A pair ``(inputs, targets)``, or a `Batch`, whose mask says which rows count.
        name: What to call them in an error: "data", "validation", …
        training: Whether they are all there is to train on, so that values which single precision
            cannot tell apart are refused.
    """
    require_not_forked()
    require_instance("model", model, Model, "make one by partial_bnn(network, ...).")
    if isinstance(data, Batch):
        checked_rows = as_batch(model, (data.inputs, data.targets), name, training=training)
        return checked_rows._replace(mask=jnp.asarray(data.mask))
    if not isinstance(data, tuple | list) or len(data) != 2:
        kind = type(data).__name__ + (f" of {len(data)}" if isinstance(data, tuple | list) else "")
        raise ValueError(f"{name} must be a pair (inputs, targets), not a {kind}.")
    inputs, targets = data
    rows, target_rows = num_rows(f"{name} inputs", inputs), num_rows(f"{name} targets", targets)
    if rows != target_rows:
        raise ValueError(
            f"{name} has {rows} rows of inputs but {target_rows} of targets; pass one target per row."
        )
    require_numeric(f"{name} inputs", inputs)
    require_finite(f"{name} inputs", inputs, "drop those rows or fill the gaps before training.")
    require_real(f"{name} targets", targets)
    if training:
        require_told_apart(f"{name} inputs", inputs)
        require_told_apart(f"{name} targets", targets)
    inputs = as_float_arrays(inputs)
    params = jax.eval_shape(model.init, jax.random.key(0))
    outputs = jax.eval_shape(model.outputs, params.phi, params.psi, inputs)
    try:
        return full_batch(inputs, model.likelihood.check(outputs, targets))
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def split_rows(batch: Batch, size: int) -> Batch:
    """The batch cut into pieces of so many rows, stacked on a leading axis; the last is padded."""
    rows = batch.mask.shape[0]
    count = -(-rows // size)

    def cut(leaf: Array) -> Array:
        padding = [(0, count * size - rows)] + [(0, 0)] * (leaf.ndim - 1)
        return jnp.pad(leaf, padding, mode="edge").reshape(count, size, *leaf.shape[1:])

    inputs, targets = jax.tree.map(cut, (batch.inputs, batch.targets))
    counted = jnp.pad(batch.mask, (0, count * size - rows)).reshape(count, size)
    return Batch(inputs, targets, counted, jnp.broadcast_to(batch.scale, (count,)))


def padded_size(rows: int) -> int:
    """The next power of two between 64 and 128, the next multiple of an eighth of one above.

    Data sets of similar sizes then have one shape, and share one compiled program.
    """
    power = max(64, 1 << max(rows - 1, 0).bit_length())
    step = power if power <= 128 else power // 8
    return -(-rows // step) * step


def rows_in_bucket(rows: int) -> int:
    """Return how many rows to predict at instead of ``rows``: powers of two, then `padded_size`."""
    return 1 << max(rows - 1, 0).bit_length() if rows <= 64 else padded_size(rows)


def pad_to(batch: Batch, rows: int) -> Batch:
    """The same batch with rows that do not count, up to a number of rows.

    By NumPy: on the device every length would be a program of its own.
    """
    missing = rows - batch.mask.shape[0]

    def pad(leaf: Any) -> Array:
        array = np.asarray(leaf)
        return jnp.asarray(np.concatenate([array, np.repeat(array[-1:], missing, axis=0)]))

    inputs, targets = jax.tree.map(pad, (batch.inputs, batch.targets))
    mask = np.concatenate([np.asarray(batch.mask), np.zeros(missing, bool)])
    return Batch(inputs, targets, jnp.asarray(mask), batch.scale)

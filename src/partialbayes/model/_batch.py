"""Check, pad and cut the rows of a `Batch`."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from partialbayes._utils.checks import (
    as_float_arrays,
    num_rows,
    require_distinguishable,
    require_finite,
    require_instance,
    require_numeric,
    require_real,
)
from partialbayes._utils.forks import require_not_forked
from partialbayes.parallel._sharding import replicate_row
from partialbayes.types import Batch, Model


def full_batch(inputs: PyTree, targets: PyTree) -> Batch:
    """Make one batch of all rows."""
    rows = num_rows("inputs", inputs)
    return Batch(inputs, targets, jnp.ones(rows, bool), jnp.ones((), jnp.result_type(float)))


def overwrite_masked_rows(batch: Batch) -> Batch:
    """Replace masked rows by a row that counts.

    The content of a masked row, even NaN, then reaches neither values nor gradients.
    """
    counted = jnp.argmax(batch.mask)

    def fill(leaf: Array) -> Array:
        mask = jnp.expand_dims(batch.mask, tuple(range(1, leaf.ndim)))
        return jnp.where(mask, leaf, replicate_row(leaf, counted)[None])

    inputs, targets = jax.tree.map(fill, (batch.inputs, batch.targets))
    return batch._replace(inputs=inputs, targets=targets)


def as_batch(model: Model, data: Any, name: str, *, training: bool = False) -> Batch:
    """Check data against a model and put them on the device as one batch.

    The data are a pair ``(inputs, targets)``, or a `Batch` with a mask of the rows that count; ``name``
    is theirs in error messages. With ``training``, values that single precision cannot distinguish are
    an error.
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
    require_finite(f"{name} inputs", inputs, "drop those rows or impute them before training.")
    require_real(f"{name} targets", targets)
    if training:
        require_distinguishable(f"{name} inputs", inputs)
        require_distinguishable(f"{name} targets", targets)
    inputs = as_float_arrays(inputs)
    params = jax.eval_shape(model.init, jax.random.key(0))
    outputs = jax.eval_shape(model.outputs, params.phi, params.psi, inputs)
    try:
        return full_batch(inputs, model.likelihood.check(outputs, targets))
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def split_rows(batch: Batch, size: int) -> Batch:
    """Cut a batch into pieces of ``size`` rows, stacked on a leading axis; the last is padded."""
    rows = batch.mask.shape[0]
    count = -(-rows // size)
    inputs, targets = jax.tree.map(partial(cut, size=size), (batch.inputs, batch.targets))
    counted = jnp.pad(batch.mask, (0, count * size - rows)).reshape(count, size)
    return Batch(inputs, targets, counted, jnp.broadcast_to(batch.scale, (count,)))


def cut(leaf: Array, size: int) -> Array:
    """Cut rows into pieces, stacked on a leading axis; the last one is padded with the last row."""
    count = -(-leaf.shape[0] // size)
    padding = [(0, count * size - leaf.shape[0])] + [(0, 0)] * (leaf.ndim - 1)
    return jnp.pad(leaf, padding, mode="edge").reshape(count, size, *leaf.shape[1:])


def padded_size(rows: int) -> int:
    """Round a number of rows up: to 64, 128, or a multiple of an eighth of the next power of two.

    Data sets of similar sizes then share one shape and one compiled program.
    """
    power = max(64, 1 << max(rows - 1, 0).bit_length())
    step = power if power <= 128 else power // 8
    return -(-rows // step) * step


def rows_in_bucket(rows: int) -> int:
    """Round a number of rows to predict up: to a power of two, then as `padded_size`."""
    return 1 << max(rows - 1, 0).bit_length() if rows <= 64 else padded_size(rows)


def pad_to(batch: Batch, rows: int) -> Batch:
    """Pad a batch with masked rows up to a number of rows.

    NumPy does it: on the device every length would compile a program.
    """
    missing = rows - batch.mask.shape[0]

    def pad(leaf: Any) -> Array:
        array = np.asarray(leaf)
        return jnp.asarray(np.concatenate([array, np.repeat(array[-1:], missing, axis=0)]))

    inputs, targets = jax.tree.map(pad, (batch.inputs, batch.targets))
    mask = np.concatenate([np.asarray(batch.mask), np.zeros(missing, bool)])
    return Batch(inputs, targets, jnp.asarray(mask), batch.scale)

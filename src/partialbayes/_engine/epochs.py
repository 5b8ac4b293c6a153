"""Cut epochs into batches of a static shape, and set N / M.

An epoch is a new permutation of *all* rows, cut into ⌈N/M⌉ batches whose sizes differ by at most
one. The shorter ones are padded by a masked row, so every row is used exactly once per epoch, and no
batch is a small, noisy remainder.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from partialbayes._utils.checks import require_positive_int
from partialbayes.parallel._sharding import DATA, axis_size, shard_data
from partialbayes.types import Batch, PRNGKey


def num_batches(rows: int, batch_size: int | None) -> int:
    """Return ⌈N/M⌉, after a check of the batch size."""
    if batch_size is None:
        return 1
    require_positive_int("batch_size", batch_size, f"there are {rows} rows of data.")
    if batch_size > rows:
        raise ValueError(
            f"batch_size is {batch_size}, but there are only {rows} rows of data; "
            f"use at most {rows}, or None for all of them at once."
        )
    return -(-rows // batch_size)


def permutation(key: PRNGKey, mask: Bool[Array, " row"]) -> Int[Array, " row"]:
    """Draw the order of the rows in an epoch; masked rows come last."""
    order = jax.random.permutation(key, jnp.arange(mask.shape[0], dtype=jnp.int32))
    return order[jnp.argsort(~mask[order], stable=True)]


def take(data: Batch, order: Int[Array, " row"], index: Int[Array, ""], batches: int) -> Batch:
    """Return batch number ``index`` of the ``batches`` of an epoch in this order."""
    rows = data.mask.sum(dtype=jnp.int32)  # the shapes allow for masked rows too
    short, longer = rows // batches, rows % batches
    size = short + (index < longer)
    start = index * short + jnp.minimum(index, longer)
    largest, parts = -(-order.shape[0] // batches), axis_size(DATA)
    # Masked rows make the size a multiple of the number of devices.
    places = shard_data(jnp.arange(-(-largest // parts) * parts, dtype=jnp.int32))
    chosen = order[jnp.minimum(start + places, rows - 1)]
    inputs, targets = jax.tree.map(lambda leaf: leaf[chosen], (data.inputs, data.targets))
    scale = rows.astype(data.scale.dtype) / size.astype(data.scale.dtype)
    return Batch(*shard_data((inputs, targets, (places < size) & data.mask[chosen])), scale)

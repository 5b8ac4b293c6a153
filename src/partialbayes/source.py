"""Where the batches of a run come from: data on the device, or a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax.sharding import Mesh

from partialbayes import loop
from partialbayes.batches import checked, compiled_take
from partialbayes.sharding import on, placed, rows_placed
from partialbayes.stream import Stream, read_ahead
from partialbayes.types import Algorithm, Batch, PRNGKey


class Source(NamedTuple):
    """What `fit` needs of the data.

    Attributes:
        num_rows: N.
        batch_size: M, or None for all rows at once.
        whole: All the data as one batch; None if they are streamed.
        start: ``(plan, key) -> carry`` before the first step.
        advance: ``(plan, key, validation, carry, begin, end) -> carry`` after the step ``end``.
    """

    num_rows: int
    batch_size: int | None
    whole: Batch | None
    start: Callable[[loop.Plan, PRNGKey], loop.Carry]
    advance: Callable[[loop.Plan, PRNGKey, Batch | None, loop.Carry, int, int], loop.Carry]


def source_of(
    algorithm: Algorithm, data: Any, batch_size: int | None, mesh: Mesh | None = None
) -> Source:
    """The source that the data a user passed make."""
    if isinstance(data, Stream):
        return _streamed(algorithm, data, batch_size, mesh)
    train = placed(mesh, checked(algorithm.model, data, "data"))
    return _on_device(algorithm, train, batch_size, mesh)


def _on_device(algorithm: Algorithm, train: Batch, batch_size: int | None, mesh: Mesh | None) -> Source:
    rows = train.mask.shape[0]

    def start(plan: loop.Plan, key: PRNGKey) -> loop.Carry:
        order = jnp.arange(rows, dtype=jnp.int32)
        with on(mesh):
            first = compiled_take(train, order, jnp.zeros((), jnp.int32), plan.batches)
            return loop.compiled_start(algorithm, plan, key, rows, first)

    def advance(
        plan: loop.Plan,
        key: PRNGKey,
        validation: Batch | None,
        carry: loop.Carry,
        begin: int,
        end: int,
    ) -> loop.Carry:
        with on(mesh):
            return loop.compiled_run(algorithm, plan, carry, key, train, validation, begin, end)

    return Source(rows, batch_size, train, start, advance)


def _streamed(algorithm: Algorithm, data: Stream, batch_size: int | None, mesh: Mesh | None) -> Source:
    if algorithm.finish is not None:
        raise ValueError("data: a second stage needs all the data at once; pass arrays, not a stream.")
    if batch_size not in (None, data.batch_size):
        raise ValueError(f"batch_size is {batch_size}, but the stream was made with {data.batch_size}.")
    batches: Iterator[Batch] | None = None

    def start(plan: loop.Plan, key: PRNGKey) -> loop.Carry:
        first = rows_placed(mesh, next(read_ahead(data, algorithm.model, 0)))
        with on(mesh):
            return loop.compiled_start(algorithm, plan, key, 0, first)

    def advance(
        plan: loop.Plan,
        key: PRNGKey,
        validation: Batch | None,
        carry: loop.Carry,
        begin: int,
        end: int,
    ) -> loop.Carry:
        nonlocal batches
        if batches is None:
            batches = read_ahead(data, algorithm.model, begin)
        for step in range(begin, end):
            batch = rows_placed(mesh, next(batches))
            with on(mesh):
                carry = loop.compiled_advance(algorithm, plan, carry, key, batch, validation, step)
        return carry

    return Source(data.num_rows, data.batch_size, None, start, advance)

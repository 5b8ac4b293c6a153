"""Where the batches of a run come from: data on the device, or read from outside one batch ahead."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import PyTree

from partialbayes._engine import compiled as loop
from partialbayes._engine.epochs import compiled_take, num_batches
from partialbayes._utils.checks import num_rows as count_rows
from partialbayes._utils.checks import require_positive_int
from partialbayes.model._batch import as_batch
from partialbayes.parallel._sharding import put_on_mesh, shard_rows, use_mesh
from partialbayes.types import Algorithm, Batch, Model, PRNGKey

pass


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
    if isinstance(data, DataSource):
        return _from_reader(algorithm, data, batch_size, mesh)
    train = put_on_mesh(mesh, as_batch(algorithm.model, data, "data"))
    return _from_arrays(algorithm, train, batch_size, mesh)


def _from_arrays(
    algorithm: Algorithm, train: Batch, batch_size: int | None, mesh: Mesh | None
) -> Source:
    rows = train.mask.shape[0]

    def start(plan: loop.Plan, key: PRNGKey) -> loop.Carry:
        order = jnp.arange(rows, dtype=jnp.int32)
        with use_mesh(mesh):
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
        with use_mesh(mesh):
            return loop.compiled_run(algorithm, plan, carry, key, train, validation, begin, end)

    return Source(rows, batch_size, train, start, advance)


def _from_reader(
    algorithm: Algorithm, data: DataSource, batch_size: int | None, mesh: Mesh | None
) -> Source:
    if algorithm.finish is not None:
        raise ValueError("data: a second stage needs all the data at once; pass arrays, not a stream.")
    if batch_size not in (None, data.batch_size):
        raise ValueError(f"batch_size is {batch_size}, but the stream was made with {data.batch_size}.")
    batches: Iterator[Batch] | None = None

    def start(plan: loop.Plan, key: PRNGKey) -> loop.Carry:
        first = shard_rows(mesh, next(read_ahead(data, algorithm.model, 0)))
        with use_mesh(mesh):
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
            batch = shard_rows(mesh, next(batches))
            with use_mesh(mesh):
                carry = loop.compiled_advance(algorithm, plan, carry, key, batch, validation, step)
        return carry

    return Source(data.num_rows, data.batch_size, None, start, advance)


class DataSource(NamedTuple):
    """Where batches come from; made by `data_source`.

    Attributes:
        batches: ``epoch -> iterable of (inputs, targets)``, the epochs counted from 0.
        num_rows: N, the rows of one epoch.
        batch_size: M, the most rows a batch may have.
    """

    batches: Callable[[int], Iterable[Any]]
    num_rows: int
    batch_size: int


def data_source(
    source: Any, *, batch_size: int, num_rows: int | None = None, seed: int = 0
) -> DataSource:
    """Batches from arrays on disk, or from anything that can be iterated over.

    Args:
        source: A pair ``(inputs, targets)`` of arrays that stay where they are, such as NumPy
            memory maps: each epoch reads the rows in a fresh order. Or a function from the number
            of the epoch to an iterable of pairs; or an object that can be iterated over anew each
            epoch. Those give ⌈num_rows / batch_size⌉ batches an epoch.
        batch_size: M, the most rows a batch may have; shorter ones are padded.
        num_rows: N, rows per epoch; known already for a pair of arrays.
        seed: Of the order of the rows of a pair of arrays.

    Raises:
        ValueError: ``num_rows`` is missing or wrong, or ``source`` is an iterator, which would be
            used up after one epoch.

    Example:
        >>> import numpy as np, partialbayes as pb
        >>> x, y = np.zeros((1000, 3), np.float32), np.zeros(1000, np.float32)
        >>> data = pb.training.data_source((x, y), batch_size=100)
    """
    require_positive_int("batch_size", batch_size, "rows per batch.")
    if isinstance(source, tuple):
        rows = count_rows("source", source)
        if num_rows not in (None, rows):
            raise ValueError(f"num_rows is {num_rows}, but the arrays of source have {rows} rows.")
        count = num_batches(rows, batch_size)

        def shuffled(epoch: int) -> Iterator[PyTree]:
            order = np.random.default_rng((seed, epoch)).permutation(rows)
            for chosen in np.array_split(order, count):
                # In the order of the file, which disks like; within a batch order has no meaning.
                places = np.sort(chosen)
                yield jax.tree.map(lambda leaf, places=places: np.asarray(leaf[places]), source)

        return DataSource(shuffled, rows, batch_size)
    if num_rows is None:
        raise ValueError("num_rows is needed: the rows of one epoch, for the weight of each batch.")
    require_positive_int("num_rows", num_rows, "the rows of one epoch.")
    if callable(source):
        return DataSource(source, num_rows, batch_size)
    if isinstance(source, Iterator):
        raise ValueError(
            "source is an iterator, which is used up after one epoch; pass a function from the epoch "
            "to a new one, for example lambda epoch: read_batches()."
        )
    return DataSource(lambda epoch: source, num_rows, batch_size)


def read_ahead(source: DataSource, model: Model, begin: int) -> Iterator[Batch]:
    """Checked and padded batches from step ``begin`` on, without end, one read ahead."""
    ready: queue.Queue[Batch | BaseException] = queue.Queue(maxsize=2)
    closed = threading.Event()

    def put(item: Batch | BaseException) -> None:
        while not closed.is_set():
            try:
                return ready.put(item, timeout=0.1)
            except queue.Full:
                continue

    def read() -> None:
        try:
            for batch in _batches(source, model, begin):
                put(batch)
                if closed.is_set():
                    return
        except BaseException as error:  # handed to the caller's thread, which raises it
            put(error)

    threading.Thread(target=read, daemon=True, name="partialbayes-stream").start()
    try:
        while True:
            item = ready.get()
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        closed.set()


def _batches(source: DataSource, model: Model, begin: int) -> Iterator[Batch]:
    count = num_batches(source.num_rows, source.batch_size)
    epoch, skip = divmod(begin, count)
    while True:
        number = 0
        for number, pair in enumerate(source.batches(epoch), start=1):
            if number > count:
                break
            if number > skip:
                yield _pad(source, model, pair, f"batch {number} of epoch {epoch + 1}")
        if number != count:
            told = f"more than {count}" if number > count else f"only {number}"
            raise ValueError(
                f"epoch {epoch + 1} of the stream has {told} batches; {count} are "
                f"expected of {source.num_rows} rows in batches of {source.batch_size}."
            )
        epoch, skip = epoch + 1, 0


def _pad(source: DataSource, model: Model, pair: Any, name: str) -> Batch:
    batch = as_batch(model, pair, name)
    rows = batch.mask.shape[0]
    if rows > source.batch_size:
        raise ValueError(f"{name} has {rows} rows, more than batch_size={source.batch_size}.")
    missing = source.batch_size - rows

    def pad(leaf: Any) -> Any:
        return jnp.concatenate([leaf, jnp.repeat(leaf[-1:], missing, axis=0)])

    inputs, targets = jax.tree.map(pad, (batch.inputs, batch.targets))
    mask = jnp.arange(source.batch_size) < rows
    return Batch(inputs, targets, mask, jnp.asarray(source.num_rows / rows, batch.scale.dtype))

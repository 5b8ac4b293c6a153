"""The sources of batches: arrays on the device, a stream from outside, a window of rows.

A source provides the compiled loop with rows on the device, and the steps they are for (`pieces`).
Inside the loop its `draw` makes the batch of each step from them. Arrays are provided once for all
steps; a stream one batch at a time, read one ahead; a window whenever rows have arrived.
"""

from __future__ import annotations

import hashlib
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Int, PyTree

from partialbayes._engine.compiled import Draw
from partialbayes._engine.epochs import num_batches, permutation, take
from partialbayes._engine.streams import Stream, stream_key
from partialbayes._utils.checks import num_rows as count_rows
from partialbayes._utils.checks import require_positive_int
from partialbayes.io._pytree_file import fingerprint
from partialbayes.model._batch import as_batch
from partialbayes.parallel._sharding import put_on_mesh, shard_rows
from partialbayes.types import Batch, Model, PRNGKey


@dataclass(frozen=True)
class Shuffled:
    """Batches cut from all the rows, in a new order each epoch."""

    batches: int

    def order(self, rows: Batch) -> Int[Array, " row"]:
        """Return the order before the first epoch."""
        return jnp.arange(rows.mask.shape[0], dtype=jnp.int32)

    def __call__(
        self, key: PRNGKey, rows: Batch, order: Int[Array, " row"], step: Int[Array, ""]
    ) -> tuple[Batch, Int[Array, " row"]]:
        """Return the batch of a step, and the order of its epoch."""
        epoch, index = step // self.batches, step % self.batches
        key_epoch = stream_key(key, Stream.ORDER, epoch)
        order = jax.lax.cond(index == 0, lambda: permutation(key_epoch, rows.mask), lambda: order)
        return take(rows, order, index, self.batches), order


@dataclass(frozen=True)
class Given:
    """The rows are the batch."""

    def order(self, rows: Batch) -> tuple[()]:
        """Return an empty tuple: nothing is carried."""
        return ()

    def __call__(
        self, key: PRNGKey, rows: Batch, order: tuple[()], step: Int[Array, ""]
    ) -> tuple[Batch, tuple[()]]:
        """Return the rows."""
        return rows, ()


@dataclass(frozen=True)
class Replayed:
    """Slices of one permutation of a window that may still be filling, one per step from step 1."""

    batch_size: int

    def order(self, rows: Batch) -> Int[Array, " row"]:
        """Return the order before the first replay."""
        return jnp.arange(rows.mask.shape[0], dtype=jnp.int32)

    def __call__(
        self, key: PRNGKey, rows: Batch, order: Int[Array, " row"], step: Int[Array, ""]
    ) -> tuple[Batch, Int[Array, " row"]]:
        """Return a batch of rows, none of which is used twice before all have been used once."""
        key_order = stream_key(key, Stream.REPLAY)
        order = jax.lax.cond(step == 1, lambda: permutation(key_order, rows.mask), lambda: order)
        present = rows.mask.sum()
        places = (step - 1) * self.batch_size + jnp.arange(self.batch_size)
        chosen = order[places % present]
        inputs, targets = jax.tree.map(lambda leaf: leaf[chosen], (rows.inputs, rows.targets))
        # A short memory counts for no more than its rows.
        scale = jnp.maximum(present.astype(rows.scale.dtype) / self.batch_size, 1.0)
        return Batch(inputs, targets, jnp.arange(self.batch_size) < present, scale), order


@runtime_checkable
class Source(Protocol):
    """The interface of the data to the engine.

    Attributes:
        batches: Number of batches per epoch.
        draw: The function that makes the batch of a step from the rows, inside the compiled loop.
        whole: All the data as one batch; None if they are never all in memory.
        identity: The identity of the data, for checkpoints.
    """

    batches: int
    draw: Draw
    whole: Batch | None

    @property
    def identity(self) -> Any: ...

    def peek(self, begin: int) -> Any:
        """Return the rows of step ``begin``."""

    def pieces(self, begin: int, end: int) -> Iterator[tuple[Any, int, int]]:
        """Yield rows, with the first step and the end of the steps to be taken on them."""


def source_of(model: Model, data: Any, batch_size: int | None, mesh: Mesh | None = None) -> Source:
    """Return the source of the data a user passed."""
    if isinstance(data, DataSource):
        if batch_size not in (None, data.batch_size):
            raise ValueError(
                f"batch_size is {batch_size}, but the stream was made with {data.batch_size}."
            )
        return Reader(data, model, mesh)
    return Arrays(put_on_mesh(mesh, as_batch(model, data, "data", training=True)), batch_size)


class Arrays:
    """Rows that are all on the device; those of several runs have a leading axis of runs."""

    def __init__(self, rows: Batch, batch_size: int | None) -> None:
        self.whole: Batch | None = rows
        self.batches = num_batches(rows.mask.shape[-1], batch_size)
        self.draw: Draw = Shuffled(self.batches)
        self._rows = rows

    @property
    def identity(self) -> Any:
        """Digest of all values."""
        return fingerprint(self._rows)

    def peek(self, begin: int) -> Batch:
        """Return all rows."""
        return self._rows

    def pieces(self, begin: int, end: int) -> Iterator[tuple[Batch, int, int]]:
        """Yield all rows, for all steps at once."""
        yield self._rows, begin, end


class Reader:
    """Batches read from outside, one ahead of the step that needs it."""

    whole: Batch | None = None

    def __init__(self, data: DataSource, model: Model, mesh: Mesh | None) -> None:
        self.batches = num_batches(data.num_rows, data.batch_size)
        self.draw: Draw = Given()
        self._data, self._model, self._mesh = data, model, mesh
        self._reading: Iterator[Batch] | None = None
        self._next: Batch | None = None

    @property
    def identity(self) -> Any:
        """Identity of a stream, as far as known without reading it."""
        return [self._data.num_rows, self._data.batch_size, self._data.identity]

    def peek(self, begin: int) -> Batch:
        """Start to read at this step, and keep the batch for it."""
        if self._next is None:
            if self._reading is None:
                self._reading = read_ahead(self._data, self._model, begin)
            self._next = shard_rows(self._mesh, next(self._reading))
        return self._next

    def pieces(self, begin: int, end: int) -> Iterator[tuple[Batch, int, int]]:
        """Yield one batch per step; without steps the next batch, so that it can be compiled for."""
        if begin == end:
            yield self.peek(begin), begin, end
        for step in range(begin, end):
            batch, self._next = self.peek(step), None
            yield batch, step, step + 1


class DataSource(NamedTuple):
    """A source of batches; `data_source` makes it.

    Attributes:
        batches: ``epoch -> iterable of (inputs, targets)``, with epochs counted from 0.
        num_rows: N, the number of rows of one epoch.
        batch_size: M, the most rows of a batch.
        identity: A digest that distinguishes the data from data of the same size, so that a run is not
            resumed with different data.
    """

    batches: Callable[[int], Iterable[Any]]
    num_rows: int
    batch_size: int
    identity: str = ""


def data_source(
    source: Any, *, batch_size: int, num_rows: int | None = None, seed: int = 0
) -> DataSource:
    """Make a source of batches from arrays on disk, or from any iterable.

    Args:
        source: A pair ``(inputs, targets)`` of arrays that are not copied, such as NumPy
            memory maps: each epoch reads the rows in a new order. Or a function from the number
            of the epoch to an iterable of pairs; or an object that can be iterated over again each
            epoch. These must yield ⌈num_rows / batch_size⌉ batches per epoch.
        batch_size: M, the most rows of a batch; shorter batches are padded.
        num_rows: N, the number of rows per epoch; not needed for a pair of arrays.
        seed: The seed of the order of the rows, for a pair of arrays.

    Returns:
        The source, to pass to `fit` as ``data``.

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
                # In the order of the file, which is faster; the order within a batch has no effect.
                places = np.sort(chosen)
                yield jax.tree.map(lambda leaf, places=places: np.asarray(leaf[places]), source)

        return DataSource(shuffled, rows, batch_size, _sketch(source, seed))
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


def _sketch(arrays: PyTree, seed: int) -> str:
    """Digest the shapes and a few rows; all rows may be larger than memory."""
    digest = hashlib.sha256(str(seed).encode())
    for leaf in jax.tree.leaves(arrays):
        places = np.unique(np.linspace(0, leaf.shape[0] - 1, 16).astype(int))
        some = np.ascontiguousarray(leaf[places])
        digest.update(f"{leaf.dtype}{leaf.shape}".encode() + some.tobytes())
    return digest.hexdigest()[:16]


def read_ahead(source: DataSource, model: Model, begin: int) -> Iterator[Batch]:
    """Yield checked and padded batches from step ``begin`` on, without end, one read ahead."""
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
            found = f"more than {count}" if number > count else f"only {number}"
            raise ValueError(
                f"epoch {epoch + 1} of the stream has {found} batches; {count} are "
                f"expected for {source.num_rows} rows in batches of {source.batch_size}."
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

"""Online learning: particles and ψ are updated with new data, in bounded time and memory.

An online state keeps the last W rows. New rows replace the oldest. Then the algorithm takes one step on
the new rows and a few on rows from memory, with N = min(rows seen, W) in place of the size of a data
set.

New rows displace the rows they replace: if R of N rows are replaced, the fraction R/N is forgotten;
while the memory fills, it is zero. Rows from memory displace themselves, the fraction M/N, as in
training. They are slices of one permutation of the memory per update, so no row is used twice before
all have been used once. With kernels that forget (`transport`, `forgetting`) the particles stay near
the posterior of the rows in memory, and replaced rows fade over a few updates: it is not known which
of the old rows a fraction was learned from. The particles follow data that drift, and W determines how
closely.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from partialbayes._engine.checkpoints import lock_file
from partialbayes._engine.compiled import step_on
from partialbayes._engine.interrupts import uninterrupted
from partialbayes._engine.sources import Given, Replayed
from partialbayes._engine.streams import salt
from partialbayes._utils.checks import as_key, require_instance, require_positive_int
from partialbayes.errors import CheckpointError, TrainingDivergedError
from partialbayes.io._pytree_file import load_tree, save_tree
from partialbayes.model._batch import as_batch, pad_to, padded_size
from partialbayes.prediction._predict import as_posterior
from partialbayes.results import Fit
from partialbayes.types import Algorithm, Batch, Info, Posterior, PRNGKey, Report, Seed, trains

__all__ = ["OnlineState", "restore", "save", "start", "update"]


class OnlineState(NamedTuple):
    """A model that learns from a stream; `start` makes it, and `online.update` updates it.

    Attributes:
        algorithm: The method.
        state: The state of the method.
        memory: The last W rows; the mask is true for rows that are filled.
        seen: Number of rows seen so far.
        key: The random key; `online.update` makes a new one from it.
    """

    algorithm: Algorithm
    state: Any
    memory: Batch
    seen: int
    key: PRNGKey

    def __repr__(self) -> str:
        rows = self.memory.mask.shape[0]
        return f"OnlineState({self.seen} rows seen, the last {rows} remembered,\n    {self.algorithm!r})"

    @property
    def posterior(self) -> Posterior:
        """ψ and the particles at present."""
        return self.algorithm.posterior(self.state)


def start(
    algorithm: Algorithm,
    data: Any,
    *,
    window_size: int = 1000,
    posterior: Posterior | Fit | None = None,
    key: Seed = 0,
) -> OnlineState:
    """Start learning from a stream.

    Args:
        algorithm: The method; ``ohsmc(model)`` is made for it.
        data: A pair ``(inputs, targets)``: the training data of ``posterior``, of which the last W rows
            are kept; or, without ``posterior``, the first rows of the stream, with which the first
            `online.update` is made.
        window_size: W, the number of rows to keep: about as many as it takes the data to drift.
        posterior: What `fit` returned, or the posterior in it; None to start from scratch.
        key: A ``jax.random.key``, or an integer to make one from.

    Returns:
        The state, to pass to `online.update`.

    Raises:
        ValueError: The method cannot continue from a posterior.

    Example:
        >>> import jax.numpy as jnp, partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 5, 1]), "layers/1/*", pb.gaussian())
        >>> algorithm = pb.ohsmc(model, num_particles=10)
        >>> x = jnp.linspace(-1.0, 1.0, 8)[:, None]
        >>> online = pb.online.start(algorithm, (x, x), window_size=16)
        >>> online.seen
        8
    """
    require_instance("algorithm", algorithm, Algorithm, "for example ohsmc(model).")
    require_positive_int("window_size", window_size, "the number of rows to keep.")
    posterior = None if posterior is None else as_posterior(posterior)
    batch = as_batch(algorithm.model, data, "data")
    rows = batch.mask.shape[0]
    blank = blank_state(algorithm, batch, window_size, posterior, key)
    if posterior is None:
        return update(blank, data)[0]

    def fill(leaf: Array) -> Array:
        # The oldest row is where the next new one goes.
        kept = jnp.roll(leaf[-window_size:], rows % window_size if rows > window_size else 0, axis=0)
        return jnp.concatenate([kept, jnp.repeat(kept[-1:], window_size - kept.shape[0], axis=0)])

    inputs, targets = jax.tree.map(fill, (batch.inputs, batch.targets))
    kept = Batch(inputs, targets, jnp.arange(window_size) < rows, batch.scale)
    return blank._replace(memory=kept, seen=rows)


def blank_state(
    algorithm: Algorithm, like: Batch, window_size: int, posterior: Posterior | None, key: Seed
) -> OnlineState:
    """Return a state with an empty memory; only the shapes of ``like`` are used."""
    key_start, key_online = jax.random.split(salt(as_key(key)))
    state = jax.jit(algorithm.init)(key_start)
    if posterior is not None:
        state = _start_from(algorithm, state, posterior)

    def empty(leaf: Array) -> Array:
        return jnp.zeros((window_size, *leaf.shape[1:]), leaf.dtype)

    inputs, targets, mask = jax.tree.map(empty, like[:3])
    return OnlineState(algorithm, state, Batch(inputs, targets, mask, like.scale), 0, key_online)


def update(
    online: OnlineState, new_data: Any, *, num_replays: int = 10, batch_size: int = 32
) -> tuple[OnlineState, dict[str, Float[Array, " step"]]]:
    """Update the model with new rows: one step on them, then some on rows from memory.

    The cost depends on the number of new rows, ``num_replays`` and ``batch_size``, never on how many
    rows have been seen.

    Args:
        online: The state, from `start` or the last `online.update`.
        new_data: A pair ``(inputs, targets)``, with at most as many rows as the memory holds.
        num_replays: Number of steps on rows from memory; with 0 every row is used exactly once.
        batch_size: Number of rows in each of those steps.

    Returns:
        The new state, and the values that each step reported, such as the loss.

    Raises:
        TrainingDivergedError: The new rows would make the loss or the state NaN or infinite.
            ``online`` is unchanged and can be used further.

    Example:
        >>> import partialbayes as pb  # online and x as in the example of online.start
        >>> online, info = pb.online.update(online, (x, x**2), num_replays=2)
        >>> online.seen, info["loss"].shape
        (16, (3,))
    """
    require_instance("online", online, OnlineState, "make one by online.start(algorithm, data).")
    require_positive_int("batch_size", batch_size, "rows per step.")
    if isinstance(num_replays, bool) or not isinstance(num_replays, int | np.integer) or num_replays < 0:
        raise ValueError(f"num_replays must be a whole number of at least 0, not {num_replays!r}.")
    batch = as_batch(online.algorithm.model, new_data, "new_data")
    capacity, rows = online.memory.mask.shape[0], int(batch.mask.sum())
    if rows > capacity:
        raise ValueError(
            f"new_data has {rows} rows, but the memory holds {capacity}; pass fewer rows at a time, or "
            "make the memory larger."
        )
    # A copy: after a rejected update the next one begins with the same key.
    key, key_update = jax.random.split(jax.random.clone(online.key))  # type: ignore[no-untyped-call]
    with uninterrupted():
        state, memory, infos, is_sound = jax.block_until_ready(  # type: ignore[no-untyped-call]
            _update(
                online.algorithm,
                int(num_replays),
                int(batch_size),
                online.state,
                online.memory,
                pad_to(batch, padded_size(batch.mask.shape[0])),
                jnp.asarray(online.seen % capacity, jnp.int32),
                key_update,
            )
        )
    if not is_sound:
        raise TrainingDivergedError(
            online.seen + rows,
            None,
            "Check the scale of the new rows and remove those that cannot be right, or use a smaller "
            "learning rate.",
            "new_data would make the loss or the state NaN or infinite, so the update is refused; the "
            "state before it is still valid.",
        )
    return OnlineState(online.algorithm, state, memory, online.seen + rows, key), infos


@partial(jax.jit, static_argnames=("algorithm", "num_replays", "batch_size"))
def _update(
    algorithm: Algorithm,
    num_replays: int,
    batch_size: int,
    state: Any,
    memory: Batch,
    new: Batch,
    place: Int[Array, ""],
    key: PRNGKey,
) -> tuple[Any, Batch, Report, Bool[Array, ""]]:
    before = state
    capacity = memory.mask.shape[0]
    # Masked rows are not written.
    offsets = jnp.cumsum(new.mask) - 1
    places = jnp.where(new.mask, (place + offsets) % capacity, capacity)

    def write(kept: Array, rows: Array) -> Array:
        return kept.at[places].set(rows, mode="drop")

    inputs, targets = jax.tree.map(write, (memory.inputs, memory.targets), (new.inputs, new.targets))
    held, arrived = memory.mask.sum(), new.mask.sum()
    memory = Batch(inputs, targets, memory.mask.at[places].set(True, mode="drop"), memory.scale)
    present = memory.mask.sum()
    filled = present.astype(memory.scale.dtype)
    pushed_out = (held + arrived - present).astype(filled.dtype) / jnp.maximum(held, 1)
    first = new._replace(scale=filled / arrived.astype(filled.dtype), forgotten=pushed_out)
    state, _, info = step_on(algorithm, Given(), key, first, state, (), jnp.int32(0))
    draw = Replayed(batch_size)

    def replay(carry: tuple[Any, Array], step: Int[Array, ""]) -> tuple[tuple[Any, Array], Info]:
        state, order, info = step_on(algorithm, draw, key, memory, *carry, step)
        return (state, order), info

    steps = jnp.arange(1, num_replays + 1, dtype=jnp.int32)
    (state, _), infos = jax.lax.scan(replay, (state, draw.order(memory)), steps)
    both = jax.tree.map(lambda one, more: jnp.concatenate([one[None], more]), info, infos)
    is_sound = _is_sound(algorithm, before, state) & jnp.isfinite(both.get("loss", filled)).all()
    return state, memory, both, is_sound


def _is_sound(algorithm: Algorithm, before: Any, after: Any) -> Bool[Array, ""]:
    """Return whether the state stayed finite; a log-weight may be −∞, but not all of them."""

    def is_bad(leaf: Array) -> Array:
        return jnp.isnan(leaf) | jnp.isposinf(leaf)

    pairs = zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True)
    sound = [~jnp.any(is_bad(new) & ~is_bad(old)) for old, new in pairs if trains(new)]
    posterior = algorithm.posterior(after)
    sound += [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(posterior.psi)]
    weighed = posterior.particles.log_weights > -jnp.inf
    values = jnp.where(weighed[..., None], posterior.particles.values, 0.0)
    return jnp.stack([*sound, weighed.any(), jnp.all(jnp.isfinite(values))]).all()


def save(path: str | Path, online: OnlineState) -> None:
    """Write an online state to a file, atomically, so that it can be resumed after a crash.

    Args:
        path: The file; an existing one is replaced.
        online: The state, from `start`, `online.update` or `restore`.

    Raises:
        CheckpointError: The file could not be written. An existing file is unchanged.

    Example:
        >>> import tempfile, partialbayes as pb  # online and the rest as in the example of online.start
        >>> path = tempfile.mkdtemp() + "/online.safetensors"
        >>> pb.online.save(path, online)
    """
    require_instance("online", online, OnlineState, "make one by online.start(algorithm, data).")
    with lock_file(path):
        arrays = (online.state, online.memory, online.key)
        save_tree(path, arrays, {"kind": "online", "seen": online.seen})


def restore(
    path: str | Path, algorithm: Algorithm, data: Any, *, window_size: int = 1000
) -> OnlineState:
    """Read an online state that `save` wrote; it continues exactly as if it had not been saved.

    Args:
        path: The file.
        algorithm: The method it was started with.
        data: A pair ``(inputs, targets)`` of any rows of the stream; only their shapes are used.
        window_size: W, as it was.

    Returns:
        The state.

    Raises:
        CheckpointError: The file is missing, damaged, or of a different method, model or window.

    Example:
        >>> import tempfile, partialbayes as pb  # online and the rest as in the example of online.start
        >>> path = tempfile.mkdtemp() + "/online.safetensors"
        >>> pb.online.save(path, online)
        >>> pb.online.restore(path, algorithm, (x, x), window_size=16).seen
        8
    """
    require_instance("algorithm", algorithm, Algorithm, "for example ohsmc(model).")
    require_positive_int("window_size", window_size, "the number of rows to keep.")
    like = blank_state(
        algorithm, as_batch(algorithm.model, data, "data"), window_size, None, jax.random.key(0)
    )
    arrays, description = load_tree(path, (like.state, like.memory, like.key))
    seen = description.get("seen")
    if description.get("kind") != "online" or not isinstance(seen, int):
        raise CheckpointError(f"{path} is not an online learner; use what online.save wrote.")
    state, memory, key = arrays
    return OnlineState(algorithm, state, memory, seen, key)


def _start_from(algorithm: Algorithm, state: Any, posterior: Posterior) -> Any:
    """Return the state with the ψ and particles of a posterior in it."""
    if algorithm.restart is None:
        raise ValueError(
            "posterior: this method cannot continue from a posterior (its `restart` is None); start it "
            "from scratch, without one."
        )
    mine = jax.eval_shape(algorithm.posterior, state)
    if jax.tree.map(jnp.shape, posterior) != jax.tree.map(jnp.shape, mine):
        raise ValueError(
            f"posterior has particles of shape {posterior.particles.values.shape}, but the algorithm's "
            f"have {mine.particles.values.shape}; use the num_particles and the model of the posterior."
        )
    return algorithm.restart(state, posterior)

"""Following a stream: particles and ψ go on with new data, in bounded time and memory.

An online state keeps the last W rows. New rows push out the oldest; then the algorithm takes one step on
the new rows and a few on rows drawn from the W. With N = min(rows seen, W) in place of the size of a
data set, `forgetting` holds the particles at the posterior of the rows in memory, while what has
been pushed out fades: data that drift are followed, and W says how closely.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from partialbayes._utils.checks import as_key, require_instance, require_positive_int
from partialbayes.model._batch import as_batch, pad_to, padded_size
from partialbayes.types import Algorithm, Batch, Info, Posterior, PRNGKey, Report, Seed

__all__ = [
    "OnlineState",
    "start",
    "update",
]


class OnlineState(NamedTuple):
    """A model that follows a stream; made by `start`, moved on by `online.update`.

    Attributes:
        algorithm: The method.
        state: Its state.
        memory: The last W rows; the mask says how many there are yet.
        seen: Rows seen so far.
        key: Of its random numbers; `online.update` makes a new one from it.
    """

    algorithm: Algorithm
    state: Any
    memory: Batch
    seen: int
    key: PRNGKey

    @property
    def posterior(self) -> Posterior:
        """ψ and the particles as they are now."""
        return self.algorithm.posterior(self.state)


def start(
    algorithm: Algorithm,
    data: Any,
    *,
    window_size: int = 1000,
    posterior: Posterior | None = None,
    key: Seed = 0,
) -> OnlineState:
    """Get ready to follow a stream.

    Args:
        algorithm: The method; ``ohsmc(model, kernel=forgetting("diagonal"))`` is made for it.
        data: A pair ``(inputs, targets)``: the training data of ``posterior``, of which the last
            W are remembered; or, from scratch, the first rows of the stream, which the first
            `online.update` is made with.
        window_size: W, the rows to remember: about as many as it takes the data to drift.
        posterior: Where to start from, as `fit` returned it; from scratch if None.
        key: A ``jax.random.key`` or a whole number to make one from.

    Raises:
        TypeError: ``algorithm`` is not an `Algorithm`.
        ValueError: ``window_size`` is not a whole number of at least 1, the data do not fit, or the
            method cannot go on from a posterior.

    Example:
        >>> import jax.numpy as jnp, partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 5, 1]), "layers/1/*", pb.gaussian())
        >>> algorithm = pb.ohsmc(model, num_particles=10, kernel=pb.kernels.forgetting("diagonal"))
        >>> x = jnp.linspace(-1.0, 1.0, 8)[:, None]
        >>> pb.online.start(algorithm, (x, x), window_size=16).seen
        8
    """
    require_instance("algorithm", algorithm, Algorithm, "for example ohsmc(model).")
    require_positive_int("window_size", window_size, "the rows to remember.")
    batch = as_batch(algorithm.model, data, "data")
    rows = batch.mask.shape[0]
    blank = blank_state(algorithm, batch, window_size, posterior, key)
    if posterior is None:
        return update(blank, data)[0]

    def fill(leaf: Array) -> Array:
        # The oldest row stands where the next new one goes.
        kept = jnp.roll(leaf[-window_size:], rows % window_size if rows > window_size else 0, axis=0)
        return jnp.concatenate([kept, jnp.repeat(kept[-1:], window_size - kept.shape[0], axis=0)])

    inputs, targets = jax.tree.map(fill, (batch.inputs, batch.targets))
    kept = Batch(inputs, targets, jnp.arange(window_size) < rows, batch.scale)
    return blank._replace(memory=kept, seen=rows)


def blank_state(
    algorithm: Algorithm,
    like: Batch,
    window_size: int,
    posterior: Posterior | None,
    key: Seed,
) -> OnlineState:
    """A state that remembers nothing yet; ``like`` is used for its shapes alone."""
    key = as_key(key)
    key_start, key_online = jax.random.split(key)
    state = _init(algorithm, key_start)
    if posterior is not None:
        state = _start_from(algorithm, state, posterior)

    def empty(leaf: Array) -> Array:
        return jnp.zeros((window_size, *leaf.shape[1:]), leaf.dtype)

    inputs, targets = jax.tree.map(empty, (like.inputs, like.targets))
    return OnlineState(
        algorithm, state, Batch(inputs, targets, jnp.zeros(window_size, bool), like.scale), 0, key_online
    )


@partial(jax.jit, static_argnames=("algorithm",))
def _init(algorithm: Algorithm, key: PRNGKey) -> Any:
    return algorithm.init(key)


def update(
    online: OnlineState, new_data: Any, *, num_replays: int = 10, batch_size: int = 32
) -> tuple[OnlineState, dict[str, Float[Array, " step"]]]:
    """Go on with new rows: one step on them, then some on rows from memory.

    The cost depends on the number of new rows, ``num_replays`` and ``batch_size``, never on how much
    has been seen.

    Args:
        online: From `start`, or the last `online.update`.
        new_data: A pair ``(inputs, targets)``; no more rows than the memory holds.
        num_replays: Steps on rows drawn from memory; with 0 every row is used exactly once.
        batch_size: Rows in each of those.

    Returns:
        The new state, and what each step reported (ESS, loss, …).

    Raises:
        ValueError: There are more new rows than the memory holds, or they do not fit the model.
        TypeError: ``starter`` is not from `start`.

    Example:
        >>> import jax.numpy as jnp, partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 5, 1]), "layers/1/*", pb.gaussian())
        >>> algorithm = pb.ohsmc(model, num_particles=10, kernel=pb.kernels.forgetting("diagonal"))
        >>> x = jnp.linspace(-1.0, 1.0, 8)[:, None]
        >>> online = pb.online.start(algorithm, (x, x), window_size=16)
        >>> online, info = pb.online.update(online, (x, x**2), num_replays=2)
        >>> online.seen, info["ess"].shape
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
    key, key_update = jax.random.split(online.key)
    state, memory, infos = _update(
        online.algorithm,
        int(num_replays),
        int(batch_size),
        online.state,
        online.memory,
        pad_to(batch, padded_size(batch.mask.shape[0])),
        jnp.asarray(online.seen % capacity, jnp.int32),
        key_update,
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
) -> tuple[Any, Batch, Report]:
    capacity = memory.mask.shape[0]
    # Rows that do not count are written nowhere.
    offsets = jnp.cumsum(new.mask) - 1
    places = jnp.where(new.mask, (place + offsets) % capacity, capacity)

    def write(kept: Array, rows: Array) -> Array:
        return kept.at[places].set(rows, mode="drop")

    inputs, targets = jax.tree.map(write, (memory.inputs, memory.targets), (new.inputs, new.targets))
    memory = Batch(inputs, targets, memory.mask.at[places].set(True, mode="drop"), memory.scale)
    filled = memory.mask.sum().astype(memory.scale.dtype)
    key_new, key_replay = jax.random.split(key)
    first = new._replace(scale=filled / new.mask.sum().astype(filled.dtype))
    state, info = algorithm.step(key_new, state, first)

    def replay(state: Any, key: PRNGKey) -> tuple[Any, Info]:
        key_rows, key_step = jax.random.split(key)
        chosen = jax.random.randint(key_rows, (batch_size,), 0, memory.mask.sum())
        inputs, targets = jax.tree.map(lambda leaf: leaf[chosen], (memory.inputs, memory.targets))
        # A short memory is not made to count for more than its rows.
        scale = jnp.maximum(filled / batch_size, 1.0)
        batch = Batch(inputs, targets, jnp.arange(batch_size) < filled, scale)
        return algorithm.step(key_step, state, batch)

    state, infos = jax.lax.scan(replay, state, jax.random.split(key_replay, num_replays))
    both = jax.tree.map(lambda one, more: jnp.concatenate([one[None], more]), info, infos)
    return state, memory, both


def _start_from(algorithm: Algorithm, state: Any, posterior: Posterior) -> Any:
    """The state with the ψ and particles of a posterior in it."""
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

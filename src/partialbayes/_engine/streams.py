"""The random streams of a run: each use of randomness has a name, and no two share a key.

A run folds a salt into its key. Keys that the user splits from the same key are then never those of the
run: `jax.random.split` and small `fold_in`s stay below the salt.
"""

from __future__ import annotations

from enum import IntEnum

import jax
from jaxtyping import Array, Int, Key

from partialbayes.types import PRNGKey

_SALT = 0x7062_6E6E


class Stream(IntEnum):
    """The use of a random number in a run. The numbers determine the bits of a run: only add to them."""

    INIT = 0
    ORDER = 1
    STEP = 2
    FINISH = 3
    SCORED_PARTICLES = 4
    SCORED_ROWS = 5
    REPLAY = 6


def salt(key: Key[Array, "*run"]) -> Key[Array, "*run"]:
    """Return the key of a run, or of each of several runs, made from the user's key."""
    folded = jax.random.fold_in
    return folded(key, _SALT) if key.ndim == 0 else jax.vmap(lambda one: folded(one, _SALT))(key)


def stream_key(key: PRNGKey, stream: Stream, number: Int[Array, ""] | int | None = None) -> PRNGKey:
    """Return the key of a stream of a run, or of one step (epoch, evaluation) of that stream."""
    own = jax.random.fold_in(key, int(stream))
    return own if number is None else jax.random.fold_in(own, number)

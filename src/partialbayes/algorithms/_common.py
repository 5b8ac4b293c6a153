"""How far a sampler moves at each step, and at which steps a snapshot is taken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from partialbayes._utils.checks import require_positive
from partialbayes.types import Batch, Scalar

Rate: TypeAlias = Callable[[Int[Array, ""], Batch], Scalar]
"""``(step, batch) -> rate``."""


def as_rate(rate: Any) -> Rate:
    """A rate from what a user may write.

    Args:
        rate: A positive number; an Optax schedule, called with the number of steps done; or None
            for 0.1 / N, because the gradient of a log-posterior grows with the number of data.
    """
    if rate is None:
        return lambda step, batch: 0.1 / (batch.scale * batch.mask.sum())
    if callable(rate):
        return lambda step, batch: jnp.asarray(rate(step), batch.scale.dtype)
    require_positive("rate", rate)
    return lambda step, batch: jnp.asarray(rate, batch.scale.dtype)


def require_delay(name: str, value: Any) -> None:
    """Refuse anything but a whole number of steps, zero included."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
        raise ValueError(f"{name} must be a whole number of steps, 0 or more, not {value!r}.")


def is_due(steps: Int[Array, ""], delay: int, every: int) -> Bool[Array, ""]:
    """Whether a snapshot is due now: ``delay + every`` steps in, and every so many from there."""
    return (steps > delay) & ((steps - delay) % every == 0)

"""What the algorithms share: the start of a cloud, the step of an optimizer, rates, snapshots."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Int

from partialbayes._utils.checks import require_positive
from partialbayes.types import Batch, Model, Particles, PRNGKey, Psi, Scalar
from partialbayes.weights import uniform_log_weights

Rate: TypeAlias = Callable[[Int[Array, ""], Batch], Scalar]
"""``(step, batch) -> rate``."""


Tree = TypeVar("Tree")


def default_optimizer(
    optimizer: optax.GradientTransformation | None,
) -> optax.GradientTransformation:
    """Return the optimizer given, or Adam at 0.01."""
    return optax.adam(0.01) if optimizer is None else optimizer


def start_cloud(model: Model, key: PRNGKey, num_particles: int) -> tuple[Psi, Particles]:
    """Return a fresh ψ, and equally weighted draws of the prior at it."""
    key_start, key_prior = jax.random.split(key)
    psi = model.init(key_start).psi
    values = model.sample_prior(key_prior, psi, num_particles)
    return psi, Particles(values, uniform_log_weights(num_particles))


def ascend(
    optimizer: optax.GradientTransformation, gradient: Tree, state: optax.OptState, psi: Tree
) -> tuple[Tree, optax.OptState]:
    """Take one step of an optimizer up a gradient.

    Args:
        optimizer: The Optax transformation; those descend, so the gradient is negated first.
        gradient: The gradient of what is to be maximized.
        state: The optimizer's state.
        psi: The parameters.

    Returns:
        The new parameters and the optimizer's new state.
    """
    updates, state = optimizer.update(jax.tree.map(jnp.negative, gradient), state, psi)
    moved: Tree = optax.apply_updates(psi, updates)
    return moved, state


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

"""Share initial clouds, optimizer steps, rates and snapshot times between algorithms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int

from partialbayes._utils.checks import require_positive
from partialbayes.types import Batch, Model, Params, Particles, Phi, Posterior, PRNGKey, Psi, Scalar
from partialbayes.weights import uniform_log_weights

Rate: TypeAlias = Callable[[Int[Array, ""], Batch], Scalar]
"""A function ``(step, batch) -> rate``."""


Tree = TypeVar("Tree")

_START = 0.05  # initial spread, relative to the scale of the weights


def default_optimizer(optimizer: optax.GradientTransformation | None) -> optax.GradientTransformation:
    """Return the optimizer, or Adam at 0.01, applied to the same tree in every algorithm.

    The tree is ``Params(phi, psi)``, with None as φ where particles carry it. Labels and masks that
    freeze part of the tree then work for every algorithm.
    """
    inner = optax.with_extra_args_support(optax.adam(0.01) if optimizer is None else optimizer)

    def as_params(tree: Any) -> Any:
        if isinstance(tree, Psi):
            return Params(None, tree)  # type: ignore[arg-type]
        return Params(getattr(tree, _beside_psi(tree)), tree.psi) if hasattr(tree, "psi") else tree

    def init(params: Any) -> optax.OptState:
        return inner.init(as_params(params))

    def update(gradient: Any, state: Any, params: Any = None, **others: Any) -> tuple[Any, Any]:
        updates, state = inner.update(as_params(gradient), state, as_params(params), **others)
        if isinstance(gradient, Psi):
            return updates.psi, state
        if hasattr(gradient, "psi"):
            updates = gradient._replace(psi=updates.psi, **{_beside_psi(gradient): updates.phi})
        return updates, state

    return optax.GradientTransformationExtraArgs(init, update)


def _beside_psi(tree: Any) -> str:
    """Return the name of the field beside ``psi`` in a pair."""
    (name,) = (field for field in tree._fields if field != "psi")
    return str(name)


def start_cloud(model: Model, key: PRNGKey, num_particles: int) -> tuple[Psi, Particles]:
    """Initialize ψ and equally weighted particles, from the prior or around trained weights."""
    key_start, key_draw = jax.random.split(key)
    phi, psi = model.init(key_start)
    if model.pretrained:
        noise = jax.random.normal(key_draw, (num_particles, phi.shape[0]), phi.dtype)
        values = phi[None, :] + start_scale(model, phi, psi)[None, :] * noise
    else:
        values = model.sample_prior(key_draw, psi, num_particles)
    return psi, Particles(values, uniform_log_weights(num_particles))


def start_scale(model: Model, phi: Phi, psi: Psi) -> Float[Array, " dim"]:
    """Compute the initial spread of particles around trained weights.

    It is a twentieth of the smaller of two lengths: the standard deviation of the prior, and the root
    mean square of the random weights of the same array. The particles then predict about as the network
    does.
    """
    variance = model.prior_moments(psi).variance
    of_prior = jnp.where(jnp.isfinite(variance), jnp.sqrt(variance), 1.0)
    sizes = [int(mask.sum()) for mask in model.split.masks]
    array_of = np.repeat(np.arange(len(sizes)), sizes)
    squares = jax.ops.segment_sum(jnp.square(phi), array_of, len(sizes))
    of_weights = jnp.sqrt(squares / np.maximum(sizes, 1))[array_of]
    # An array of zeros has no scale.
    return _START * jnp.where(of_weights > 0.0, jnp.minimum(of_prior, of_weights), of_prior)


def ascend(
    optimizer: optax.GradientTransformation, gradient: Tree, state: optax.OptState, psi: Tree
) -> tuple[Tree, optax.OptState]:
    """Take one step of an optimizer up a gradient.

    Args:
        optimizer: Optax transformation. It descends, so the gradient is negated first.
        gradient: Gradient of the objective to maximize.
        state: State of the optimizer.
        psi: The parameters.

    Returns:
        The new parameters and the new state of the optimizer.
    """
    updates, state = optimizer.update(jax.tree.map(jnp.negative, gradient), state, psi)
    moved: Tree = optax.apply_updates(psi, updates)
    return moved, state


def posterior_of(state: Any) -> Posterior:
    """Return the posterior of a state with fields ``psi`` and ``particles``."""
    return Posterior(state.psi, state.particles)


def restart_at(state: Any, posterior: Posterior) -> Any:
    """Put a posterior into a state with fields ``psi`` and ``particles``."""
    return state._replace(psi=posterior.psi, particles=posterior.particles)


def as_rate(rate: Any) -> Rate:
    """Convert a positive number, or an Optax schedule of the number of steps, to a rate."""
    if callable(rate):
        return lambda step, batch: jnp.asarray(rate(step), batch.scale.dtype)
    require_positive("rate", rate)
    return lambda step, batch: jnp.asarray(rate, batch.scale.dtype)


def require_delay(name: str, value: Any) -> None:
    """Require a non-negative integer number of steps."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
        raise ValueError(f"{name} must be a whole number of steps, 0 or more, not {value!r}.")


def is_due(steps: Int[Array, ""], delay: int, every: int) -> Bool[Array, ""]:
    """Return True after ``delay + every`` steps, and every ``every`` steps from then on."""
    return (steps > delay) & ((steps - delay) % every == 0)

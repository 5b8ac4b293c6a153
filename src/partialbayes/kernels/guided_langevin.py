"""Guided move: a Langevin step towards the batch, weighted back to a random walk.

The particles are to follow h = N(φ, v I). They are proposed, with g = ∇ log p(batch | φ), from

    q = N(φ + (v/2) g, v I),

and their weights corrected by log h − log q = (v/8) |g|² − ½ g·(φ' − φ).

The weighted particles have the law of a random walk of variance v, but sit where the batch is going
to give them weight.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from partialbayes.checks import require_positive
from partialbayes.kernels.differentiable import with_gradients
from partialbayes.noise import antithetic
from partialbayes.types import Move, Moved, Particles, PRNGKey, Target


def guided_langevin(variance: float | Float[Array, ""] | Float[Array, " dim"]) -> Move:
    """A random walk that looks at the batch first, with its importance correction.

    Args:
        variance: Variance (not standard deviation) of the random walk it stands for; a number or
            one per weight.

    Raises:
        ValueError: ``variance`` is not positive.

    Example:
        >>> import partialbayes as pb
        >>> kernel = pb.kernels.guided_langevin(0.01)
    """
    require_positive("variance", variance)

    def init(dim: int) -> PyTree:
        return ()

    def step(key: PRNGKey, particles: Particles, target: Target, state: PyTree) -> Moved:
        values = particles.values
        spread = jnp.broadcast_to(jnp.asarray(variance, values.dtype), values.shape[1:])[None, :]
        slope = jax.vmap(jax.grad(target.log_potential))(values)
        noise = antithetic(key, values.shape, values.dtype)
        shift = 0.5 * spread * slope + jnp.sqrt(spread) * noise
        log_correction = jnp.sum(spread * jnp.square(slope) / 8.0 - 0.5 * slope * shift, axis=1)
        return Moved(values + shift, log_correction, jnp.ones((), values.dtype), state)

    return with_gradients("guided_langevin", Move(init, step, keeps_target=False))

"""Unadjusted Langevin: φ' = φ + (v/2) ∇ log p(φ) + N(0, v I)."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from partialbayes.checks import require_positive
from partialbayes.kernels.differentiable import with_gradients
from partialbayes.kernels.lift import lift
from partialbayes.types import Kernel, LogDensity, Move, Phi, PRNGKey


class _Position(NamedTuple):
    position: Phi


def unadjusted_langevin(
    variance: float | Float[Array, ""] | Float[Array, " dim"], num_steps: int = 1
) -> Move:
    """Langevin steps that follow the target's gradient, without rejection.

    It leaves the target invariant only in the limit of a small variance: on N(0, s²) it settles at
    the variance s² / (1 − v / (4 s²)).

    Args:
        variance: Variance v of the noise; a number or one per weight. The drift is v/2 times the
            gradient.
        num_steps: Steps per move.

    Raises:
        ValueError: ``variance`` is not positive.

    Example:
        >>> import partialbayes as pb
        >>> kernel = pb.kernels.unadjusted_langevin(1e-4, num_steps=5)
    """
    require_positive("variance", variance)

    def init(phi: Phi, log_density: LogDensity) -> _Position:
        return _Position(phi)

    def step(key: PRNGKey, state: _Position, log_density: LogDensity) -> tuple[_Position, tuple[()]]:
        phi = state.position
        spread = jnp.broadcast_to(jnp.asarray(variance, phi.dtype), phi.shape)
        noise = jax.random.normal(key, phi.shape, phi.dtype)
        drift = 0.5 * spread * jax.grad(log_density)(phi)
        return _Position(phi + drift + jnp.sqrt(spread) * noise), ()

    move = lift(Kernel(init, step), num_steps)._replace(keeps_target=False)
    return with_gradients("unadjusted_langevin", move)

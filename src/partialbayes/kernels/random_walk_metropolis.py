"""Random-walk Metropolis: propose φ + N(0, v I), accept by the ratio of densities."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from partialbayes.checks import require_positive
from partialbayes.kernels.lift import lift
from partialbayes.types import Kernel, LogDensity, Move, Phi, PRNGKey


def random_walk_metropolis(
    variance: float | Float[Array, ""] | Float[Array, " dim"], num_steps: int = 1
) -> Move:
    """Random-walk Metropolis steps that leave the target invariant.

    Args:
        variance: Variance (not standard deviation) of the proposal; a number or one per weight.
        num_steps: Steps per move.

    Raises:
        ValueError: ``variance`` is not positive.

    Example:
        >>> import partialbayes as pb
        >>> kernel = pb.kernels.random_walk_metropolis(0.05, num_steps=10)
    """
    require_positive("variance", variance)
    return lift(metropolis_kernel(jnp.sqrt(jnp.asarray(variance, float))), num_steps)


def metropolis_kernel(factor: Float[Array, "*shape"]) -> Kernel:
    """Propose φ + F z with z standard normal.

    Args:
        factor: F: a number, a vector (its diagonal) or a matrix such as a Cholesky factor.
    """

    def init(phi: Phi, log_density: LogDensity) -> Any:
        import blackjax

        return blackjax.mcmc.random_walk.init(phi, log_density)

    def step(key: PRNGKey, state: Any, log_density: LogDensity) -> tuple[Any, Any]:
        import blackjax

        # BlackJAX maps the noise by F @ z for a matrix, which is what a lower factor needs.
        propose = blackjax.mcmc.random_walk.normal(
            jnp.broadcast_to(factor, state.position.shape) if factor.ndim < 2 else factor
        )
        return blackjax.mcmc.random_walk.build_additive_step()(key, state, log_density, propose)

    return Kernel(init, step)

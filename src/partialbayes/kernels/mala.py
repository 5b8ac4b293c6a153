"""Metropolis-adjusted Langevin (MALA).

Propose φ + (v/2) ∇ log p(φ) + N(0, v I); accept by the ratio of densities and of proposals.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from partialbayes.checks import require_positive
from partialbayes.kernels.differentiable import with_gradients
from partialbayes.kernels.lift import lift
from partialbayes.types import Kernel, LogDensity, Move, Phi, PRNGKey


def mala(variance: float | Float[Array, ""], num_steps: int = 1) -> Move:
    """Langevin steps with a Metropolis correction, which leave the target invariant.

    Args:
        variance: Variance v of the proposal's noise, one number. The drift is v/2 times the
            gradient.
        num_steps: Steps per move.

    Raises:
        ValueError: ``variance`` is not positive.

    Example:
        >>> import partialbayes as pb
        >>> kernel = pb.kernels.mala(0.01, num_steps=5)
    """
    require_positive("variance", variance)

    def init(phi: Phi, log_density: LogDensity) -> Any:
        import blackjax

        return blackjax.mala.init(phi, log_density)

    def step(key: PRNGKey, state: Any, log_density: LogDensity) -> tuple[Any, Any]:
        import blackjax

        # BlackJAX's step size ε gives the drift ε ∇ and the noise variance 2ε.
        half = 0.5 * jnp.asarray(variance, state.position.dtype)
        return blackjax.mala.build_kernel()(key, state, log_density, half)

    return with_gradients("mala", lift(Kernel(init, step), num_steps))

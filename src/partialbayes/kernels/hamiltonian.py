"""Hamiltonian Monte Carlo: leapfrog steps along the gradient, accepted by the energy error.

With momentum p ~ N(0, M) drawn anew for each trajectory, and step size h,

    p ← p + (h/2) ∇ log p(φ),    φ ← φ + h M⁻¹ p,    p ← p + (h/2) ∇ log p(φ)

many times; the end is accepted with probability min(1, e^{−ΔH}), H = −log p(φ) + ½ pᵀ M⁻¹ p.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from partialbayes.checks import require_count, require_positive
from partialbayes.kernels.differentiable import with_gradients
from partialbayes.kernels.lift import lift
from partialbayes.types import Kernel, LogDensity, Move, Phi, PRNGKey


def hamiltonian(
    step_size: float | Float[Array, ""] = 0.01,
    num_leapfrog_steps: int = 100,
    num_steps: int = 1,
    *,
    inverse_mass: float | Float[Array, ""] | Float[Array, " dim"] = 1.0,
) -> Move:
    """Hamiltonian Monte Carlo (HMC) trajectories, which leave the target invariant.

    This is the kernel for particles; `hmc` is the sampler of a second stage.

    Args:
        step_size: Length of one leapfrog step (a time, not a variance).
        num_leapfrog_steps: Leapfrog steps per trajectory.
        num_steps: Trajectories per move.
        inverse_mass: Diagonal of the inverse mass matrix; best near the target's variances.

    Raises:
        ValueError: ``step_size`` or ``inverse_mass`` is not positive, or a count not a whole
            number of at least 1.

    Example:
        >>> import partialbayes as pb
        >>> kernel = pb.kernels.hamiltonian(step_size=0.05, num_leapfrog_steps=20)
    """
    require_positive("step_size", step_size)
    require_positive("inverse_mass", inverse_mass)
    require_count("num_leapfrog_steps", num_leapfrog_steps, "for example num_leapfrog_steps=20.")

    def init(phi: Phi, log_density: LogDensity) -> Any:
        import blackjax

        return blackjax.hmc.init(phi, log_density)

    def step(key: PRNGKey, state: Any, log_density: LogDensity) -> tuple[Any, Any]:
        import blackjax

        phi = state.position
        inverse = jnp.broadcast_to(jnp.asarray(inverse_mass, phi.dtype), phi.shape)
        length = jnp.asarray(step_size, phi.dtype)
        return blackjax.hmc.build_kernel()(key, state, log_density, length, inverse, num_leapfrog_steps)

    return with_gradients("hamiltonian", lift(Kernel(init, step), num_steps))

"""Hamiltonian Monte Carlo whose mass and step size follow the particles.

With Σ = L Lᵀ the covariance of the particles, trajectories are run on z = L⁻¹ φ with unit mass,
which is a mass of Σ⁻¹ on φ. The step size is ε = e^s d^{−1/4}, the scaling that keeps the
acceptance of a normal target (Beskos et al. 2013). After each trajectory s is steered,
s ← s + acceptance − wanted acceptance.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from partialbayes.checks import require_count, require_positive
from partialbayes.kernels.adapted_metropolis import regular_covariance
from partialbayes.kernels.hamiltonian import hamiltonian
from partialbayes.types import Move, Moved, Particles, PRNGKey, Scalar, Target


def adapted_hamiltonian(
    num_leapfrog_steps: int = 8,
    num_steps: int = 3,
    *,
    target_acceptance: float | Float[Array, ""] = 0.8,
) -> Move:
    """Hamiltonian trajectories that scale themselves, and leave the target invariant.

    Args:
        num_leapfrog_steps: Leapfrog steps per trajectory. In units of the particles' standard
            deviations a step is about half, so that eight go well past a quarter turn.
        num_steps: Trajectories per move.
        target_acceptance: Mean acceptance to steer towards, in (0, 1).

    Raises:
        ValueError: A count is not a whole number of at least 1, or ``target_acceptance`` not
            within (0, 1).

    Example:
        >>> import partialbayes as pb
        >>> kernel = pb.kernels.adapted_hamiltonian(num_leapfrog_steps=5)
    """
    require_count("num_leapfrog_steps", num_leapfrog_steps, "for example num_leapfrog_steps=8.")
    require_count("num_steps", num_steps, "how many trajectories each particle makes.")
    require_positive("target_acceptance", target_acceptance)
    if not isinstance(target_acceptance, jax.core.Tracer) and np.any(np.asarray(target_acceptance) >= 1):
        raise ValueError(
            f"target_acceptance must be a probability below 1, not {target_acceptance!r}; "
            "for example 0.8."
        )

    def init(dim: int) -> Scalar:
        return jnp.zeros((), jnp.result_type(float))

    def step(key: PRNGKey, particles: Particles, target: Target, log_scale: Scalar) -> Moved:
        dim = particles.values.shape[1]
        factor = jnp.linalg.cholesky(regular_covariance(particles, target.prior))
        whitened = target._replace(
            log_density=lambda z: target.log_density(factor @ z),
            log_potential=lambda z: target.log_potential(factor @ z),
        )

        def trajectory(carry: tuple[Array, Scalar], key: PRNGKey) -> tuple[tuple[Array, Scalar], Scalar]:
            values, log_scale = carry
            move = hamiltonian(jnp.exp(log_scale) * dim**-0.25, num_leapfrog_steps)
            moved = move.step(key, Particles(values, particles.log_weights), whitened, ())
            # Steered at once: as the target sharpens a step may suddenly be too long.
            change = (moved.acceptance - target_acceptance).astype(log_scale.dtype)
            return (moved.values, log_scale + change), moved.acceptance

        start = solve_triangular(factor, particles.values.T, lower=True).T
        keys = jax.random.split(key, num_steps)
        (values, log_scale), acceptances = jax.lax.scan(trajectory, (start, log_scale), keys)
        unmoved = jnp.zeros_like(particles.log_weights)
        return Moved(values @ factor.T, unmoved, acceptances.mean(), log_scale)

    return Move(init, step)

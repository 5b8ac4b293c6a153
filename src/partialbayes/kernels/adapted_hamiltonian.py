"""Hamiltonian Monte Carlo whose mass and step size follow the particles.

The inverse mass is the variance of the particles, coordinate by coordinate, and the step size
ε = e^s d^{−1/4}, the scaling that keeps the acceptance of a normal target (Beskos et al. 2013).
After each move s is steered, s ← s + acceptance − wanted acceptance.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from partialbayes.checks import require_count, require_positive
from partialbayes.kernels.hamiltonian import hamiltonian
from partialbayes.types import Move, Moved, Particles, PRNGKey, Scalar, Target
from partialbayes.weights import weighted_variance


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
        num_steps: Trajectories per move, all of the same step size.
        target_acceptance: Mean acceptance to steer towards, in (0, 1).

    Example:
        >>> import partialbayes as pb
        >>> kernel = pb.adapted_hamiltonian(num_leapfrog_steps=5)
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
        move = hamiltonian(
            jnp.exp(log_scale) * dim**-0.25,
            num_leapfrog_steps,
            num_steps,
            # Never quite zero, so that particles that have collapsed can still part.
            inverse_mass=weighted_variance(particles) + 1e-6 * target.prior.variance,
        )
        moved = move.step(key, particles, target, ())
        change = (moved.acceptance - target_acceptance).astype(log_scale.dtype)
        return moved._replace(state=log_scale + change)

    return Move(init, step)

"""Hamiltonian Monte Carlo: leapfrog steps along the gradient, accepted by the energy error.

With momentum p ~ N(0, M) drawn anew for each trajectory, and step size h,

    p ← p + (h/2) ∇ log p(φ),    φ ← φ + h M⁻¹ p,    p ← p + (h/2) ∇ log p(φ)

many times; the end is accepted with probability min(1, e^{−ΔH}), H = −log p(φ) + ½ pᵀ M⁻¹ p.

The adapted kernel follows the particles. With Σ = L Lᵀ their covariance, trajectories are run on
z = L⁻¹ φ with unit mass, which is a mass of Σ⁻¹ on φ. The step size is ε = e^s d^{−1/4}, the scaling
that keeps the acceptance of a normal target (Beskos et al. 2013). After each trajectory s is steered,
s ← s + acceptance − wanted acceptance.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from partialbayes._utils.checks import require_positive, require_positive_int, require_probability
from partialbayes.kernels._from_mcmc import from_mcmc
from partialbayes.kernels._metropolis import regular_covariance
from partialbayes.types import (
    Kernel,
    LogDensity,
    Moved,
    ParticleKernel,
    Particles,
    Phi,
    PRNGKey,
    Scalar,
    Target,
)


def hamiltonian(
    step_size: float | Float[Array, ""] = 0.01,
    num_leapfrog_steps: int = 100,
    num_steps: int = 1,
    *,
    inverse_mass: float | Float[Array, ""] | Float[Array, " dim"] = 1.0,
) -> Kernel:
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
    require_positive_int("num_leapfrog_steps", num_leapfrog_steps, "for example num_leapfrog_steps=20.")

    def init(phi: Phi, log_density: LogDensity) -> Any:
        import blackjax

        return blackjax.hmc.init(phi, log_density)

    def step(key: PRNGKey, state: Any, log_density: LogDensity) -> tuple[Any, Any]:
        import blackjax

        phi = state.position
        inverse = jnp.broadcast_to(jnp.asarray(inverse_mass, phi.dtype), phi.shape)
        length = jnp.asarray(step_size, phi.dtype)
        return blackjax.hmc.build_kernel()(key, state, log_density, length, inverse, num_leapfrog_steps)

    return from_mcmc(ParticleKernel(init, step), num_steps)


def adapted_hamiltonian(
    num_leapfrog_steps: int = 8,
    num_steps: int = 3,
    *,
    target_acceptance: float | Float[Array, ""] = 0.8,
) -> Kernel:
    """Hamiltonian trajectories that scale themselves, and leave the target invariant.

    Args:
        num_leapfrog_steps: Leapfrog steps per trajectory. In units of the particles' standard
            deviations a step is about half, so that eight go well past a quarter turn.
        num_steps: Trajectories per move.
        target_acceptance: Mean acceptance to steer toward, in (0, 1).

    Raises:
        ValueError: A count is not a whole number of at least 1, or ``target_acceptance`` not
            within (0, 1).

    Example:
        >>> import partialbayes as pb
        >>> kernel = pb.kernels.adapted_hamiltonian(num_leapfrog_steps=5)
    """
    require_positive_int("num_leapfrog_steps", num_leapfrog_steps, "for example num_leapfrog_steps=8.")
    require_positive_int("num_steps", num_steps, "how many trajectories each particle makes.")
    require_probability("target_acceptance", target_acceptance, "for example 0.8.")

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

    return Kernel(step, init=init)

"""Hamiltonian Monte Carlo: leapfrog steps along the gradient, accepted by the energy error.

With a new momentum p ~ N(0, M) for each trajectory, and step size h, many steps of

    p ← p + (h/2) ∇ log p(φ),    φ ← φ + h M⁻¹ p,    p ← p + (h/2) ∇ log p(φ)

are made. The end is accepted with probability min(1, e^{−ΔH}), H = −log p(φ) + ½ pᵀ M⁻¹ p.

The adapted kernel learns from the particles, each half from the other half (`_halves.py`). With
Σ = L Lᵀ the covariance, trajectories run on z = L⁻¹ φ with unit mass, which is a mass of Σ⁻¹ on φ.
The step size is ε = e^s d^{−1/4}, the scaling that keeps the acceptance of a normal target (Beskos et
al. 2013), and s is adapted after each trajectory, s ← s + acceptance − target acceptance. A trajectory
has as many steps as make a quarter of a turn, π / 2 ε, after which a trajectory of a normal target is
independent of its start. The step of each particle differs from ε by up to 30 %, so that no weight
returns to its start for all particles.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from partialbayes._utils.checks import require_positive, require_positive_int, require_probability
from partialbayes.kernels._from_mcmc import advance, from_mcmc
from partialbayes.kernels._halves import by_halves
from partialbayes.kernels._whitening import Factor
from partialbayes.types import Kernel, LogDensity, ParticleKernel, Phi, PRNGKey, Scalar, Target


def hamiltonian(
    step_size: float | Float[Array, ""] = 0.01,
    num_leapfrog_steps: int = 100,
    num_steps: int = 1,
    *,
    inverse_mass: float | Float[Array, ""] | Float[Array, " dim"] = 1.0,
) -> Kernel:
    """Move particles by Hamiltonian Monte Carlo (HMC), which leaves the target invariant.

    This is the kernel for particles; `hmc` is the sampler of a second stage.

    Args:
        step_size: Length of one leapfrog step (a time, not a variance).
        num_leapfrog_steps: Number of leapfrog steps per trajectory.
        num_steps: Number of trajectories per move.
        inverse_mass: Diagonal of the inverse mass matrix; best near the target's variances.

    Returns:
        The kernel.

    Example:
        >>> import partialbayes as pb
        >>> kernel = pb.kernels.hamiltonian(step_size=0.05, num_leapfrog_steps=20)
    """
    require_positive("step_size", step_size)
    require_positive("inverse_mass", inverse_mass)
    require_positive_int("num_leapfrog_steps", num_leapfrog_steps, "for example num_leapfrog_steps=20.")

    def step(key: PRNGKey, state: Any, log_density: LogDensity) -> tuple[Any, Any]:
        import blackjax

        phi = state.position
        inverse = jnp.broadcast_to(jnp.asarray(inverse_mass, phi.dtype), phi.shape)
        length = jnp.asarray(step_size, phi.dtype)
        return blackjax.hmc.build_kernel()(key, state, log_density, length, inverse, num_leapfrog_steps)

    return from_mcmc(ParticleKernel(_start, step), num_steps)


def _start(phi: Phi, log_density: LogDensity) -> Any:
    import blackjax

    return blackjax.hmc.init(phi, log_density)


def adapted_hamiltonian(
    num_leapfrog_steps: int = 16,
    num_steps: int = 16,
    *,
    target_acceptance: float | Float[Array, ""] = 0.8,
) -> Kernel:
    """Move particles by HMC that tunes itself and leaves the target invariant.

    Each half of the particles is moved with the covariance and step size learned from the other half.
    With at least twice as many particles as weights in each half, it follows all correlations.

    Args:
        num_leapfrog_steps: The most leapfrog steps of a trajectory. A trajectory has as many as make a
            quarter of a turn, in units of the particles' standard deviations; usually three to eight.
        num_steps: The most trajectories of a move, which ends once the particles have moved; usually one
            to three.
        target_acceptance: The mean acceptance to aim for, in (0, 1).

    Returns:
        The kernel.

    Raises:
        ValueError: At the first move: there is only one particle.

    Example:
        >>> import partialbayes as pb
        >>> kernel = pb.kernels.adapted_hamiltonian(num_leapfrog_steps=5)
    """
    require_positive_int("num_leapfrog_steps", num_leapfrog_steps, "for example num_leapfrog_steps=16.")
    require_positive_int("num_steps", num_steps, "how many trajectories each particle makes.")
    require_probability("target_acceptance", target_acceptance, "for example 0.8.")

    def trajectory(
        key: PRNGKey,
        values: Float[Array, "particle dim"],
        factor: Factor,
        log_scale: Scalar,
        target: Target,
    ) -> tuple[Float[Array, "particle dim"], Scalar]:
        num_particles, dim = values.shape
        step_size = (jnp.exp(log_scale) * dim**-0.25).astype(values.dtype)
        length = jnp.clip(jnp.ceil(0.5 * jnp.pi / step_size), 1, num_leapfrog_steps).astype(jnp.int32)

        def keys_and_steps(key: PRNGKey) -> PyTree:
            key_jitter, key_move = jax.random.split(key)
            jitter = jax.random.uniform(key_jitter, (num_particles,), values.dtype, 0.7, 1.3)
            return jax.random.split(key_move, num_particles), jitter * step_size

        def step(drawn: Any, state: Any, log_density: LogDensity) -> tuple[Any, Any]:
            import blackjax

            own_key, own_step = drawn
            unit = jnp.ones_like(state.position)
            return blackjax.hmc.build_kernel()(own_key, state, log_density, own_step, unit, length)

        whitened = values @ factor.inverse.T
        moved, acceptance = advance(
            key,
            whitened,
            ParticleKernel(_start, step),
            lambda z: target.log_density(factor.lower @ z),
            1,
            keys_and_steps,
        )
        return values + (moved - whitened) @ factor.lower.T, acceptance

    return by_halves(trajectory, num_steps, target_acceptance, gain=1.0)

"""Particle gradient descent: maximum marginal likelihood by a cloud of Langevin particles.

With U(φ, ψ) = (N/M) log p(batch | φ; ψ) + log π(φ; ψ), on each batch

    φ_j ← φ_j + h ∇_φ U(φ_j, ψ) + N(0, 2h I)              every particle on its own
    ψ   ← optimiser(ψ, (1/J) Σ_j ∇_ψ U(φ_j, ψ))           the mean gradient, Fisher's identity

both gradients at the same (φ, ψ), from one backward pass. At fixed ψ, on the full data, and for a
Gaussian posterior of precision P, the particles settle at precision P (I − h P / 2): too wide,
and less so the smaller the rate h. Batches add the noise of their gradients to that.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from partialbayes.checks import require_count
from partialbayes.gradients import joint_gradient
from partialbayes.noise import normal
from partialbayes.schedules import as_rate
from partialbayes.types import (
    Algorithm,
    Batch,
    Info,
    Model,
    Particles,
    Posterior,
    PRNGKey,
    Psi,
    Scalar,
)
from partialbayes.weights import uniform_log_weights


class ParticleGradientState(NamedTuple):
    """ψ with its optimiser, the particles, and the number of steps done."""

    psi: Psi
    optimizer: optax.OptState
    values: Float[Array, "particle dim"]
    steps: Int[Array, ""]


def particle_gradient_descent(
    model: Model,
    *,
    num_particles: int = 100,
    rate: Any = None,
    optimizer: optax.GradientTransformation | None = None,
) -> Algorithm:
    """Train ψ by the mean gradient of particles that follow Langevin dynamics in φ.

    Args:
        model: What to train.
        num_particles: J, the number of samples of φ; they start from the prior.
        rate: h, a number or an Optax schedule; 0.1 / N by default. Stable only below 2 / λ, with
            λ the largest curvature of the log-posterior in φ, of the order of N.
        optimizer: Any Optax transformation, for ψ; Adam at 0.01 by default.

    Raises:
        ValueError: ``num_particles`` is not a whole number of at least 1.

    Example:
        >>> import partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 20, 1]), "layers/0/*", pb.gaussian())
        >>> algorithm = pb.algorithms.particle_gradient_descent(model, num_particles=50, rate=1e-3)
    """
    require_count("num_particles", num_particles, "for example num_particles=100.")
    rate = as_rate(rate)
    optimizer = optax.adam(0.01) if optimizer is None else optimizer

    def init(key: PRNGKey) -> ParticleGradientState:
        key_start, key_prior = jax.random.split(key)
        psi = model.init(key_start).psi
        values = model.sample_prior(key_prior, psi, num_particles)
        return ParticleGradientState(psi, optimizer.init(psi), values, jnp.zeros((), jnp.int32))

    def step(
        key: PRNGKey, state: ParticleGradientState, batch: Batch
    ) -> tuple[ParticleGradientState, Info]:
        ascent = joint_gradient(model, state.values, state.psi, batch)
        values = langevin(key, state.values, ascent.phi, rate(state.steps, batch))
        descent = jax.tree.map(jnp.negative, ascent.psi)
        updates, optimizer_state = optimizer.update(descent, state.optimizer, state.psi)
        psi: Psi = optax.apply_updates(state.psi, updates)
        num_data = batch.scale * batch.mask.sum()
        return (
            ParticleGradientState(psi, optimizer_state, values, state.steps + 1),
            {"loss": -ascent.log_densities.mean() / num_data},
        )

    def posterior(state: ParticleGradientState) -> Posterior:
        return Posterior(state.psi, Particles(state.values, uniform_log_weights(num_particles)))

    return Algorithm(model, init, step, posterior)


def langevin(
    key: PRNGKey,
    values: Float[Array, "particle dim"],
    gradients: Float[Array, "particle dim"],
    rate: Scalar,
) -> Float[Array, "particle dim"]:
    """One unadjusted Langevin step of every particle: φ + h ∇U + N(0, 2h I)."""
    noise = normal(key, values.shape, values.dtype)
    return values + rate * gradients + jnp.sqrt(2.0 * rate) * noise

"""Langevin dynamics in φ: one noisy chain (SGLD), or a cloud of them (particle gradient descent).

With U(φ, ψ) = (N/M) log p(batch | φ; ψ) + log π(φ; ψ), on each batch

    φ_j ← φ_j + h ∇_φ U(φ_j, ψ) + N(0, 2h I)              every particle on its own
    ψ   ← optimizer(ψ, (1/J) Σ_j ∇_ψ U(φ_j, ψ))           the mean gradient, Fisher's identity

both gradients at the same (φ, ψ), from one backward pass. SGLD has J = 1 and keeps the last samples of
its chain; ``optax.set_to_zero()`` leaves ψ alone. There is no accept-reject step: at fixed ψ, on the
full data, and for a Gaussian posterior of precision P, the particles settle at precision
P (I − h P / 2), too wide, and less so the smaller the step size h. Batches add the noise of their
gradients.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from partialbayes._utils.checks import require_positive_int
from partialbayes.algorithms._common import (
    as_rate,
    ascend,
    default_optimizer,
    is_due,
    require_delay,
    start_cloud,
)
from partialbayes.feynman_kac._gradients import joint_gradient
from partialbayes.feynman_kac._random import normal
from partialbayes.types import (
    Algorithm,
    Batch,
    Info,
    Model,
    Params,
    Particles,
    Posterior,
    PRNGKey,
    Psi,
    Scalar,
)
from partialbayes.weights import uniform_log_weights

pass


class SgldState(NamedTuple):
    """The chain's point, ψ's optimizer, and a ring of samples of which ``collected`` were taken."""

    params: Params
    optimizer: optax.OptState
    samples: Float[Array, "sample dim"]
    collected: Int[Array, ""]
    steps: Int[Array, ""]


def sgld(
    model: Model,
    *,
    num_particles: int = 100,
    step_size: Any = None,
    num_warmup: int = 200,
    every: int = 1,
    optimizer: optax.GradientTransformation | None = None,
) -> Algorithm:
    """Sample φ by one Langevin chain on batches while ψ follows its stochastic gradient.

    The posterior is the last ``num_particles`` samples with the present ψ; while ψ still moves, older
    samples belong to an older ψ. Before the first sample it is the chain's present point. For
    several chains see `ensemble`, for many of them with one ψ `particle_gradient_descent`.

    Args:
        model: What to train; the chain starts at its initial weights.
        num_particles: How many samples to keep.
        step_size: h, a number or an Optax schedule; 0.1 / N by default. Stable only below 2 / λ, with
            λ the largest curvature of the log-posterior in φ, of the order of N.
        num_warmup: Steps before the first sample may be taken.
        every: Steps between samples.
        optimizer: Any Optax transformation, for ψ; Adam at 0.01 by default, and
            ``optax.set_to_zero()`` keeps ψ where it is.

    Raises:
        ValueError: ``num_particles`` or ``every`` is not a whole number of at least 1, or
            ``num_warmup`` is negative.

    Example:
        >>> import partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 20, 1]), "layers/0/*", pb.gaussian())
        >>> algorithm = pb.algorithms.sgld(model, num_particles=50, step_size=1e-3, num_warmup=100)
    """
    require_positive_int("num_particles", num_particles, "for example num_particles=100.")
    require_delay("num_warmup", num_warmup)
    require_positive_int("every", every, "for example every=1, a sample at each step.")
    step_size = as_rate(step_size)
    optimizer = default_optimizer(optimizer)

    def init(key: PRNGKey) -> SgldState:
        params = model.init(key)
        samples = jnp.tile(params.phi[None, :], (num_particles, 1))
        none_yet = jnp.zeros((), jnp.int32)
        return SgldState(params, optimizer.init(params.psi), samples, none_yet, none_yet)

    def step(key: PRNGKey, state: SgldState, batch: Batch) -> tuple[SgldState, Info]:
        phi, psi = state.params
        ascent = joint_gradient(model, phi[None, :], psi, batch)
        (moved,) = langevin(key, phi[None, :], ascent.phi, step_size(state.steps, batch))
        new_psi, optimizer_state = ascend(optimizer, ascent.psi, state.optimizer, psi)
        steps = state.steps + 1
        due = is_due(steps, num_warmup, every)
        place = state.collected % num_particles
        samples = state.samples.at[place].set(jnp.where(due, moved, state.samples[place]))
        params = Params(moved, new_psi)
        collected = state.collected + due
        num_data = batch.scale * batch.mask.sum()
        return (
            SgldState(params, optimizer_state, samples, collected, steps),
            {
                "loss": -ascent.log_densities[0] / num_data,
                "samples": jnp.minimum(collected, num_particles).astype(phi.dtype),
            },
        )

    def posterior(state: SgldState) -> Posterior:
        # Places not yet filled have weight zero; before the first sample, place 0 is the chain itself.
        filled = jnp.clip(state.collected, 1, num_particles)
        first = jnp.where(state.collected > 0, state.samples[0], state.params.phi)
        log_weights = jnp.where(
            jnp.arange(num_particles) < filled, -jnp.log(filled.astype(first.dtype)), -jnp.inf
        )
        return Posterior(state.params.psi, Particles(state.samples.at[0].set(first), log_weights))

    return Algorithm(model, init, step, posterior)


class ParticleGradientState(NamedTuple):
    """ψ with its optimizer, the particles, and the number of steps done."""

    psi: Psi
    optimizer: optax.OptState
    values: Float[Array, "particle dim"]
    steps: Int[Array, ""]


def particle_gradient_descent(
    model: Model,
    *,
    num_particles: int = 100,
    step_size: Any = None,
    optimizer: optax.GradientTransformation | None = None,
) -> Algorithm:
    """Train ψ by the mean gradient of particles that follow Langevin dynamics in φ.

    Args:
        model: What to train.
        num_particles: J, the number of samples of φ; they start from the prior.
        step_size: h, a number or an Optax schedule; 0.1 / N by default. Stable only below 2 / λ, with
            λ the largest curvature of the log-posterior in φ, of the order of N.
        optimizer: Any Optax transformation, for ψ; Adam at 0.01 by default.

    Raises:
        ValueError: ``num_particles`` is not a whole number of at least 1.

    Example:
        >>> import partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 20, 1]), "layers/0/*", pb.gaussian())
        >>> algorithm = pb.algorithms.particle_gradient_descent(model, num_particles=50, step_size=1e-3)
    """
    require_positive_int("num_particles", num_particles, "for example num_particles=100.")
    step_size = as_rate(step_size)
    optimizer = default_optimizer(optimizer)

    def init(key: PRNGKey) -> ParticleGradientState:
        psi, particles = start_cloud(model, key, num_particles)
        return ParticleGradientState(
            psi, optimizer.init(psi), particles.values, jnp.zeros((), jnp.int32)
        )

    def step(
        key: PRNGKey, state: ParticleGradientState, batch: Batch
    ) -> tuple[ParticleGradientState, Info]:
        ascent = joint_gradient(model, state.values, state.psi, batch)
        values = langevin(key, state.values, ascent.phi, step_size(state.steps, batch))
        psi, optimizer_state = ascend(optimizer, ascent.psi, state.optimizer, state.psi)
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
    step_size: Scalar,
) -> Float[Array, "particle dim"]:
    """One unadjusted Langevin step of every particle: φ + h ∇U + N(0, 2h I)."""
    noise = normal(key, values.shape, values.dtype)
    return values + step_size * gradients + jnp.sqrt(2.0 * step_size) * noise

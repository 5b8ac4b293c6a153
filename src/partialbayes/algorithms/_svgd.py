"""Stein variational gradient descent on φ, jointly with ψ.

With U(φ, ψ) = (N/M) log p(batch | φ; ψ) + log π(φ; ψ), on each batch φ_i follows

    v_i = (1/J) Σ_j [ k(φ_j, φ_i) ∇_φ U(φ_j, ψ) + ∇_{φ_j} k(φ_j, φ_i) ]

and ψ the mean gradient (1/J) Σ_j ∇_ψ U(φ_j, ψ). The kernel is k(a, b) = exp(−|a − b|² / ℓ), with ℓ =
median |φ_i − φ_j|² / log J over pairs. The first term attracts particles to the mode, the second repels
them from each other. With few particles in many dimensions the spread is too small.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from partialbayes._utils.checks import require_positive_int
from partialbayes.algorithms._common import ascend, default_optimizer, start_cloud
from partialbayes.feynman_kac._gradients import joint_gradient
from partialbayes.types import Algorithm, Batch, Info, Model, Particles, Posterior, PRNGKey, Psi
from partialbayes.weights import uniform_log_weights


class SvgdState(NamedTuple):
    """ψ and the particles, each with its optimizer."""

    psi: Psi
    optimizer: optax.OptState
    values: Float[Array, "particle dim"]
    particle_optimizer: optax.OptState


def svgd(
    model: Model,
    *,
    num_particles: int = 100,
    optimizer: optax.GradientTransformation | None = None,
    particle_optimizer: optax.GradientTransformation | None = None,
) -> Algorithm:
    """Train ψ and the particles by Stein variational gradient descent.

    Args:
        model: The model to train.
        num_particles: Number J of particles, at least 2, drawn from the prior. A step computes J² kernel
            values.
        optimizer: Optax transformation for ψ; Adam at 0.01 by default.
        particle_optimizer: Optax transformation for the particles; Adam at 0.01 by default.

    Returns:
        The algorithm, to pass to `fit`.

    Example:
        >>> import partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 20, 1]), "layers/0/*", pb.gaussian())
        >>> algorithm = pb.algorithms.svgd(model, num_particles=50)
    """
    require_positive_int("num_particles", num_particles, "for example num_particles=100.")
    if num_particles < 2:
        raise ValueError("num_particles must be at least 2 for svgd; for one particle use map_estimate.")
    optimizer = default_optimizer(optimizer)
    particle_optimizer = default_optimizer(particle_optimizer)

    def init(key: PRNGKey) -> SvgdState:
        psi, particles = start_cloud(model, key, num_particles)
        return SvgdState(
            psi, optimizer.init(psi), particles.values, particle_optimizer.init(particles.values)
        )

    def step(key: PRNGKey, state: SvgdState, batch: Batch) -> tuple[SvgdState, Info]:
        ascent = joint_gradient(model, state.values, state.psi, batch)
        psi, optimizer_state = ascend(optimizer, ascent.psi, state.optimizer, state.psi)
        direction = stein_direction(state.values, ascent.slopes.log_density)
        values, particle_optimizer_state = ascend(
            particle_optimizer, direction, state.particle_optimizer, state.values
        )
        num_data = batch.scale * batch.mask.sum()
        return (
            SvgdState(psi, optimizer_state, values, particle_optimizer_state),
            {"loss": -ascent.log_densities.mean() / num_data},
        )

    def posterior(state: SvgdState) -> Posterior:
        return Posterior(state.psi, Particles(state.values, uniform_log_weights(num_particles)))

    return Algorithm(model, init, step, posterior)


def stein_direction(
    values: Float[Array, "particle dim"], gradients: Float[Array, "particle dim"]
) -> Float[Array, "particle dim"]:
    """Compute the direction v of this module's equation for given gradients ∇_φ U(φ_j)."""
    num_particles = values.shape[0]
    # Centered, because a common offset would lose digits in the differences.
    centered = values - values.mean(axis=0, keepdims=True)
    norms = jnp.sum(jnp.square(centered), axis=1)
    distances = jnp.maximum(norms[:, None] + norms[None, :] - 2.0 * centered @ centered.T, 0.0)
    median = jnp.median(distances[np.triu_indices(num_particles, 1)])
    # If most particles coincide, any positive width will do.
    width = jnp.where(median > 0.0, median / np.log(num_particles), 1.0)
    kernel = jnp.exp(-distances / width)
    repulsion = (2.0 / width) * (kernel.sum(axis=1, keepdims=True) * centered - kernel @ centered)
    return (kernel @ gradients + repulsion) / num_particles

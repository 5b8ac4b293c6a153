"""Normalize and update log-weights, and compute weighted moments and quantiles."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from partialbayes.parallel._sharding import replicate
from partialbayes.types import Particles, Scalar

__all__ = [
    "effective_sample_size",
    "reweight",
    "uniform_log_weights",
    "weighted_covariance",
    "weighted_mean",
    "weighted_quantile",
    "weighted_variance",
]


def uniform_log_weights(num_particles: int) -> Float[Array, " particle"]:
    """Return equal log-weights, log(1/J) each.

    Args:
        num_particles: J, the number of particles.

    Returns:
        The log-weights.
    """
    return jnp.full(num_particles, -math.log(num_particles), jnp.result_type(float))


def reweight(
    particles: Particles, log_potentials: Float[Array, " particle"]
) -> tuple[Particles, Scalar]:
    """Multiply the weights by potentials G and normalize.

    Args:
        particles: The particles, with normalized log-weights.
        log_potentials: The log-potential log G_j of each particle.

    Returns:
        The particles with log w_j ← log w_j + log G_j − log Σ_i w_i G_i, and the last term, the
        increment of the log-evidence.
    """
    log_weights = particles.log_weights + replicate(log_potentials)
    increment = jax.nn.logsumexp(log_weights)
    return particles._replace(log_weights=log_weights - increment), increment


def effective_sample_size(log_weights: Float[Array, " particle"]) -> Scalar:
    """Compute the effective sample size 1 / Σ_j w_j².

    It is J for equal weights and 1 if one particle has all the weight.

    Args:
        log_weights: Normalized log-weights.

    Returns:
        The effective sample size.
    """
    return jnp.exp(-jax.nn.logsumexp(2.0 * log_weights))


def weighted_mean(particles: Particles) -> Float[Array, " dim"]:
    """Compute the mean m = Σ_j w_j φ_j.

    Args:
        particles: The particles, with normalized log-weights.

    Returns:
        The mean of each coordinate.
    """
    return jnp.exp(particles.log_weights) @ particles.values


def weighted_covariance(particles: Particles) -> Float[Array, "dim dim"]:
    """Compute the covariance Σ_j w_j (φ_j − m)(φ_j − m)ᵀ of the cloud.

    Args:
        particles: The particles, with normalized log-weights.

    Returns:
        The covariance matrix.
    """
    centered = particles.values - weighted_mean(particles)[None, :]
    return (centered * jnp.exp(particles.log_weights)[:, None]).T @ centered


def weighted_variance(particles: Particles) -> Float[Array, " dim"]:
    """Compute the variance Σ_j w_j (φ_j − m)² of each coordinate.

    Args:
        particles: The particles, with normalized log-weights.

    Returns:
        The variance of each coordinate, the diagonal of `weighted_covariance`.
    """
    centered = particles.values - weighted_mean(particles)[None, :]
    return jnp.exp(particles.log_weights) @ jnp.square(centered)


def cumulative(weights: Float[Array, " particle"]) -> Float[Array, " particle"]:
    """Compute cumulative sums that never decrease, and do not increase at a weight of zero.

    Sums of a long array, added in parallel with rounding, may do both.
    """
    return jax.lax.cummax(jnp.where(weights > 0.0, jnp.cumsum(weights), 0.0))


def weighted_quantile(
    particles: Particles, probabilities: Float[Array, " quantile"]
) -> Float[Array, "quantile dim"]:
    """Compute weighted quantiles of each coordinate: the smallest value with cumulative weight ≥ p.

    Args:
        particles: The particles, with normalized log-weights.
        probabilities: The levels p of the quantiles.

    Returns:
        The quantiles, one row per level.
    """

    def one_coordinate(values: Float[Array, " particle"]) -> Float[Array, " quantile"]:
        order = jnp.argsort(values)
        sums = cumulative(jnp.exp(particles.log_weights[order]))
        # The last cumulative sum may fall short of one by rounding.
        index = jnp.searchsorted(sums, probabilities * sums[-1])
        return values[order[jnp.clip(index, 0, values.shape[0] - 1)]]

    return jax.vmap(one_coordinate, in_axes=1, out_axes=1)(particles.values)

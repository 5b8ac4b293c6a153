"""Gaussian noise that is correlated between outputs: y ~ N(f(x), C)."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from partialbayes._utils.recipes import serializable_builder
from partialbayes.likelihoods._common import real_targets, require_array
from partialbayes.parameters import COVARIANCE, as_parameter
from partialbayes.types import Likelihood, PRNGKey


class MultivariateNormal(NamedTuple):
    """Parameters of jointly normal targets."""

    mean: Float[Array, "example output"]
    covariance: Float[Array, "output output"]


@serializable_builder("likelihoods.multivariate_gaussian")
def multivariate_gaussian(covariance: Any) -> Likelihood:
    """Model real targets with correlated Gaussian noise: y ~ N(f(x), covariance).

    Args:
        covariance: Positive definite covariance matrix of the noise. Pass ``learned(start)`` to learn it
            or ``sampled(start)`` to sample it, both by its Cholesky factor.

    Returns:
        The likelihood.

    Example:
        >>> import jax.numpy as jnp, partialbayes as pb
        >>> likelihood = pb.likelihoods.multivariate_gaussian(pb.learned(jnp.eye(2)))
    """
    noise = as_parameter("covariance", covariance, COVARIANCE)

    def parameters(outputs: Array, learned: PyTree, latent: dict[str, Array]) -> MultivariateNormal:
        return MultivariateNormal(outputs, noise.value(learned, latent))

    def log_density(parameters: MultivariateNormal, targets: Array) -> Float[Array, " example"]:
        mean, matrix = parameters
        factor = jnp.linalg.cholesky(matrix)
        whitened = jax.scipy.linalg.solve_triangular(factor, (targets - mean).T, lower=True)
        log_volume = jnp.sum(jnp.log(jnp.diag(factor))) + 0.5 * mean.shape[1] * jnp.log(2.0 * jnp.pi)
        return -0.5 * jnp.sum(jnp.square(whitened), axis=0) - log_volume

    def observed_log_density(
        parameters: MultivariateNormal, targets: Array, observed: Bool[Array, "example output"]
    ) -> Float[Array, " example"]:
        mean, matrix = parameters
        # A missing entry gets unit variance, no correlation and residual zero: it adds a constant.
        both = observed[:, :, None] & observed[:, None, :]
        unit = jnp.eye(mean.shape[1], dtype=matrix.dtype)
        factors = jnp.linalg.cholesky(jnp.where(both, matrix[None], unit[None]))
        residuals = jnp.where(observed, targets - mean, 0.0)
        whitened = jax.scipy.linalg.solve_triangular(factors, residuals[:, :, None], lower=True)
        log_volume = jnp.sum(jnp.log(jnp.diagonal(factors, axis1=1, axis2=2)), axis=1)
        constant = 0.5 * observed.sum(axis=1) * jnp.log(2.0 * jnp.pi)
        return -0.5 * jnp.sum(jnp.square(whitened[:, :, 0]), axis=1) - log_volume - constant

    def variance(parameters: MultivariateNormal) -> Array:
        return jnp.broadcast_to(jnp.diag(parameters.covariance)[None], parameters.mean.shape)

    def cdf(parameters: MultivariateNormal, targets: Array) -> Array:
        residuals = targets - parameters.mean
        return jax.scipy.special.ndtr(residuals / jnp.sqrt(variance(parameters)))

    def sample(key: PRNGKey, parameters: MultivariateNormal) -> Array:
        noise = jax.random.normal(key, parameters.mean.shape, parameters.mean.dtype)
        return parameters.mean + noise @ jnp.linalg.cholesky(parameters.covariance).T

    def check(outputs: Any, targets: Any) -> Array:
        require_array(outputs, "multivariate Gaussian")
        size = noise.shape[0]
        if len(outputs.shape) != 2 or outputs.shape[1] != size:
            raise ValueError(
                f"network has outputs of shape {outputs.shape}, but covariance is {size} by {size}; "
                f"give the network {size} outputs, or pass a covariance of their number."
            )
        return real_targets(targets, outputs.shape, "multivariate Gaussian")

    return Likelihood(
        init=noise.init,
        parameters=parameters,
        log_density=log_density,
        mean=lambda parameters: parameters.mean,
        variance=variance,
        sample=sample,
        check=check,
        latents=noise.latents,
        observed_log_density=observed_log_density,
        values=lambda learned, latent: {"covariance": noise.value(learned, latent)},
        cdf=cdf,
        is_gaussian=True,
    )

"""The density every sampler of φ is after, at fixed ψ, and a length to measure φ by."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from partialbayes._utils.jaxprs import partially_evaluate
from partialbayes.types import Batch, LogDensity, Model, Phi, Psi, Scalar


def log_joint(model: Model, psi: Psi, batch: Batch) -> LogDensity:
    """Log π(φ; ψ) + Σ_n log p(y_n | φ; ψ), what φ does not reach computed already."""

    def log_density(phi: Phi) -> Scalar:
        return model.log_prior(phi, psi) + model.log_likelihood(phi, psi, batch).sum()

    return partially_evaluate(log_density, jnp.zeros(model.split.dim))


def prior_scale(model: Model, psi: Psi) -> Float[Array, " dim"]:
    """The prior's standard deviations; one where the prior is too heavy-tailed to have any."""
    variance = model.prior_moments(psi).variance
    return jnp.where(jnp.isfinite(variance), jnp.sqrt(variance), 1.0)

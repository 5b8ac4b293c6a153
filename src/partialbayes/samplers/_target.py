"""The density that every sampler of φ targets at fixed ψ, and the scale of φ under the prior."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from partialbayes._utils.jaxprs import partially_evaluate
from partialbayes.types import Batch, LogDensity, Model, Phi, Psi, Scalar


def log_joint(model: Model, psi: Psi, batch: Batch) -> LogDensity:
    """Return log π(φ; ψ) + Σ_n log p(y_n | φ; ψ), with all that does not depend on φ precomputed."""

    def log_density(phi: Phi) -> Scalar:
        return model.log_prior(phi, psi) + model.log_likelihood(phi, psi, batch).sum()

    return partially_evaluate(log_density, jnp.zeros(model.split.dim))


def prior_scale(model: Model, psi: Psi) -> Float[Array, " dim"]:
    """Return the prior's standard deviations; one if the prior has no finite variance."""
    variance = model.prior_moments(psi).variance
    return jnp.where(jnp.isfinite(variance), jnp.sqrt(variance), 1.0)

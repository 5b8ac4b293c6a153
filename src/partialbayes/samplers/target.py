"""The density every sampler of φ is after, at fixed ψ."""

from __future__ import annotations

import jax.numpy as jnp

from partialbayes.staging import stage
from partialbayes.types import Batch, LogDensity, Model, Phi, Psi, Scalar


def log_joint(model: Model, psi: Psi, batch: Batch) -> LogDensity:
    """Log π(φ; ψ) + Σ_n log p(y_n | φ; ψ), what φ does not reach computed already."""

    def log_density(phi: Phi) -> Scalar:
        return model.log_prior(phi, psi) + model.log_likelihood(phi, psi, batch).sum()

    return stage(log_density, jnp.zeros(model.split.dim))

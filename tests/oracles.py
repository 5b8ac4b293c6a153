"""Models whose posterior and evidence are known in closed form."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from reproduction.experiments import crescent_oracle as experiments
from reproduction.experiments.crescent_oracle import Crescent

import partialbayes as pb


class Conjugate(NamedTuple):
    """A partial Bayesian network that is linear and Gaussian in φ, with data.

    y = tanh(x W) φ + N(0, σ²), φ ~ N(0, τ² I); ψ is W, log σ² and log τ.
    """

    model: pb.types.Model
    inputs: jax.Array
    targets: jax.Array

    def features(self, psi) -> jax.Array:
        return jnp.tanh(self.inputs @ psi.network["trunk"])

    def log_evidence(self, psi) -> jax.Array:
        """log N(y; 0, σ² I + τ² Φ Φᵀ)."""
        features = self.features(psi)
        noise, scale = jnp.exp(psi.likelihood), jnp.exp(psi.prior)
        covariance = noise * jnp.eye(len(self.targets)) + scale**2 * features @ features.T
        return jax.scipy.stats.multivariate_normal.logpdf(
            self.targets, jnp.zeros_like(self.targets), covariance
        )

    def posterior(self, psi) -> tuple[jax.Array, jax.Array]:
        """Mean and covariance of φ given all the data."""
        features = self.features(psi)
        noise, scale = jnp.exp(psi.likelihood), jnp.exp(psi.prior)
        precision = features.T @ features / noise + jnp.eye(features.shape[1]) / scale**2
        covariance = jnp.linalg.inv(precision)
        return covariance @ features.T @ self.targets / noise, covariance


def conjugate(num_data: int = 30, dim: int = 3, noise: float = 0.25, scale: float = 1.3) -> Conjugate:
    """The conjugate network, drawn from itself with a fixed seed."""
    rng = np.random.default_rng(7)
    trunk = jnp.asarray(rng.normal(size=(2, dim)), float)
    inputs = jnp.asarray(rng.normal(size=(num_data, 2)), float)
    head = jnp.asarray(scale * rng.normal(size=dim), float)
    error = jnp.asarray(np.sqrt(noise) * rng.normal(size=num_data), float)
    network = pb.types.Network(
        init=lambda key: {"trunk": trunk, "head": head},
        apply=lambda params, x: jnp.tanh(x @ params["trunk"]) @ params["head"],
    )
    model = pb.partial_bnn(
        network,
        "head",
        pb.gaussian(variance=pb.learned(noise)),
        pb.priors.normal(scale=pb.learned(scale)),
    )
    return Conjugate(model, inputs, jnp.tanh(inputs @ trunk) @ head + error)


def crescent(num_data: int = 100, start: float = 0.1, seed: int = 3) -> Crescent:
    """The crescent with data drawn at ψ = 1, φ = 0."""
    rng = np.random.default_rng(seed)
    return experiments.crescent(jnp.asarray(0.5 + rng.normal(size=num_data), float), start)

"""Variational Bayes: a Gaussian q(φ), mean-field or full-rank, trained jointly with ψ.

On each batch, with φ_s = m + L ε_s for S standard normal ε_s, ascend in (m, L, ψ)

    (1/S) Σ_s [(N/M) log p(batch | φ_s; ψ) + log π(φ_s; ψ) − log q(φ_s)],

an unbiased estimate of the evidence lower bound. L is diagonal (mean field) or lower triangular. The
parameters of q are constant in log q ("sticking the landing"): the gradient stays unbiased, because the
score has mean zero, and its noise vanishes where q is the posterior.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from partialbayes._utils.checks import require_positive, require_positive_int
from partialbayes.algorithms._common import default_optimizer
from partialbayes.feynman_kac._gradients import forward_pass
from partialbayes.samplers._target import prior_scale
from partialbayes.types import (
    Algorithm,
    Batch,
    Info,
    Model,
    Particles,
    Phi,
    Posterior,
    PRNGKey,
    Psi,
    Scalar,
)
from partialbayes.weights import uniform_log_weights


class Family(NamedTuple):
    """A Gaussian family for q.

    Attributes:
        init: ``(mean, scale) -> q``.
        sample: ``(q, noise) -> values``, row by row.
        log_density: ``(q, values) ->`` one value per row.
    """

    init: Callable[[Phi, Phi], Any]
    sample: Callable[[Any, Float[Array, "sample dim"]], Float[Array, "sample dim"]]
    log_density: Callable[[Any, Float[Array, "sample dim"]], Float[Array, " sample"]]


class MeanField(NamedTuple):
    """The law q(φ) = N(mean, diag(exp(2 log_scale)))."""

    mean: Phi
    log_scale: Phi


class FullRank(NamedTuple):
    """The law q(φ) = N(mean, L Lᵀ), L = diag(exp(log_diagonal)) + U/√d, U strictly lower triangular.

    Adam moves every entry by as much. So a row of U/√d moves by as much as one entry; without the root,
    rows of many entries outgrow the diagonal within a few steps, and L cannot be inverted any more.
    """

    mean: Phi
    log_diagonal: Phi
    lower: Float[Array, "dim dim"]

    def factor(self) -> Float[Array, "dim dim"]:
        """Compute L."""
        below = jnp.tril(self.lower, -1) * self.mean.shape[0] ** -0.5
        return below + jnp.diag(jnp.exp(self.log_diagonal))


class VariationalParams(NamedTuple):
    """The parameters to optimize: those of q, and ψ."""

    q: MeanField | FullRank
    psi: Psi


class VariationalState(NamedTuple):
    """q and ψ with their optimizer, and the noise that turns q into particles."""

    params: VariationalParams
    optimizer: optax.OptState
    noise: Float[Array, "particle dim"]


def mean_field_vb(
    model: Model,
    *,
    num_samples: int = 100,
    num_particles: int = 1000,
    initial_scale: float | Float[Array, ""] = 0.1,
    optimizer: optax.GradientTransformation | None = None,
) -> Algorithm:
    """Train q(φ) = N(m, diag(s²)) and ψ on the evidence lower bound.

    If the weights are correlated in the posterior, the variances are too small: for a Gaussian
    posterior, one over the diagonal of its precision.

    Args:
        model: The model to train.
        num_samples: Number S of draws of q per step.
        num_particles: Number of draws of q in the posterior.
        initial_scale: Initial standard deviation of q, relative to that of the prior. The initial mean
            is the initial weights of the network.
        optimizer: Optax transformation for q and ψ together; Adam at 0.01 by default.

    Returns:
        The algorithm, to pass to `fit`.

    Example:
        >>> import partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 20, 1]), "layers/0/*", pb.gaussian())
        >>> algorithm = pb.algorithms.mean_field_vb(model, num_samples=10)
    """
    return variational(model, _mean_field, num_samples, num_particles, initial_scale, optimizer)


def full_rank_vb(
    model: Model,
    *,
    num_samples: int = 100,
    num_particles: int = 1000,
    initial_scale: float | Float[Array, ""] = 0.1,
    optimizer: optax.GradientTransformation | None = None,
) -> Algorithm:
    """Train q(φ) = N(m, L Lᵀ) and ψ on the evidence lower bound.

    Args:
        model: The model to train.
        num_samples: Number S of draws of q per step.
        num_particles: Number of draws of q in the posterior.
        initial_scale: Initial standard deviation of q, relative to that of the prior. The initial mean
            is the initial weights of the network.
        optimizer: Optax transformation for q and ψ together; Adam at 0.01 by default.

    Returns:
        The algorithm, to pass to `fit`.

    Example:
        >>> import partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 20, 1]), "layers/0/*", pb.gaussian())
        >>> algorithm = pb.algorithms.full_rank_vb(model, num_samples=10)
    """
    return variational(model, _full_rank, num_samples, num_particles, initial_scale, optimizer)


def variational(
    model: Model,
    family: Family,
    num_samples: int,
    num_particles: int,
    initial_scale: float | Float[Array, ""],
    optimizer: optax.GradientTransformation | None,
) -> Algorithm:
    """Build variational Bayes with any reparameterized family."""
    require_positive_int("num_samples", num_samples, "for example num_samples=100.")
    require_positive_int("num_particles", num_particles, "for example num_particles=1000.")
    require_positive("initial_scale", initial_scale)
    optimizer = default_optimizer(optimizer)
    dim = model.split.dim

    def init(key: PRNGKey) -> VariationalState:
        key_start, key_noise = jax.random.split(key)
        phi, psi = model.init(key_start)
        scale = initial_scale * prior_scale(model, psi)
        params = VariationalParams(family.init(phi, scale), psi)
        noise = jax.random.normal(key_noise, (num_particles, dim), phi.dtype)
        return VariationalState(params, optimizer.init(params), noise)

    def step(key: PRNGKey, state: VariationalState, batch: Batch) -> tuple[VariationalState, Info]:
        noise = jax.random.normal(key, (num_samples, dim), state.noise.dtype)

        def negative_bound(params: VariationalParams) -> Scalar:
            q, psi = params
            values = family.sample(q, noise)
            log_likelihoods = forward_pass(model, values, psi, batch)
            log_priors = jax.vmap(lambda phi: model.log_prior(phi, psi))(values)
            log_q = family.log_density(jax.lax.stop_gradient(q), values)
            return -jnp.mean(batch.scale * log_likelihoods + log_priors - log_q)

        value, gradient = jax.value_and_grad(negative_bound)(state.params)
        updates, optimizer_state = optimizer.update(gradient, state.optimizer, state.params)
        params: VariationalParams = optax.apply_updates(state.params, updates)
        info = {"loss": value / (batch.scale * batch.mask.sum()), "elbo": -value}
        return VariationalState(params, optimizer_state, state.noise), info

    def posterior(state: VariationalState) -> Posterior:
        values = family.sample(state.params.q, state.noise)
        return Posterior(state.params.psi, Particles(values, uniform_log_weights(num_particles)))

    return Algorithm(model, init, step, posterior)


def _standard_normal(noise: Float[Array, "sample dim"]) -> Float[Array, " sample"]:
    return jax.scipy.stats.norm.logpdf(noise).sum(axis=1)


def _mean_field_log_density(q: MeanField, values: Float[Array, "sample dim"]) -> Float[Array, " sample"]:
    noise = (values - q.mean[None, :]) * jnp.exp(-q.log_scale)[None, :]
    return _standard_normal(noise) - q.log_scale.sum()


_mean_field = Family(
    init=lambda mean, scale: MeanField(mean, jnp.log(scale)),
    sample=lambda q, noise: q.mean[None, :] + jnp.exp(q.log_scale)[None, :] * noise,
    log_density=_mean_field_log_density,
)


def _full_rank_log_density(q: FullRank, values: Float[Array, "sample dim"]) -> Float[Array, " sample"]:
    centered = values - q.mean[None, :]
    noise = jax.scipy.linalg.solve_triangular(q.factor(), centered.T, lower=True).T
    return _standard_normal(noise) - q.log_diagonal.sum()


_full_rank = Family(
    init=lambda mean, scale: FullRank(mean, jnp.log(scale), jnp.zeros(mean.shape * 2, mean.dtype)),
    # ε @ Lᵀ, row by row L ε: its covariance is L Lᵀ.
    sample=lambda q, noise: q.mean[None, :] + noise @ q.factor().T,
    log_density=_full_rank_log_density,
)

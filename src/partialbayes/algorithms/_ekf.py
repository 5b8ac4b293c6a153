"""Extended Kalman filter: OHSMC with a normal law of φ in place of particles.

φ ~ N(m, P), P = L Lᵀ. On each batch, let ℓ = log p(batch | φ; ψ) have the gradient g and the
information F = Σ_n Jᵀ_n R_n⁻¹ J_n at m, where J_n is the Jacobian of the network's outputs for row n and
R_n⁻¹ the curvature −∇² log p(y_n | outputs):

    predict     P ← P + v I, or forget the fraction M/N in favor of the prior
    update      P' = (P⁻¹ + F)⁻¹,  m' = m + P' g
    evidence    log p(batch) ≈ ℓ(m) + ½ gᵀ P' g − ½ log |I + P F|
    ascend      ψ ← optimizer(ψ, (N/M) E_{N(m', P')}[∇_ψ log p(batch | φ; ψ)])

The gradient uses Fisher's identity on draws of the law. The gradient of the linearized evidence is the
same for linear outputs, but otherwise ψ can increase it without bound by making the outputs steep.

For normal targets this is the Kalman update with all rows of the batch at once, exact if the outputs are
linear in φ. For Bernoulli, categorical and Poisson targets R_n⁻¹ is the covariance of the targets. The
update is a natural-gradient step on φ with information matrix P'⁻¹ (Ollivier 2018).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

from partialbayes._utils.checks import require_positive, require_positive_int
from partialbayes.algorithms._common import ascend, default_optimizer, start_scale
from partialbayes.feynman_kac._gradients import one_pass
from partialbayes.kernels._forgetting import forget
from partialbayes.types import (
    Algorithm,
    Batch,
    Info,
    Model,
    Moments,
    Particles,
    Phi,
    Posterior,
    PRNGKey,
    Psi,
    Scalar,
)
from partialbayes.weights import uniform_log_weights


class Gaussian(NamedTuple):
    """The law N(mean, L Lᵀ)."""

    mean: Phi
    factor: Float[Array, "dim dim"]


class EkfState(NamedTuple):
    """ψ with its optimizer, the law of φ, and the standard draws that represent it."""

    psi: Psi
    optimizer: optax.OptState
    law: Gaussian
    draws: Float[Array, "particle dim"]


def ekf(
    model: Model,
    *,
    variance: float | Float[Array, ""] | None = None,
    covariance: Literal["full", "diagonal"] = "full",
    num_particles: int = 1000,
    optimizer: optax.GradientTransformation | None = None,
) -> Algorithm:
    """Train ψ, and follow φ by an extended Kalman filter.

    The posterior is N(m, P), represented by ``num_particles`` equally weighted draws. If these are more
    than the stochastic weights, their mean and covariance equal m and P.

    The filter starts at the prior's mean. If several layers are random and their prior is centered at
    zero, the outputs have no slope there, and the filter never leaves: make one layer random, or use
    another method.

    Args:
        model: The model to train. Its prior must be normal.
        variance: Variance of a random walk before each batch. By default the filter forgets the fraction
            M/N of earlier information instead, as the kernel `forgetting` does, and converges to the
            posterior.
        covariance: Form of the covariance of φ. "diagonal" keeps the diagonal of the precision, as
            mean-field variational Bayes does; variances are then too small if weights are correlated.
        num_particles: Number J of draws.
        optimizer: Optax transformation for ψ; Adam at 0.01 by default.

    Returns:
        The algorithm, to pass to `fit`.

    Raises:
        ValueError: The prior is not normal.

    Example:
        >>> import partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 20, 1]), "layers/1/*", pb.gaussian())
        >>> algorithm = pb.algorithms.ekf(model)
    """
    if variance is not None:
        require_positive("variance", variance)
    if covariance not in ("full", "diagonal"):
        raise ValueError(f'covariance must be "full" or "diagonal", not {covariance!r}.')
    require_positive_int("num_particles", num_particles, "for example num_particles=1000.")
    if not model.prior.normal:
        raise ValueError(
            "model has another prior, but ekf needs a normal prior; use priors.normal(), or ohsmc."
        )
    optimizer = default_optimizer(optimizer)

    def init(key: PRNGKey) -> EkfState:
        key_start, key_draws = jax.random.split(key)
        phi, psi = model.init(key_start)
        prior = model.prior_moments(psi)
        if model.pretrained:
            law = Gaussian(phi, jnp.diag(start_scale(model, phi, psi)))
        else:
            law = Gaussian(prior.mean, jnp.diag(jnp.sqrt(prior.variance)))
        draws = jax.random.normal(key_draws, (num_particles, model.split.dim), prior.mean.dtype)
        return EkfState(psi, optimizer.init(psi), law, _standardize(draws))

    def predict(law: Gaussian, psi: Psi, batch: Batch) -> Gaussian:
        if variance is None:
            return _forget(law, model.prior_moments(psi), batch.room)
        added = jnp.asarray(variance, law.mean.dtype) * jnp.eye(law.mean.shape[0])
        return law._replace(factor=jnp.linalg.cholesky(law.factor @ law.factor.T + added))

    def step(key: PRNGKey, state: EkfState, batch: Batch) -> tuple[EkfState, Info]:
        predicted = predict(state.law, state.psi, batch)

        law, log_evidence = kalman_update(model, state.psi, batch, predicted)
        if covariance == "diagonal":
            law = _drop_correlations(law)
        values = _particles(law, state.draws).values
        _, gradient = one_pass(model, values, state.psi, batch)
        ascent = gradient(jnp.full(num_particles, 1.0 / num_particles, values.dtype))
        new_psi, optimizer_state = ascend(optimizer, ascent, state.optimizer, state.psi)
        equal = jnp.asarray(num_particles, log_evidence.dtype)
        info = {
            "loss": -log_evidence / batch.mask.sum(),
            "ess": equal,
            "log_evidence_increment": log_evidence,
            "acceptance": jnp.ones_like(log_evidence),
            "ancestors": equal,
        }
        return EkfState(new_psi, optimizer_state, law, state.draws), info

    def posterior(state: EkfState) -> Posterior:
        return Posterior(state.psi, _particles(state.law, state.draws))

    return Algorithm(model, init, step, posterior)


def kalman_update(model: Model, psi: Psi, batch: Batch, law: Gaussian) -> tuple[Gaussian, Scalar]:
    """Update the law of φ by a batch, and compute the log-evidence of the batch."""

    def log_likelihood(phi: Phi) -> Scalar:
        return model.log_likelihood(phi, psi, batch).sum()

    value, slope = jax.value_and_grad(log_likelihood)(law.mean)
    jacobian, curvature = linearize(model, psi, batch, law.mean)
    spread = jacobian @ law.factor
    gained = jnp.einsum("nod,nop,npe->de", spread, curvature, spread)
    # I + Lᵀ F L is at least the identity, so its Cholesky factor exists in any precision.
    lower = jnp.linalg.cholesky(jnp.eye(law.mean.shape[0]) + 0.5 * (gained + gained.T))
    pulled = jax.scipy.linalg.solve_triangular(lower, law.factor.T @ slope, lower=True)
    factor = jax.scipy.linalg.solve_triangular(lower, law.factor.T, lower=True).T
    log_evidence = value + 0.5 * pulled @ pulled - jnp.log(jnp.diagonal(lower)).sum()
    return Gaussian(law.mean + factor @ pulled, factor), log_evidence


def linearize(
    model: Model, psi: Psi, batch: Batch, phi: Phi
) -> tuple[Float[Array, "example output dim"], Float[Array, "example output output"]]:
    """Compute the Jacobian of each row's outputs and the curvature of its log-density in them.

    The outputs include the likelihood's parameters if they are in φ. Negative curvature is set to zero.
    """
    likelihood = model.likelihood
    example = jax.eval_shape(lambda: model.outputs(phi, psi, batch.inputs))
    one_row = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape[1:], leaf.dtype), example)
    _, unravel = ravel_pytree((one_row, model.split.latents(phi)))

    def rows(phi: Phi) -> Float[Array, "example output"]:
        latents = model.split.latents(phi)
        outputs = model.outputs(phi, psi, batch.inputs)
        return jax.vmap(lambda row: ravel_pytree((row, latents))[0])(outputs)

    def log_density(row: Float[Array, " output"], target: PyTree) -> Scalar:
        outputs, latents = unravel(row)
        outputs, target = jax.tree.map(lambda leaf: leaf[None], (outputs, target))
        parameters = likelihood.parameters(outputs, psi.likelihood, latents)
        return likelihood.log_density(parameters, target)[0]

    curvature = -jax.vmap(jax.hessian(log_density))(rows(phi), batch.targets)
    curvature = jnp.where(batch.mask[:, None, None], curvature, 0.0)
    return jax.jacfwd(rows)(phi), _positive_part(curvature)


def _positive_part(
    matrices: Float[Array, "example output output"],
) -> Float[Array, "example output output"]:
    values, axes = jnp.linalg.eigh(matrices)
    return (axes * jnp.maximum(values, 0.0)[:, None, :]) @ jnp.swapaxes(axes, 1, 2)


def _forget(law: Gaussian, prior: Moments, fraction: Scalar) -> Gaussian:
    """Forget part of the law in favor of the prior, in closed form; see the `forgetting` kernel."""
    scale = jnp.sqrt(prior.variance)
    whitened = law.factor / scale[:, None]
    variance, axes = jnp.linalg.eigh(whitened @ whitened.T)
    variance = jnp.maximum(variance, np.finfo(variance.dtype).eps)
    mean = ((law.mean - prior.mean) / scale) @ axes
    after = forget(Moments(mean, variance), fraction)
    return Gaussian(
        prior.mean + scale * (axes @ after.mean),
        scale[:, None] * axes * jnp.sqrt(after.variance)[None, :],
    )


def _drop_correlations(law: Gaussian) -> Gaussian:
    precision = jnp.linalg.inv(law.factor @ law.factor.T)
    return law._replace(factor=jnp.diag(jax.lax.rsqrt(jnp.diagonal(precision))))


def _standardize(draws: Float[Array, "particle dim"]) -> Float[Array, "particle dim"]:
    """Transform draws to mean zero and covariance one, if there are more draws than dimensions."""
    num_particles, dim = draws.shape
    if num_particles <= dim:
        return draws
    orthonormal, _ = jnp.linalg.qr(draws - draws.mean(axis=0)[None, :])
    return orthonormal * jnp.sqrt(jnp.asarray(num_particles, draws.dtype))


def _particles(law: Gaussian, draws: Float[Array, "particle dim"]) -> Particles:
    values = law.mean[None, :] + draws @ law.factor.T
    return Particles(values, uniform_log_weights(draws.shape[0]))

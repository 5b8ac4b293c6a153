"""Weights and the ψ-gradient of all particles from one forward and one backward pass.

Fisher's identity gives the gradient of the log-evidence as a weighted sum over particles,

    g = (N/M) Σ_j w_j ∇_ψ log p(batch | φ_j; ψ) + Σ_j w_j ∇_ψ log π(φ_j; ψ),

the last term only where the prior has learned parameters. The weights w depend on the
log-likelihoods, the gradient on the weights: one `jax.vjp` gives both. Its pullback sums over the
particles as it goes, so nothing of size J × dim ψ is made, and because φ alone is mapped over,
layers before the stochastic ones run once for the batch.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from partialbayes._utils.jaxprs import partially_evaluate
from partialbayes.model._batch import split_rows
from partialbayes.parallel._sharding import PARTICLE, axis_size, shard_particles
from partialbayes.resampling import stratified_indices
from partialbayes.types import Batch, Model, Phi, PRNGKey, Psi, Scalar


def one_pass(
    model: Model, values: Float[Array, "particle dim"], psi: Psi, batch: Batch
) -> tuple[Float[Array, " particle"], Callable[[Float[Array, " particle"]], Psi]]:
    """Log-likelihoods of the batch, and the map from weights to the gradient.

    Returns:
        log p(batch | φ_j; ψ), unscaled, for each particle; and ``weights -> g``, the gradient of
        the module's equation for *linear* weights.
    """
    prior_is_learned = bool(jax.tree.leaves(psi.prior))

    def log_terms(psi: Psi) -> tuple[Array, Array]:
        log_likelihoods = forward_pass(model, values, psi, batch)
        if prior_is_learned:
            log_priors = jax.vmap(lambda phi: model.log_prior(phi, psi))(values)
        else:
            log_priors = jnp.zeros_like(log_likelihoods)
        return log_likelihoods, log_priors

    (log_likelihoods, _), pullback = jax.vjp(log_terms, psi)

    def gradient(weights: Float[Array, " particle"]) -> Psi:
        (ascent,) = pullback((batch.scale * weights, weights))
        return ascent

    return log_likelihoods, gradient


def forward_pass(
    model: Model, values: Float[Array, "particle dim"], psi: Psi, batch: Batch
) -> Float[Array, " particle"]:
    """Log-likelihoods of the batch, unscaled, for each particle.

    In chunks where the model asks for them. A derivative then keeps nothing of a chunk and computes
    it again on its way back, which costs one more forward pass.
    """
    rows = model.chunks.rows
    if rows is None or rows >= batch.mask.shape[0]:
        return _of_particles(model, values, psi, batch)

    @partial(jax.checkpoint, prevent_cse=False)
    def of_rows(piece: Batch) -> Array:
        return _of_particles(model, values, psi, piece)

    return jax.lax.map(of_rows, split_rows(batch, rows)).sum(axis=0)


def _of_particles(
    model: Model, values: Float[Array, "particle dim"], psi: Psi, batch: Batch
) -> Float[Array, " particle"]:
    def log_likelihood(phi: Phi) -> Scalar:
        return model.log_likelihood(phi, psi, batch).sum()

    chunk = model.chunks.particles
    if chunk is None or chunk >= values.shape[0]:
        return jax.vmap(log_likelihood)(shard_particles(values))
    # What does not depend on φ is computed once, not once for each chunk.
    staged = jax.checkpoint(partially_evaluate(log_likelihood, values[0]), prevent_cse=False)
    parts = axis_size(PARTICLE)
    if parts == 1 or values.shape[0] % parts:
        return jax.lax.map(staged, values, batch_size=chunk)
    # Each device goes through its own particles: a loop over all of them could not be divided.
    own = shard_particles(values.reshape(parts, -1, values.shape[1]))
    return jax.vmap(lambda part: jax.lax.map(staged, part, batch_size=chunk))(own).reshape(-1)


def sampled_pass(
    key: PRNGKey,
    num: int,
    model: Model,
    values: Float[Array, "particle dim"],
    psi: Psi,
    batch: Batch,
) -> tuple[Float[Array, " particle"], Callable[[Float[Array, " particle"]], Psi]]:
    """Like `one_pass`, but the gradient comes from ``num`` particles drawn by their weights.

    Unbiased, and the backward pass costs ``num`` particles: the forward pass of the others keeps
    nothing for it.
    """
    log_likelihoods = forward_pass(model, values, psi, batch)

    def gradient(weights: Float[Array, " particle"]) -> Psi:
        chosen = values[stratified_indices(key, weights, num)]
        _, gradient_of_chosen = one_pass(model, chosen, psi, batch)
        return gradient_of_chosen(jnp.full(num, 1.0 / num, weights.dtype))

    return log_likelihoods, gradient


class Ascent(NamedTuple):
    """Gradients of U_j = (N/M) log p(batch | φ_j; ψ) + log π(φ_j; ψ) for a cloud of particles.

    Attributes:
        log_densities: U_j.
        phi: ∇_φ U_j, one row per particle.
        psi: (1/J) Σ_j ∇_ψ U_j.
    """

    log_densities: Float[Array, " particle"]
    phi: Float[Array, "particle dim"]
    psi: Psi


def joint_gradient(model: Model, values: Float[Array, "particle dim"], psi: Psi, batch: Batch) -> Ascent:
    """Both gradients of equally weighted particles, from one forward and one backward pass."""

    def log_densities(values: Array, psi: Psi) -> Array:
        log_priors = jax.vmap(lambda phi: model.log_prior(phi, psi))(values)
        return batch.scale * forward_pass(model, values, psi, batch) + log_priors

    num_particles = values.shape[0]
    at_particles, pullback = jax.vjp(log_densities, values, psi)
    # One pullback of equal weights: the mean over particles for ψ, a share of its own for each φ_j.
    shares, mean_gradient = pullback(jnp.full_like(at_particles, 1.0 / num_particles))
    return Ascent(at_particles, num_particles * shares, mean_gradient)

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
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from partialbayes._utils.jaxprs import partially_evaluate
from partialbayes.model._batch import split_rows
from partialbayes.parallel._sharding import PARTICLE, axis_size, shard_particles
from partialbayes.resampling import stratified_indices
from partialbayes.types import Batch, Model, Phi, PRNGKey, Psi, Scalar, Slopes


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
        log_likelihoods: log p(batch | φ_j; ψ), unscaled.
        log_densities: U_j.
        slopes: Gradients in φ of U_j (``log_density``) and of its two terms, one row per particle; that
            of the likelihood (``log_potential``) unscaled.
        psi: Σ_j w_j ∇_ψ U_j.
    """

    log_likelihoods: Float[Array, " particle"]
    log_densities: Float[Array, " particle"]
    slopes: Slopes
    psi: Psi


Weigh: TypeAlias = Callable[[Float[Array, " particle"]], Float[Array, " particle"]]
"""From log-likelihoods to *linear* weights that sum to one, none of them zero."""


def equal_weights(log_likelihoods: Float[Array, " particle"]) -> Float[Array, " particle"]:
    """1/J each."""
    return jnp.full_like(log_likelihoods, 1.0 / log_likelihoods.shape[0])


def joint_gradient(
    model: Model,
    values: Float[Array, "particle dim"],
    psi: Psi,
    batch: Batch,
    weigh: Weigh = equal_weights,
) -> Ascent:
    """The gradient in φ of each particle and the weighted one in ψ, from one pass each way."""

    def log_likelihoods(values: Array, psi: Psi) -> Array:
        return forward_pass(model, values, psi, batch)

    return _ascent(model, log_likelihoods, values, psi, batch.scale, weigh)


def own_gradients(
    model: Model,
    key: PRNGKey,
    values: Float[Array, "particle dim"],
    psi: Psi,
    batch: Batch,
    rows: int,
) -> Ascent:
    """Like `joint_gradient`, with so many rows of the batch for each particle alone.

    They are dealt out in the order of the batch, which is random already, from a random place on:
    particles have different rows as long as there are enough.
    """
    num_rows = batch.mask.sum()
    (counted,) = jnp.nonzero(batch.mask, size=batch.mask.shape[0], fill_value=0)
    num_particles, rows = values.shape[0], min(rows, batch.mask.shape[0])
    first = jax.random.randint(key, (), 0, num_rows)
    places = first + jnp.arange(num_particles)[:, None] * rows + jnp.arange(rows)[None, :]
    # A particle that asks for more rows than count gets each of them once.
    chosen = counted[places % num_rows]
    mask = jnp.broadcast_to(jnp.arange(rows)[None, :] < num_rows, chosen.shape)
    inputs, targets = jax.tree.map(lambda leaf: leaf[chosen], (batch.inputs, batch.targets))
    scale = (batch.scale * num_rows / jnp.minimum(rows, num_rows)).astype(batch.scale.dtype)
    own = Batch(inputs, targets, mask, jnp.broadcast_to(scale, (num_particles,)))

    def log_likelihood(phi: Phi, psi: Psi, batch: Batch) -> Scalar:
        return model.log_likelihood(phi, psi, batch).sum()

    def log_likelihoods(values: Array, psi: Psi) -> Array:
        chunk = model.chunks.particles
        if chunk is None or chunk >= num_particles:
            return jax.vmap(log_likelihood, in_axes=(0, None, 0))(shard_particles(values), psi, own)
        staged = jax.checkpoint(lambda pair: log_likelihood(pair[0], psi, pair[1]), prevent_cse=False)
        return jax.lax.map(staged, (values, own), batch_size=chunk)

    return _ascent(model, log_likelihoods, values, psi, scale, equal_weights)


def _ascent(
    model: Model,
    log_likelihoods: Callable[[Array, Psi], Array],
    values: Float[Array, "particle dim"],
    psi: Psi,
    scale: Scalar,
    weigh: Weigh,
) -> Ascent:
    """Pull the weights back.

    That sums over the particles for ψ, and gives each φ_j its own gradient times its own weight, by
    which it is divided again.
    """

    def log_priors(values: Array, psi: Psi) -> Array:
        return jax.vmap(lambda phi: model.log_prior(phi, psi))(values)

    of_data, pull_data = jax.vjp(log_likelihoods, values, psi)
    of_prior, pull_prior = jax.vjp(log_priors, values, psi)
    weights = weigh(of_data)
    shares, psi_of_data = pull_data(scale * weights)
    prior_shares, psi_of_prior = pull_prior(weights)
    potential_slopes = shares / (scale * weights)[:, None]
    prior_slopes = prior_shares / weights[:, None]
    return Ascent(
        of_data,
        scale * of_data + of_prior,
        Slopes(scale * potential_slopes + prior_slopes, prior_slopes, potential_slopes),
        jax.tree.map(jnp.add, psi_of_data, psi_of_prior),
    )

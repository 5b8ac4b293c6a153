"""Compute the weights and the ψ-gradient of all particles in one forward and one backward pass.

Fisher's identity gives the gradient of the log-evidence as a weighted sum over particles,

    g = (N/M) Σ_j w_j ∇_ψ log p(batch | φ_j; ψ) + Σ_j w_j ∇_ψ log π(φ_j; ψ).

The last term vanishes unless the prior has learned parameters. The weights w depend on the
log-likelihoods, and the gradient depends on the weights; one `jax.vjp` gives both. Its pullback
accumulates the sum over particles, so no array of size J × dim ψ is created. Only φ is mapped over, so
the layers before the random ones run once per batch.
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
    """Compute log-likelihoods of the batch, and a function from weights to the gradient in ψ.

    Args:
        model: The model.
        values: The particles φ_j.
        psi: The deterministic weights ψ.
        batch: The batch of data.

    Returns:
        log p(batch | φ_j; ψ) for each particle, without the factor N/M; and a function ``weights -> g``,
        the gradient of (N/M) Σ_j w_j log p(batch | φ_j; ψ) + Σ_j w_j log π(φ_j; ψ) for weights that sum
        to one.
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
    """Compute the log-likelihood of the batch for each particle, without the factor N/M.

    If the model has chunks, they are computed one after another. A derivative then recomputes each chunk
    in its backward pass instead of storing it, which costs one more forward pass.

    Args:
        model: The model.
        values: The particles φ_j.
        psi: The deterministic weights ψ.
        batch: The batch of data.

    Returns:
        log p(batch | φ_j; ψ) for each particle.
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
    # Layers that do not depend on φ are computed once, not once per chunk.
    staged = jax.checkpoint(partially_evaluate(log_likelihood, values[0]), prevent_cse=False)
    parts = axis_size(PARTICLE)
    if parts == 1 or values.shape[0] % parts:
        return jax.lax.map(staged, values, batch_size=chunk)
    # Each device loops over its own particles: a loop over all of them cannot be divided.
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
    """Compute as `one_pass` does, but estimate the gradient from ``num`` particles drawn by weight.

    The gradient is unbiased, and its backward pass costs ``num`` particles.
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
        log_likelihoods: log p(batch | φ_j; ψ), without the factor N/M.
        log_densities: U_j.
        slopes: Gradients in φ of U_j (``log_density``) and of its two terms, one row per particle. The
            gradient of the likelihood (``log_potential``) is without the factor N/M.
        psi: Σ_j w_j ∇_ψ U_j.
    """

    log_likelihoods: Float[Array, " particle"]
    log_densities: Float[Array, " particle"]
    slopes: Slopes
    psi: Psi


Weigh: TypeAlias = Callable[[Float[Array, " particle"]], Float[Array, " particle"]]
"""A function from log-likelihoods to positive weights that sum to one."""


def equal_weights(log_likelihoods: Float[Array, " particle"]) -> Float[Array, " particle"]:
    """Return the weight 1/J for each particle."""
    return jnp.full_like(log_likelihoods, 1.0 / log_likelihoods.shape[0])


def joint_gradient(
    model: Model,
    values: Float[Array, "particle dim"],
    psi: Psi,
    batch: Batch,
    weigh: Weigh = equal_weights,
) -> Ascent:
    """Compute each particle's gradient in φ and the weighted gradient in ψ, in one pass each way.

    Args:
        model: The model.
        values: The particles φ_j.
        psi: The deterministic weights ψ.
        batch: The batch of data.
        weigh: A function from log-likelihoods to the weights of the gradient in ψ. Defaults to equal
            weights.

    Returns:
        Log-likelihoods, log-densities and gradients.
    """

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
    """Compute as `joint_gradient` does, but with ``rows`` rows of the batch for each particle.

    Rows are dealt out in the order of the batch, which is random, from a random start. Particles have
    different rows if there are enough.
    """
    num_rows = batch.mask.sum()
    (counted,) = jnp.nonzero(batch.mask, size=batch.mask.shape[0], fill_value=0)
    num_particles, rows = values.shape[0], min(rows, batch.mask.shape[0])
    first = jax.random.randint(key, (), 0, num_rows)
    places = first + jnp.arange(num_particles)[:, None] * rows + jnp.arange(rows)[None, :]
    # If there are fewer rows than requested, each particle gets all of them once.
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
    """Compute gradients by pulling back the weights.

    For ψ this sums over the particles. For φ_j it gives the gradient times the weight, so the weight is
    divided out.
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

"""Compute the predictive mixture Σ_j w_j p(y | x, φ_j; ψ) by pure, compiled functions.

Moments and log-densities accumulate over particles. Quantiles, cumulative probabilities and entropies
hold the likelihood's parameters of every particle for a chunk of rows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from partialbayes.model._batch import full_batch
from partialbayes.prediction._components import (
    components,
    of_components,
    over_components,
    over_rows,
    replace_zero_weight_particles,
)
from partialbayes.resampling import stratified_indices
from partialbayes.types import Batch, Chunks, Model, Particles, Phi, Posterior, PRNGKey, Psi

_compiled = partial(jax.jit, static_argnames=("model", "chunks"))


class MixtureMoments(NamedTuple):
    """Mean and variance of the mixture.

    Attributes:
        mean: Mean Σ_j w_j E[y | φ_j]; the probability of class one, or of each class.
        aleatoric_variance: Noise Σ_j w_j Var[y | φ_j], which more data do not reduce.
        epistemic_variance: Variance of E[y | φ_j] between particles, which more data reduce.
    """

    mean: Float[Array, "example ..."]
    aleatoric_variance: Float[Array, "example ..."]
    epistemic_variance: Float[Array, "example ..."]

    @property
    def variance(self) -> Float[Array, "example ..."]:
        """Total variance."""
        return self.aleatoric_variance + self.epistemic_variance


class Classes(NamedTuple):
    """Class probabilities of the mixture and the parts of their entropy.

    Attributes:
        probabilities: Probabilities Σ_j w_j p(class | φ_j), along the last axis.
        expected_entropy: Expected entropy Σ_j w_j H[y | φ_j], in nats.
        mutual_information: Mutual information Σ_j w_j KL(p(y | φ_j) ‖ p(y)) of y and φ.
    """

    probabilities: Float[Array, "example ... class"]
    expected_entropy: Float[Array, "example ..."]
    mutual_information: Float[Array, "example ..."]


class _Accumulated(NamedTuple):
    weight: Array
    mean: Array
    between: Array  # Σ w (m − mean)²
    within: Array  # Σ w v


def _merge(a: _Accumulated, b: _Accumulated) -> _Accumulated:
    """Merge the moments of two weighted sets, without cancellation."""
    weight = a.weight + b.weight
    share = b.weight / jnp.maximum(weight, np.finfo(weight.dtype).tiny)
    gap = b.mean - a.mean
    return _Accumulated(
        weight,
        a.mean + gap * share,
        a.between + b.between + jnp.square(gap) * a.weight * share,
        a.within + b.within,
    )


@_compiled
def moments(model: Model, posterior: Posterior, inputs: PyTree, chunks: Chunks) -> MixtureMoments:
    """Compute the mean, and the variance in its two parts."""
    posterior = replace_zero_weight_particles(posterior)

    def accumulate(psi: Psi, values: Array, log_weights: Array, inputs: PyTree) -> _Accumulated:
        def one(phi: Phi) -> tuple[Array, Array]:
            parameters = model.parameters(phi, psi, inputs)
            return model.likelihood.mean(parameters), model.likelihood.variance(parameters)

        weights = jnp.exp(log_weights)
        means, variances = jax.vmap(one)(values)
        total = weights.sum()
        mean = jnp.tensordot(weights, means, 1) / jnp.maximum(total, np.finfo(total.dtype).tiny)
        between = jnp.tensordot(weights, jnp.square(means - mean[None]), 1)
        return _Accumulated(total, mean, between, jnp.tensordot(weights, variances, 1))

    def rows(inputs: PyTree) -> MixtureMoments:
        result = over_components(
            lambda psi, values, log_weights: accumulate(psi, values, log_weights, inputs),
            _merge,
            posterior,
            chunks.particles,
        )
        return MixtureMoments(result.mean, result.within / result.weight, result.between / result.weight)

    return over_rows(rows, inputs, chunks.rows)


@_compiled
def log_density(
    model: Model, posterior: Posterior, data: Batch, chunks: Chunks
) -> Float[Array, " example"]:
    """Compute log Σ_j w_j p(y_i | x_i, φ_j; ψ) of checked data."""
    posterior = replace_zero_weight_particles(posterior)

    def rows(pair: tuple[PyTree, PyTree]) -> Array:
        batch = full_batch(*pair)

        def partial_sum(psi: Psi, values: Array, log_weights: Array) -> Array:
            log_densities = jax.vmap(lambda phi: model.log_likelihood(phi, psi, batch))(values)
            return jax.nn.logsumexp(log_densities + log_weights[:, None], axis=0)

        return over_components(partial_sum, jnp.logaddexp, posterior, chunks.particles)

    return over_rows(rows, (data.inputs, data.targets), chunks.rows)


@_compiled
def classes(model: Model, posterior: Posterior, inputs: PyTree, chunks: Chunks) -> Classes:
    """Compute class probabilities and the two parts of their entropy."""
    assert model.likelihood.probabilities is not None
    of_parameters = model.likelihood.probabilities
    posterior = replace_zero_weight_particles(posterior)
    weights = jnp.exp(posterior.particles.log_weights.ravel())

    def rows(inputs: PyTree) -> Classes:
        parameters = components(model, posterior, inputs, chunks.particles)
        each = jax.vmap(of_parameters)(parameters)
        mixed = jnp.tensordot(weights, each, 1)
        expected = jnp.tensordot(weights, jax.scipy.special.entr(each).sum(axis=-1), 1)
        # A divergence rather than a difference of entropies, to avoid cancellation.
        divergences = jax.scipy.special.rel_entr(each, mixed[None]).sum(axis=-1)
        return Classes(mixed, expected, jnp.tensordot(weights, divergences, 1))

    return over_rows(rows, inputs, chunks.rows)


@_compiled
def cdf(
    model: Model, posterior: Posterior, inputs: PyTree, targets: Array, chunks: Chunks
) -> Float[Array, "example ..."]:
    """Compute cumulative probabilities Σ_j w_j P(Y ≤ y | φ_j) of each entry."""
    posterior = replace_zero_weight_particles(posterior)

    def rows(pair: tuple[PyTree, Array]) -> Array:
        inputs, targets = pair
        parameters = components(model, posterior, inputs, chunks.particles)
        return _cdf(model, posterior, parameters, targets)

    return over_rows(rows, (inputs, targets), chunks.rows)


def _cdf(model: Model, posterior: Posterior, parameters: PyTree, targets: Array) -> Array:
    assert model.likelihood.cdf is not None
    each = jax.vmap(model.likelihood.cdf, in_axes=(0, None))(parameters, targets)
    return jnp.tensordot(jnp.exp(posterior.particles.log_weights.ravel()), each, 1)


@_compiled
def quantile(
    model: Model, posterior: Posterior, inputs: PyTree, levels: Float[Array, " level"], chunks: Chunks
) -> Float[Array, "level example ..."]:
    """Compute the smallest y with cumulative probability at least each level, by bisection."""
    posterior = replace_zero_weight_particles(posterior)

    def rows(inputs: PyTree) -> Array:
        parameters = components(model, posterior, inputs, chunks.particles)
        likelihood = model.likelihood
        is_count = likelihood.kind == "count"
        means, variances = (
            jax.vmap(function)(parameters) for function in (likelihood.mean, likelihood.variance)
        )
        weights = jnp.exp(posterior.particles.log_weights.ravel())
        mean = jnp.tensordot(weights, means, 1)
        variance = jnp.tensordot(weights, variances + jnp.square(means - mean[None]), 1)
        smallest = np.finfo(mean.dtype).eps * (1.0 + jnp.abs(mean))
        width = jnp.where(jnp.isfinite(variance), jnp.sqrt(variance), 1.0) + smallest

        def one(level: Array) -> Array:
            def below(values: Array) -> Array:
                return _cdf(model, posterior, parameters, values) < level

            found = _bisect(below, mean, width, 0.5 if is_count else 0.0)
            return jnp.floor(found) if is_count else found

        # Examples come first, as `over_rows` needs.
        return jnp.moveaxis(jax.lax.map(one, levels), 0, 1)

    return jnp.moveaxis(over_rows(rows, inputs, chunks.rows), 1, 0)


def _bisect(
    below: Callable[[Array], Array], start: Array, width: Array, tolerance: float
) -> Float[Array, ...]:
    """Find the smallest value that is not below, within tolerance or rounding.

    The value is start + width · sinh(u), and u is bisected: fine near the start, with a reach that needs
    no search for a bracket.
    """
    eps = np.finfo(start.dtype).eps

    def at(place: Array) -> Array:
        return start + width * jnp.sinh(place)

    def is_wide(bracket: tuple[Array, Array]) -> Array:
        low, high = map(at, bracket)
        allowed = jnp.maximum(tolerance, 2.0 * eps * (jnp.maximum(jnp.abs(low), jnp.abs(high)) + width))
        return ((high - low > allowed) & (bracket[1] - bracket[0] > eps * jnp.abs(bracket[1]))).any()

    def halve(bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bracket
        middle = 0.5 * (low + high)
        is_below = below(at(middle))
        return jnp.where(is_below, middle, low), jnp.where(is_below, high, middle)

    furthest = jnp.full(start.shape, 40.0, start.dtype)
    return at(jax.lax.while_loop(is_wide, halve, (-furthest, furthest))[1])


@partial(jax.jit, static_argnames=("model", "num", "chunks"))
def sample(
    model: Model, posterior: Posterior, inputs: PyTree, key: PRNGKey, num: int, chunks: Chunks
) -> PyTree:
    """Draw new targets: each draw takes one particle for all rows, and noise for each row."""
    key_component, key_noise = jax.random.split(key)
    log_weights = posterior.particles.log_weights
    chosen = jax.random.categorical(key_component, log_weights.ravel(), shape=(num,))
    return draws(model, posterior, chosen, inputs, key_noise, chunks)


@partial(jax.jit, static_argnames=("model", "num", "chunks"))
def even_sample(
    model: Model, posterior: Posterior, inputs: PyTree, key: PRNGKey, num: int, chunks: Chunks
) -> Float[Array, "draw example ..."]:
    """Draw new targets from particles that are stratified by weight."""
    key_component, key_noise = jax.random.split(key)
    weights = jax.nn.softmax(posterior.particles.log_weights.ravel())
    chosen = stratified_indices(key_component, weights, num)
    drawn = draws(model, posterior, chosen, inputs, key_noise, chunks)
    return drawn.astype(jnp.result_type(float))


def draws(
    model: Model, posterior: Posterior, chosen: Array, inputs: PyTree, key: PRNGKey, chunks: Chunks
) -> PyTree:
    """Draw one target per row and chosen component, with a key each, so that chunks do not matter."""
    values, log_weights = posterior.particles
    numbers = jnp.arange(jax.tree.leaves(inputs)[0].shape[0])
    pairs = (chosen, jnp.arange(chosen.shape[0]))

    def rows(pair: tuple[PyTree, Array]) -> PyTree:
        inputs, numbers = pair
        outputs = of_components(model.outputs, posterior, inputs, chunks.particles)

        def one(pair: tuple[Array, Array]) -> PyTree:
            index, draw = pair
            key_draw = jax.random.fold_in(key, draw)
            learned = posterior.psi.likelihood
            if posterior.is_ensemble:
                learned = jax.tree.map(lambda leaf: leaf[index // log_weights.shape[1]], learned)
            latent = model.split.latents(values.reshape(-1, values.shape[-1])[index])

            def one_row(row: PyTree, number: Array) -> PyTree:
                row = jax.tree.map(lambda leaf: leaf[None], row)
                parameters = model.likelihood.parameters(row, learned, latent)
                drawn = model.likelihood.sample(jax.random.fold_in(key_draw, number), parameters)
                return jax.tree.map(lambda leaf: leaf[0], drawn)

            return jax.vmap(one_row)(jax.tree.map(lambda leaf: leaf[index], outputs), numbers)

        if chunks.particles is None or chunks.particles >= chosen.shape[0]:
            drawn = jax.vmap(one)(pairs)
        else:
            drawn = jax.lax.map(one, pairs, batch_size=chunks.particles)
        return jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, 1), drawn)

    drawn = over_rows(rows, (inputs, numbers), chunks.rows)
    return jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 1, 0), drawn)


@_compiled
def component_moments(
    model: Model, posterior: Posterior, inputs: PyTree, chunks: Chunks
) -> tuple[Float[Array, "component example ..."], Float[Array, "component example ..."]]:
    """Compute mean and variance of each component, with the members of an ensemble concatenated."""
    posterior = replace_zero_weight_particles(posterior)

    def rows(inputs: PyTree) -> tuple[Array, Array]:
        parameters = components(model, posterior, inputs, chunks.particles)
        functions = (model.likelihood.mean, model.likelihood.variance)
        means, variances = (jnp.moveaxis(jax.vmap(function)(parameters), 0, 1) for function in functions)
        return means, variances

    means, variances = (jnp.moveaxis(leaf, 1, 0) for leaf in over_rows(rows, inputs, chunks.rows))
    return means, variances


_CACHED_PREDICTIONS = 50_000  # particles × rows; half and twice as many do nearly as well


def rows_to_score(model: Model, particles: Particles, rows: int) -> int:
    """Choose the rows to predict at a time: the model's chunk, or what fits a processor's cache.

    For the networks of the paper this is twice as fast as all rows at once.
    """
    if model.chunks.rows is not None:
        return model.chunks.rows
    limit = max(1, _CACHED_PREDICTIONS // particles.log_weights.size)
    return -(-rows // -(-rows // limit))  # chunks of equal size, so that none is padding

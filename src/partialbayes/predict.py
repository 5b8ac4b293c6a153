"""The posterior predictive, weights respected, in bounded memory.

A posterior is a mixture: Σ_j w_j p(y | x, φ_j; ψ), over members too where it is an ensemble.
Everything here runs over chunks of rows and of particles and gives the same as all at once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from partialbayes.batches import checked, whole
from partialbayes.checks import as_float_arrays, num_rows, require_count, require_finite
from partialbayes.types import Batch, Model, Phi, Posterior, Psi

Accumulated = TypeVar("Accumulated")


class Predictive(NamedTuple):
    """Moments of the predictive mixture.

    Attributes:
        mean: Σ_j w_j E[y | φ_j]; the probability of class one, or of each class.
        variance: Total variance, aleatoric plus epistemic.
        epistemic: Variance between particles of E[y | φ_j]: the part more data would remove.
    """

    mean: Float[Array, "example ..."]
    variance: Float[Array, "example ..."]
    epistemic: Float[Array, "example ..."]


def predict(
    model: Model,
    posterior: Posterior,
    inputs: PyTree,
    *,
    data_chunk: int | None = None,
    particle_chunk: int | None = None,
) -> Predictive:
    """Mean and variance of new targets.

    Args:
        model: The model that was trained.
        posterior: From `fit`.
        inputs: New inputs, one row per example.
        data_chunk: Rows at a time; all by default.
        particle_chunk: Particles at a time; all, of every member of an ensemble, by default.

    Example:
        >>> import jax, jax.numpy as jnp, partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 5, 1]), "layers/0/*", pb.gaussian())
        >>> x = jnp.linspace(-1.0, 1.0, 8)[:, None]
        >>> trained = pb.fit(pb.ohsmc(model, num_particles=10), (x, x), epochs=2, progress=False)
        >>> pb.predict(model, trained.posterior, x).mean.shape
        (8,)
    """
    num_rows("inputs", inputs)
    require_finite("inputs", inputs, "drop those rows or fill the gaps before predicting.")
    _check_chunks(data_chunk, particle_chunk)
    return _predict(model, posterior, as_float_arrays(inputs), data_chunk, particle_chunk)


def log_predictive_density(
    model: Model,
    posterior: Posterior,
    data: Any,
    *,
    data_chunk: int | None = None,
    particle_chunk: int | None = None,
) -> Float[Array, " example"]:
    """Log Σ_j w_j p(y_i | x_i, φ_j; ψ) for each row.

    Args:
        model: The model that was trained.
        posterior: From `fit`.
        data: A pair ``(inputs, targets)``.
        data_chunk: Rows at a time; all by default.
        particle_chunk: Particles at a time; all, of every member of an ensemble, by default.

    Example:
        >>> import jax.numpy as jnp, partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 5, 1]), "layers/0/*", pb.gaussian())
        >>> x = jnp.linspace(-1.0, 1.0, 8)[:, None]
        >>> trained = pb.fit(pb.map_estimate(model), (x, x), epochs=2, progress=False)
        >>> pb.log_predictive_density(model, trained.posterior, (x, x)).shape
        (8,)
    """
    _check_chunks(data_chunk, particle_chunk)
    return mixture_log_density(
        model, posterior, checked(model, data, "data"), data_chunk, particle_chunk
    )


def _check_chunks(data_chunk: int | None, particle_chunk: int | None) -> None:
    for name, chunk in (("data_chunk", data_chunk), ("particle_chunk", particle_chunk)):
        if chunk is not None:
            require_count(name, chunk, "or None for everything at once.")


class _Moments(NamedTuple):
    weight: Array
    mean: Array
    between: Array  # Σ w (m − mean)²
    within: Array  # Σ w v


def _merge(a: _Moments, b: _Moments) -> _Moments:
    """Moments of the union of two weighted sets, without cancellation."""
    weight = a.weight + b.weight
    share = b.weight / jnp.maximum(weight, np.finfo(weight.dtype).tiny)
    gap = b.mean - a.mean
    return _Moments(
        weight,
        a.mean + gap * share,
        a.between + b.between + jnp.square(gap) * a.weight * share,
        a.within + b.within,
    )


@partial(jax.jit, static_argnames=("model", "data_chunk", "particle_chunk"))
def _predict(
    model: Model,
    posterior: Posterior,
    inputs: PyTree,
    data_chunk: int | None,
    particle_chunk: int | None,
) -> Predictive:
    def moments(psi: Psi, values: Array, log_weights: Array, inputs: PyTree) -> _Moments:
        def one(phi: Phi) -> tuple[Array, Array]:
            parameters = model.predict(phi, psi, inputs)
            return model.likelihood.mean(parameters), model.likelihood.variance(parameters)

        weights = jnp.exp(log_weights)
        # A particle of weight zero says nothing, not even NaN.
        means, variances = (_where_leading(weights > 0, x, 0.0) for x in jax.vmap(one)(values))
        total = weights.sum()
        mean = jnp.tensordot(weights, means, 1) / jnp.maximum(total, np.finfo(total.dtype).tiny)
        between = jnp.tensordot(weights, jnp.square(means - mean[None]), 1)
        return _Moments(total, mean, between, jnp.tensordot(weights, variances, 1))

    def rows(inputs: PyTree) -> Predictive:
        result = _over_components(
            lambda psi, values, log_weights: moments(psi, values, log_weights, inputs),
            _merge,
            posterior,
            particle_chunk,
        )
        within, between = result.within / result.weight, result.between / result.weight
        return Predictive(result.mean, within + between, between)

    return _over_rows(rows, inputs, data_chunk)


@partial(jax.jit, static_argnames=("model", "data_chunk", "particle_chunk"))
def mixture_log_density(
    model: Model,
    posterior: Posterior,
    data: Batch,
    data_chunk: int | None,
    particle_chunk: int | None,
) -> Float[Array, " example"]:
    """`log_predictive_density` of data that have been checked."""

    def rows(pair: tuple[PyTree, PyTree]) -> Array:
        batch = whole(*pair)

        def partial_sum(psi: Psi, values: Array, log_weights: Array) -> Array:
            log_densities = jax.vmap(lambda phi: model.log_likelihood(phi, psi, batch))(values)
            log_densities = _where_leading(log_weights > -jnp.inf, log_densities, -jnp.inf)
            return jax.nn.logsumexp(log_densities + log_weights[:, None], axis=0)

        return _over_components(partial_sum, jnp.logaddexp, posterior, particle_chunk)

    return _over_rows(rows, (data.inputs, data.targets), data_chunk)


def _over_components(
    function: Callable[[Psi, Array, Array], Accumulated],
    merge: Callable[[Accumulated, Accumulated], Accumulated],
    posterior: Posterior,
    chunk: int | None,
) -> Accumulated:
    """Accumulate over chunks of particles, and over the members of an ensemble.

    With a chunk the members go one after another; without, all at once.
    """

    def one_member(psi: Psi, values: Array, log_weights: Array) -> Accumulated:
        size = values.shape[0]
        if chunk is None or chunk >= size:
            return function(psi, values, log_weights)
        count = -(-size // chunk)
        padding = count * chunk - size
        values = jnp.pad(values, ((0, padding), (0, 0)), mode="edge").reshape(count, chunk, -1)
        log_weights = jnp.pad(log_weights, (0, padding), constant_values=-jnp.inf)
        log_weights = log_weights.reshape(count, chunk)

        def step(total: Accumulated, piece: tuple[Array, Array]) -> tuple[Accumulated, None]:
            return merge(total, function(psi, *piece)), None

        first = function(psi, values[0], log_weights[0])
        total, _ = jax.lax.scan(step, first, (values[1:], log_weights[1:]))
        return total

    values, log_weights = posterior.particles
    if log_weights.ndim == 1:
        return one_member(posterior.psi, values, log_weights)
    stacked = (posterior.psi, values, log_weights)
    if chunk is None:
        members = jax.vmap(one_member)(*stacked)
    else:
        members = jax.lax.map(lambda member: one_member(*member), stacked)
    first = jax.tree.map(lambda leaf: leaf[0], members)
    rest = jax.tree.map(lambda leaf: leaf[1:], members)
    total, _ = jax.lax.scan(lambda total, member: (merge(total, member), None), first, rest)
    return total


def _where_leading(condition: Array, values: Array, otherwise: float) -> Array:
    """`jnp.where` with a condition on the leading axis only."""
    return jnp.where(condition.reshape(-1, *[1] * (values.ndim - 1)), values, otherwise)


def _over_rows(
    function: Callable[[PyTree], Accumulated], tree: PyTree, chunk: int | None
) -> Accumulated:
    """Apply a function of rows to chunks of them, one after another."""
    rows = num_rows("inputs", tree)
    if chunk is None or chunk >= rows:
        return function(tree)
    count = -(-rows // chunk)

    def cut(leaf: Array) -> Array:
        padding = [(0, count * chunk - rows)] + [(0, 0)] * (leaf.ndim - 1)
        return jnp.pad(leaf, padding, mode="edge").reshape(count, chunk, *leaf.shape[1:])

    pieces = jax.lax.map(function, jax.tree.map(cut, tree))
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[:rows], pieces)

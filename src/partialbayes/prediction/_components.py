"""Compute on the components of the predictive mixture in chunks.

A posterior is a mixture of its particles, or of the particles of its members if it is an ensemble.
Computing in chunks of rows and particles gives the same results as all at once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from partialbayes.model._batch import cut
from partialbayes.types import Model, ModelOutputs, Phi, Posterior, Psi

Accumulated = TypeVar("Accumulated")


def components(model: Model, posterior: Posterior, inputs: PyTree, particle_chunk: int | None) -> PyTree:
    """Compute the likelihood's parameters of every component, along a leading axis."""
    return of_components(model.parameters, posterior, inputs, particle_chunk)


def of_components(
    function: ModelOutputs, posterior: Posterior, inputs: PyTree, particle_chunk: int | None
) -> PyTree:
    """Compute a function of φ, ψ and the inputs for every component, along a leading axis."""

    def one_member(psi: Psi, values: Array) -> PyTree:
        def one(phi: Phi) -> PyTree:
            return function(phi, psi, inputs)

        if particle_chunk is None or particle_chunk >= values.shape[0]:
            return jax.vmap(one)(values)
        return jax.lax.map(one, values, batch_size=particle_chunk)

    psi, (values, _) = posterior
    if not posterior.is_ensemble:
        return one_member(psi, values)
    if particle_chunk is None:
        members = jax.vmap(one_member)(psi, values)
    else:
        members = jax.lax.map(lambda member: one_member(*member), (psi, values))
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), members)


def replace_zero_weight_particles(posterior: Posterior) -> Posterior:
    """Replace each component of weight zero by a copy of the heaviest one.

    It still has weight zero, and its values, even NaN, do not reach a result.
    """
    psi, (values, log_weights) = posterior
    given = log_weights
    if posterior.is_ensemble:
        heaviest = given.max(axis=1)
        member = jnp.where(heaviest > -jnp.inf, jnp.arange(len(heaviest)), jnp.argmax(heaviest))
        psi, values, given = jax.tree.map(lambda leaf: leaf[member], (psi, values, given))
    best = jnp.argmax(given, axis=-1)[..., None, None]
    kept = jnp.expand_dims(given > -jnp.inf, -1)
    values = jnp.where(kept, values, jnp.take_along_axis(values, best, axis=-2))
    return Posterior(psi, posterior.particles._replace(values=values))


def over_components(
    function: Callable[[Psi, Array, Array], Accumulated],
    merge: Callable[[Accumulated, Accumulated], Accumulated],
    posterior: Posterior,
    chunk: int | None,
) -> Accumulated:
    """Accumulate over chunks of particles, and over the members of an ensemble.

    With a chunk, members are processed one after another; without, all at once.
    """

    def one_member(psi: Psi, values: Array, log_weights: Array) -> Accumulated:
        size = values.shape[0]
        if chunk is None or chunk >= size:
            return function(psi, values, log_weights)
        values = cut(values, chunk)
        padding = (0, values.shape[0] * chunk - size)
        log_weights = jnp.pad(log_weights, padding, constant_values=-jnp.inf).reshape(-1, chunk)

        def step(total: Accumulated, piece: tuple[Array, Array]) -> tuple[Accumulated, None]:
            return merge(total, function(psi, *piece)), None

        first = function(psi, values[0], log_weights[0])
        total, _ = jax.lax.scan(step, first, (values[1:], log_weights[1:]))
        return total

    values, log_weights = posterior.particles
    if not posterior.is_ensemble:
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


def over_rows(function: Callable[[PyTree], Accumulated], tree: PyTree, chunk: int | None) -> Accumulated:
    """Apply a function of rows to chunks of them, one after another."""
    rows = jax.tree.leaves(tree)[0].shape[0]
    if chunk is None or chunk >= rows:
        return function(tree)
    pieces = jax.lax.map(function, jax.tree.map(partial(cut, size=chunk), tree))
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[:rows], pieces)

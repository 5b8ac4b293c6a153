"""The rivals: OHSMC as the paper describes it, written plainly, and the bare cost of the passes.

The naive step evaluates the likelihood of every particle, makes the gradient of every particle for
itself (a second forward pass and J gradients of the size of ψ), and averages them by weight. One
Python call does one batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from reproduction.networks.cnn import cnn

import partialbayes as pb


class NaiveState(NamedTuple):
    psi: Any
    optimizer: Any
    values: jax.Array
    log_weights: jax.Array


def naive_ohsmc(
    model: pb.types.Model, num_particles: int, variance: float = 0.01
) -> tuple[Callable[..., NaiveState], Callable[..., NaiveState]]:
    """``init(key)`` and ``step(key, state, batch)``; the step is to be compiled by itself."""
    optimizer = optax.adam(0.01)

    def init(key: jax.Array) -> NaiveState:
        key_start, key_prior = jax.random.split(key)
        psi = model.init(key_start).psi
        values = model.sample_prior(key_prior, psi, num_particles)
        log_weights = jnp.full(num_particles, -jnp.log(num_particles))
        return NaiveState(psi, optimizer.init(psi), values, log_weights)

    def step(key: jax.Array, state: NaiveState, batch: pb.types.Batch) -> NaiveState:
        key_resample, key_move = jax.random.split(key)
        strata = (jnp.arange(num_particles) + jax.random.uniform(key_resample, (num_particles,))) / (
            num_particles
        )
        cumulative = jnp.cumsum(jnp.exp(state.log_weights))
        indices = jnp.clip(jnp.searchsorted(cumulative, strata), 0, num_particles - 1)
        values = state.values[indices]
        values = values + jnp.sqrt(variance) * jax.random.normal(key_move, values.shape)

        def log_likelihood(psi: Any, phi: jax.Array) -> jax.Array:
            return model.log_likelihood(phi, psi, batch).sum()

        log_likelihoods = jax.vmap(log_likelihood, (None, 0))(state.psi, values)
        log_weights = log_likelihoods - jax.nn.logsumexp(log_likelihoods)
        gradients = jax.vmap(jax.grad(log_likelihood), (None, 0))(state.psi, values)
        weights = jnp.exp(log_weights)
        gradient = jax.tree.map(
            lambda leaf: -batch.scale * jnp.einsum("j,j...->...", weights, leaf), gradients
        )
        updates, opt = optimizer.update(gradient, state.optimizer, state.psi)
        return NaiveState(optax.apply_updates(state.psi, updates), opt, values, log_weights)

    return init, step


def bare_passes(model: pb.types.Model) -> Callable[..., Any]:
    """One forward and one backward pass of J networks: what no method can do without."""

    def passes(values: jax.Array, psi: Any, batch: pb.types.Batch) -> Any:
        def total(psi: Any) -> jax.Array:
            return jax.vmap(lambda phi: model.log_likelihood(phi, psi, batch).sum())(values).sum()

        return jax.value_and_grad(total)(psi)

    return passes


def plain_cnn() -> pb.types.Network:
    """The MNIST network by the operations one would reach for first."""

    def apply(params: Any, images: jax.Array) -> jax.Array:
        first, second, third, fourth = params["layers"]
        for layer in (first, second):
            images = jax.lax.conv_general_dilated(
                images, layer["kernel"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
            images = jax.nn.relu(images + layer["bias"])
            sums = jax.lax.reduce_window(images, 0.0, jax.lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
            images = sums / 4.0
        hidden = images.reshape(images.shape[0], -1)
        hidden = jax.nn.relu(hidden @ third["kernel"] + third["bias"])
        return hidden @ fourth["kernel"] + fourth["bias"]

    return cnn()._replace(apply=apply)

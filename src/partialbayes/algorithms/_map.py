"""Maximum a posteriori: one point for φ and ψ together.

    (φ, ψ) ← optimizer ascending (N/M) log p(batch | φ; ψ) + log π(φ; ψ)

It is the ordinary way to train the same network, and the baseline of the other methods.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from partialbayes._utils.warn import warn
from partialbayes.algorithms._common import default_optimizer
from partialbayes.errors import NoMaximumWarning
from partialbayes.feynman_kac._gradients import forward_pass
from partialbayes.types import (
    Algorithm,
    Batch,
    Info,
    Model,
    Params,
    Particles,
    Posterior,
    PRNGKey,
    Scalar,
)
from partialbayes.weights import weighted_mean


class MapState(NamedTuple):
    """The current point and its optimizer."""

    params: Params
    optimizer: optax.OptState


def map_estimate(model: Model, *, optimizer: optax.GradientTransformation | None = None) -> Algorithm:
    """Train φ and ψ as one point; the posterior is a single particle.

    Args:
        model: The model to train. With a learned prior scale the objective has no maximum, which gives a
            `NoMaximumWarning`.
        optimizer: Optax transformation for φ and ψ; Adam at 0.01 by default.

    Returns:
        The algorithm, to pass to `fit`.

    Example:
        >>> import partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 20, 1]), "layers/0/*", pb.gaussian())
        >>> algorithm = pb.map_estimate(model)
    """
    if jax.tree.leaves(model.prior.init()):
        warn(
            "model has a learned prior scale, with which the objective of MAP has no maximum; fix the "
            "scale, or learn it by ohsmc, smc or VB.",
            NoMaximumWarning,
        )
    optimizer = default_optimizer(optimizer)

    def init(key: PRNGKey) -> MapState:
        params = model.init(key)
        return MapState(params, optimizer.init(params))

    def step(key: PRNGKey, state: MapState, batch: Batch) -> tuple[MapState, Info]:
        num_data = batch.scale * batch.mask.sum()

        def loss(params: Params) -> Scalar:
            (log_likelihood,) = forward_pass(model, params.phi[None, :], params.psi, batch)
            return -(batch.scale * log_likelihood + model.log_prior(params.phi, params.psi))

        value, gradient = jax.value_and_grad(loss)(state.params)
        updates, optimizer_state = optimizer.update(gradient, state.optimizer, state.params)
        params: Params = optax.apply_updates(state.params, updates)
        return MapState(params, optimizer_state), {"loss": value / num_data}

    def posterior(state: MapState) -> Posterior:
        values = state.params.phi[None, :]
        return Posterior(state.params.psi, Particles(values, jnp.zeros(1, values.dtype)))

    def restart(state: MapState, posterior: Posterior) -> MapState:
        return state._replace(params=Params(weighted_mean(posterior.particles), posterior.psi))

    return Algorithm(model, init, step, posterior, restart=restart)

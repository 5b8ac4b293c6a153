"""Stochastic gradient Langevin dynamics: one noisy chain in φ, its last samples kept.

With U(φ, ψ) = (N/M) log p(batch | φ; ψ) + log π(φ; ψ), on each batch

    φ ← φ + h ∇_φ U(φ, ψ) + N(0, 2h I)
    ψ ← optimiser(ψ, ∇_ψ U(φ, ψ))                         or left alone: optax.set_to_zero()

There is no accept-reject step. At fixed ψ, on the full data, and for a Gaussian posterior of
precision P, the chain settles at precision P (I − h P / 2); batches add the noise of their gradients.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from partialbayes.algorithms.particle_gradient_descent import langevin
from partialbayes.checks import require_count
from partialbayes.gradients import joint_gradient
from partialbayes.schedules import as_rate, is_due, require_delay
from partialbayes.types import (
    Algorithm,
    Batch,
    Info,
    Model,
    Params,
    Particles,
    Posterior,
    PRNGKey,
)


class SgldState(NamedTuple):
    """The chain's point, ψ's optimiser, and a ring of samples of which ``collected`` were taken."""

    params: Params
    optimizer: optax.OptState
    samples: Float[Array, "sample dim"]
    collected: Int[Array, ""]
    steps: Int[Array, ""]


def sgld(
    model: Model,
    *,
    num_samples: int = 100,
    rate: Any = None,
    burn_in: int = 200,
    every: int = 1,
    optimizer: optax.GradientTransformation | None = None,
) -> Algorithm:
    """Sample φ by one Langevin chain on batches while ψ follows its stochastic gradient.

    The posterior is the last ``num_samples`` samples with the present ψ; while ψ still moves, older
    samples belong to an older ψ. Before the first sample it is the chain's present point. For
    several chains see `ensemble`, for many of them with one ψ `particle_gradient_descent`.

    Args:
        model: What to train; the chain starts at its initial weights.
        num_samples: How many samples to keep.
        rate: h, a number or an Optax schedule; 0.1 / N by default. Stable only below 2 / λ, with
            λ the largest curvature of the log-posterior in φ, of the order of N.
        burn_in: Steps before the first sample may be taken.
        every: Steps between samples.
        optimizer: Any Optax transformation, for ψ; Adam at 0.01 by default, and
            ``optax.set_to_zero()`` keeps ψ where it is.

    Raises:
        ValueError: ``num_samples`` or ``every`` is not a whole number of at least 1, or
            ``burn_in`` is negative.

    Example:
        >>> import partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 20, 1]), "layers/0/*", pb.gaussian())
        >>> algorithm = pb.algorithms.sgld(model, num_samples=50, rate=1e-3, burn_in=100, every=5)
    """
    require_count("num_samples", num_samples, "for example num_samples=100.")
    require_delay("burn_in", burn_in)
    require_count("every", every, "for example every=1, a sample at each step.")
    rate = as_rate(rate)
    optimizer = optax.adam(0.01) if optimizer is None else optimizer

    def init(key: PRNGKey) -> SgldState:
        params = model.init(key)
        samples = jnp.tile(params.phi[None, :], (num_samples, 1))
        none_yet = jnp.zeros((), jnp.int32)
        return SgldState(params, optimizer.init(params.psi), samples, none_yet, none_yet)

    def step(key: PRNGKey, state: SgldState, batch: Batch) -> tuple[SgldState, Info]:
        phi, psi = state.params
        ascent = joint_gradient(model, phi[None, :], psi, batch)
        (moved,) = langevin(key, phi[None, :], ascent.phi, rate(state.steps, batch))
        descent = jax.tree.map(jnp.negative, ascent.psi)
        updates, optimizer_state = optimizer.update(descent, state.optimizer, psi)
        steps = state.steps + 1
        due = is_due(steps, burn_in, every)
        place = state.collected % num_samples
        samples = state.samples.at[place].set(jnp.where(due, moved, state.samples[place]))
        params = Params(moved, optax.apply_updates(psi, updates))
        collected = state.collected + due
        num_data = batch.scale * batch.mask.sum()
        return (
            SgldState(params, optimizer_state, samples, collected, steps),
            {
                "loss": -ascent.log_densities[0] / num_data,
                "samples": jnp.minimum(collected, num_samples).astype(phi.dtype),
            },
        )

    def posterior(state: SgldState) -> Posterior:
        # Places not yet filled have weight zero; before the first sample, place 0 is the chain itself.
        filled = jnp.clip(state.collected, 1, num_samples)
        first = jnp.where(state.collected > 0, state.samples[0], state.params.phi)
        log_weights = jnp.where(
            jnp.arange(num_samples) < filled, -jnp.log(filled.astype(first.dtype)), -jnp.inf
        )
        return Posterior(state.params.psi, Particles(state.samples.at[0].set(first), log_weights))

    return Algorithm(model, init, step, posterior)

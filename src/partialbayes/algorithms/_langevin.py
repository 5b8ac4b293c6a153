"""Chains in φ that follow the gradients of batches with noise: SGLD, and SGHMC with a momentum.

With U(φ, ψ) = (N/M) log p(batch | φ; ψ) + log π(φ; ψ), on each batch

    SGLD     φ ← φ + h ∇_φ U(φ, ψ) + N(0, 2h I)
    SGHMC    v ← (1 − α) v + h ∇_φ U(φ, ψ) + N(0, 2αh I),    φ ← φ + v
    both     ψ ← optimizer(ψ, ∇_ψ U(φ, ψ))

with both gradients at the same (φ, ψ), from one backward pass. The posterior consists of the last
samples of the chain; ``optax.set_to_zero()`` keeps ψ fixed. There is no accept-reject step: at fixed ψ,
on the full data, and for a Gaussian posterior of precision P, a chain settles at precision
P (I − h P / 2) with SGLD and P (I − h P / (4 − 2α)) with SGHMC, which is too wide, and less so for a
smaller step size h. Batches add the noise of their gradients. Above 2 / λ, with λ the largest
eigenvalue of P, SGLD diverges. The default is

    h = 0.1 / λ̂,    v ← ∇²U v / |∇²U v|,    λ̂ ← max(|∇²U v|, 0.99 λ̂)

with one step of power iteration at each point. Over the first twenty steps, while v approaches the
steepest direction, h grows to its full value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from partialbayes._utils.checks import require_positive_int, require_probability
from partialbayes.algorithms._common import as_rate, ascend, default_optimizer, is_due, require_delay
from partialbayes.feynman_kac._gradients import joint_gradient
from partialbayes.types import (
    Algorithm,
    Batch,
    Info,
    Model,
    Params,
    Particles,
    Posterior,
    PRNGKey,
    Psi,
    Scalar,
)

_NUM_RAMP = 20  # steps until the default step size has its full value


class Curvature(NamedTuple):
    """An estimate of the steepest direction at each particle, and of the largest curvature."""

    directions: Float[Array, "particle dim"]
    largest: Scalar


class ChainState(NamedTuple):
    """The chain: its point and momentum, ψ with its optimizer, and a ring of samples."""

    params: Params
    momentum: Any
    optimizer: optax.OptState
    samples: Float[Array, "sample dim"]
    collected: Int[Array, ""]
    steps: Int[Array, ""]
    curvature: Curvature | None


def sgld(
    model: Model,
    *,
    num_particles: int = 100,
    step_size: Any = None,
    num_warmup: int = 200,
    every: int = 1,
    optimizer: optax.GradientTransformation | None = None,
) -> Algorithm:
    """Sample φ by one Langevin chain on batches while ψ follows its stochastic gradient.

    The posterior consists of the last ``num_particles`` samples and the current ψ; while ψ still moves,
    older samples belong to an older ψ. Before the first sample it is the current point of the chain. For
    several chains see `ensemble`; for many chains with one ψ see `particle_gradient_descent`.

    Args:
        model: The model to train; the chain starts at its initial weights.
        num_particles: Number of samples to keep.
        step_size: The step size h, a number or an Optax schedule. It is stable only below 2 / λ, with λ
            the largest curvature of the log-posterior in φ, of the order of N. By default 0.1 / λ, with
            λ measured during the run.
        num_warmup: Number of steps before the first sample.
        every: Number of steps between samples.
        optimizer: Optax transformation for ψ; Adam at 0.01 by default. ``optax.set_to_zero()`` keeps ψ
            fixed.

    Returns:
        The algorithm, to pass to `fit`.

    Example:
        >>> import partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 20, 1]), "layers/0/*", pb.gaussian())
        >>> algorithm = pb.algorithms.sgld(model, num_particles=50, step_size=1e-3, num_warmup=100)
    """

    def move(key: PRNGKey, phi: Array, momentum: Any, gradient: Array, h: Scalar) -> tuple[Array, Any]:
        return phi + h * gradient + jnp.sqrt(2.0 * h) * jax.random.normal(
            key, phi.shape, phi.dtype
        ), momentum

    return _chain(model, move, lambda phi: (), num_particles, step_size, num_warmup, every, optimizer)


def sghmc(
    model: Model,
    *,
    num_particles: int = 100,
    step_size: Any = None,
    friction: float | Float[Array, ""] = 0.1,
    num_warmup: int = 200,
    every: int = 1,
    optimizer: optax.GradientTransformation | None = None,
) -> Algorithm:
    """Sample φ by one Hamiltonian chain with friction on batches while ψ follows its gradient.

    It is `sgld` with a momentum, which keeps the direction of the chain for about 1/α steps.

    Args:
        model: The model to train; the chain starts at its initial weights.
        num_particles: Number of samples to keep.
        step_size: The step size h, a number or an Optax schedule. By default 0.1 / λ, measured as for
            `sgld`.
        friction: The fraction α of the momentum lost at each step, in (0, 1).
        num_warmup: Number of steps before the first sample.
        every: Number of steps between samples.
        optimizer: Optax transformation for ψ; Adam at 0.01 by default.

    Returns:
        The algorithm, to pass to `fit`.

    Example:
        >>> import partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 20, 1]), "layers/0/*", pb.gaussian())
        >>> algorithm = pb.algorithms.sghmc(model, num_particles=50, step_size=1e-3, num_warmup=100)
    """
    require_probability("friction", friction, "for example friction=0.1.")

    def move(key: PRNGKey, phi: Array, momentum: Any, gradient: Array, h: Scalar) -> tuple[Array, Any]:
        noise = jnp.sqrt(2.0 * friction * h) * jax.random.normal(key, phi.shape, phi.dtype)
        momentum = (1.0 - friction) * momentum + h * gradient + noise
        return phi + momentum, momentum

    return _chain(model, move, jnp.zeros_like, num_particles, step_size, num_warmup, every, optimizer)


def _chain(
    model: Model,
    move: Callable[[PRNGKey, Array, Any, Array, Scalar], tuple[Array, Any]],
    at_rest: Callable[[Array], Any],
    num_particles: int,
    step_size: Any,
    num_warmup: int,
    every: int,
    optimizer: optax.GradientTransformation | None,
) -> Algorithm:
    require_positive_int("num_particles", num_particles, "for example num_particles=100.")
    require_delay("num_warmup", num_warmup)
    require_positive_int("every", every, "for example every=1, a sample at each step.")
    follow_step = _step_sizes(model, step_size)
    optimizer = default_optimizer(optimizer)

    def init(key: PRNGKey) -> ChainState:
        params = model.init(key)
        samples = jnp.tile(params.phi[None, :], (num_particles, 1))
        none_yet = jnp.zeros((), jnp.int32)
        at_start = at_rest(params.phi)
        curvature = None if step_size is not None else _unknown(key, params.phi[None, :])
        return ChainState(
            params, at_start, optimizer.init(params.psi), samples, none_yet, none_yet, curvature
        )

    def step(key: PRNGKey, state: ChainState, batch: Batch) -> tuple[ChainState, Info]:
        phi, psi = state.params
        ascent = joint_gradient(model, phi[None, :], psi, batch)
        rate, curvature = follow_step(state.curvature, state.steps, phi[None, :], psi, batch)
        moved, momentum = move(key, phi, state.momentum, ascent.slopes.log_density[0], rate)
        new_psi, optimizer_state = ascend(optimizer, ascent.psi, state.optimizer, psi)
        steps = state.steps + 1
        due = is_due(steps, num_warmup, every)
        place = state.collected % num_particles
        samples = state.samples.at[place].set(jnp.where(due, moved, state.samples[place]))
        params = Params(moved, new_psi)
        collected = state.collected + due
        num_data = batch.scale * batch.mask.sum()
        return (
            ChainState(params, momentum, optimizer_state, samples, collected, steps, curvature),
            {
                "loss": -ascent.log_densities[0] / num_data,
                "samples": jnp.minimum(collected, num_particles).astype(phi.dtype),
            },
        )

    def posterior(state: ChainState) -> Posterior:
        # Places not yet filled have weight zero; before the first sample, place 0 is the chain itself.
        filled = jnp.clip(state.collected, 1, num_particles)
        first = jnp.where(state.collected > 0, state.samples[0], state.params.phi)
        log_weights = jnp.where(
            jnp.arange(num_particles) < filled, -jnp.log(filled.astype(first.dtype)), -jnp.inf
        )
        return Posterior(state.params.psi, Particles(state.samples.at[0].set(first), log_weights))

    return Algorithm(model, init, step, posterior)


def _unknown(key: PRNGKey, values: Float[Array, "particle dim"]) -> Curvature:
    # A new key, because the caller has used this one.
    directions = jax.random.normal(jax.random.fold_in(key, 1), values.shape, values.dtype)
    length = jnp.linalg.norm(directions, axis=1, keepdims=True)
    return Curvature(directions / length, jnp.zeros((), values.dtype))


def _step_sizes(model: Model, step_size: Any) -> Callable[..., tuple[Scalar, Curvature | None]]:
    """Return ``(curvature, steps, values, psi, batch) -> (h, curvature)``."""
    if step_size is not None:
        rate = as_rate(step_size)
        return lambda curvature, steps, values, psi, batch: (rate(steps, batch), None)

    def measured(
        curvature: Curvature,
        steps: Int[Array, ""],
        values: Float[Array, "particle dim"],
        psi: Psi,
        batch: Batch,
    ) -> tuple[Scalar, Curvature]:
        def gradients(values: Float[Array, "particle dim"]) -> Float[Array, "particle dim"]:
            return joint_gradient(model, values, psi, batch).slopes.log_density

        _, products = jax.jvp(gradients, (values,), (curvature.directions,))
        norms = jnp.linalg.norm(products, axis=1)
        known = jnp.isfinite(norms) & (norms > 0.0)
        turned = products / jnp.where(known, norms, 1.0)[:, None]
        directions = jnp.where(known[:, None], turned, curvature.directions)
        steepest = jnp.max(jnp.where(known, norms, 0.0))
        largest = jnp.maximum(steepest, 0.99 * curvature.largest)
        share = jnp.minimum((steps + 1) / _NUM_RAMP, 1.0).astype(largest.dtype)
        # Without any measured curvature, the step is that of a single row.
        return 0.1 * share / jnp.where(largest > 0.0, largest, 1.0), Curvature(directions, largest)

    return measured

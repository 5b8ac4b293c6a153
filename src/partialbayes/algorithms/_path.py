"""Use the path of a run: the mixture over its snapshots, or the average along it.

Every c steps a snapshot of the posterior is taken, and the last K − 1 are kept. With the current one
they are the members of a mixture

    p(y | x) = (1/K) Σ_k Σ_j w_kj p(y | x, φ_kj; ψ_k),

an ensemble from one run, without further gradients. Each member keeps about J/K particles, so the cost
of a prediction does not change. The average along the path is instead one posterior,

    ψ̄ ← ψ̄ + a (ψ − ψ̄)        and φ̄_j ← φ̄_j + a (φ_j − φ̄_j),

with a = max(1/n, 1 − decay) at the n-th step: the mean of all steps at first, and later of about the
last 1 / (1 − decay).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from partialbayes._utils.checks import require_positive_int, require_probability
from partialbayes.algorithms._combinators import mixture
from partialbayes.algorithms._common import is_due, require_delay
from partialbayes.resampling import thin
from partialbayes.types import Algorithm, Batch, Info, Particles, Posterior, PRNGKey, Psi


class TrajectoryState(NamedTuple):
    """The run, a ring of its last snapshots with thinned clouds, and the number of snapshots taken."""

    run: Any
    psi: Psi
    values: Float[Array, "snapshot ... dim"]
    log_weights: Float[Array, "snapshot ..."]
    collected: Int[Array, ""]
    steps: Int[Array, ""]


def trajectory(
    algorithm: Algorithm, num_members: int = 8, *, every: int = 100, num_warmup: int = 0
) -> Algorithm:
    """Predict by the mixture over the path of a run: its current posterior and earlier ones.

    Until there are enough snapshots, the current posterior takes the place of missing ones. A learning
    rate that decays toward the end keeps the last snapshots near one another and accurate; a constant
    one keeps them apart.

    Args:
        algorithm: Any training method, including an ensemble.
        num_members: Number K of posteriors in the mixture. Each has J/K of the J particles of the
            method, rounded up, drawn by weight; different ones at every snapshot.
        every: Number of steps between snapshots.
        num_warmup: Number of steps before the first snapshot.

    Returns:
        A method whose posterior has a leading member axis on every leaf, as that of `ensemble`. A
        second stage runs for each member. The method cannot continue from a posterior.

    Example:
        >>> import partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 20, 1]), "layers/0/*", pb.gaussian())
        >>> algorithm = pb.algorithms.trajectory(pb.ohsmc(model, num_particles=160), num_members=8)
    """
    require_positive_int("num_members", num_members, "for example num_members=8.")
    require_positive_int("every", every, "for example every=100, a snapshot at each hundredth step.")
    require_delay("num_warmup", num_warmup)

    def present(run: Any, turn: Any) -> Posterior:
        """Return a thinned snapshot of the run, at every turn of different particles."""
        posterior = algorithm.posterior(run)
        values, log_weights = posterior.particles
        each = -(-posterior.num_particles // num_members)
        turned = Particles(jnp.roll(values, turn, axis=-2), jnp.roll(log_weights, turn, axis=-1))
        return posterior._replace(particles=thin(turned, each))

    def snapshots(state: TrajectoryState) -> Posterior:
        return Posterior(state.psi, Particles(state.values, state.log_weights))

    def init(key: PRNGKey) -> TrajectoryState:
        run = algorithm.init(key)
        psi, (values, log_weights) = jax.tree.map(
            lambda leaf: jnp.repeat(leaf[None], num_members - 1, axis=0), present(run, 0)
        )
        none_yet = jnp.zeros((), jnp.int32)
        return TrajectoryState(run, psi, values, log_weights, none_yet, none_yet)

    def step(key: PRNGKey, state: TrajectoryState, batch: Batch) -> tuple[TrajectoryState, Info]:
        run, info = algorithm.step(key, state.run, batch)
        steps = state.steps + 1
        if num_members == 1:
            return state._replace(run=run, steps=steps), info
        due = is_due(steps, num_warmup, every)
        place = state.collected % (num_members - 1)
        psi, (values, log_weights) = jax.tree.map(
            lambda ring, now: ring.at[place].set(jnp.where(due, now, ring[place])),
            snapshots(state),
            present(run, state.collected),
        )
        collected = state.collected + due
        return TrajectoryState(run, psi, values, log_weights, collected, steps), info

    def posterior(state: TrajectoryState) -> Posterior:
        now = present(state.run, state.collected)
        taken = jnp.arange(num_members - 1) < state.collected

        def joined(ring: Array, last: Array) -> Array:
            there = jnp.expand_dims(taken, tuple(range(1, ring.ndim)))
            return jnp.concatenate([last[None], jnp.where(there, ring, last[None])])

        return mixture(jax.tree.map(joined, snapshots(state), now), num_members)

    return algorithm._replace(init=init, step=step, posterior=posterior, restart=None)


class AveragedState(NamedTuple):
    """The run, and the averages of its ψ and, if requested, of the positions of its particles."""

    run: Any
    psi: Psi
    values: Any
    steps: Int[Array, ""]


def averaged(
    algorithm: Algorithm,
    *,
    decay: float | Float[Array, ""] = 0.99,
    num_warmup: int = 0,
    particles: bool | None = None,
) -> Algorithm:
    """Average ψ along the run, and φ if each particle keeps its identity.

    An average has less of the noise of single batches than the last step, as if the learning rate had
    decayed.

    Args:
        algorithm: Any training method, including an ensemble.
        decay: The factor of the average at each step; 0.99 averages about the last hundred steps.
        num_warmup: Number of steps before the average starts; until then it is the current state.
        particles: Whether to average φ too, particle by particle. This is right for `map_estimate` and
            `particle_ensemble`, where each particle follows its own path. It is wrong if particles are
            resampled or moved at random, because their average is not a sample. By default only if there
            is one particle.

    Returns:
        The method, with a posterior of the same shape.

    Example:
        >>> import partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 20, 1]), "layers/0/*", pb.gaussian())
        >>> algorithm = pb.algorithms.averaged(pb.map_estimate(model), decay=0.99)
    """
    require_probability("decay", decay, "for example decay=0.99.")
    require_delay("num_warmup", num_warmup)

    def both(run: Any) -> tuple[Psi, Any]:
        """Return the values to average."""
        posterior = algorithm.posterior(run)
        with_phi = posterior.num_particles == 1 if particles is None else particles
        return posterior.psi, posterior.particles.values if with_phi else ()

    def init(key: PRNGKey) -> AveragedState:
        run = algorithm.init(key)
        # Copies: `fit` donates the memory of the state, so no array may be in it twice.
        psi, values = jax.tree.map(jnp.copy, both(run))
        return AveragedState(run, psi, values, jnp.zeros((), jnp.int32))

    def step(key: PRNGKey, state: AveragedState, batch: Batch) -> tuple[AveragedState, Info]:
        run, info = algorithm.step(key, state.run, batch)
        steps = state.steps + 1
        share = jnp.maximum(1.0 - decay, 1.0 / jnp.maximum(steps - num_warmup, 1))
        psi, values = jax.tree.map(
            lambda mean, now: mean + share.astype(mean.dtype) * (now - mean),
            (state.psi, state.values),
            both(run),
        )
        return AveragedState(run, psi, values, steps), info

    def posterior(state: AveragedState) -> Posterior:
        _, cloud = algorithm.posterior(state.run)
        values = cloud.values if isinstance(state.values, tuple) else state.values
        return Posterior(state.psi, cloud._replace(values=values))

    restart = None
    if algorithm.restart is not None:
        again = algorithm.restart

        def restart(state: AveragedState, posterior: Posterior) -> AveragedState:
            run = again(state.run, posterior)
            psi, values = jax.tree.map(jnp.copy, both(run))
            return AveragedState(run, psi, values, jnp.zeros_like(state.steps))

    return algorithm._replace(init=init, step=step, posterior=posterior, restart=restart)

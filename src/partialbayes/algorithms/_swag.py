"""Stochastic weight averaging, Gaussian (SWAG): a normal law from the moments of a trajectory.

After a time of plain MAP training, every c steps a snapshot θ = (φ, ψ) updates

    mean       m ← running mean of the snapshots
    variance   s ← running variance of each weight (Welford, so that it is never negative)
    columns    D ← the last K deviations θ − m, with m the mean up to that snapshot

and the law of the weights is N(m, ½ diag(s) + D Dᵀ / (2 (K − 1))), sampled as

    θ = m + diag(s)^{1/2} z₁ / √2 + D z₂ / √(2 (K − 1)),     z₁, z₂ standard normal,

or N(m, diag(s)) without columns. Its width is that of the optimizer's fluctuations, which depend on
learning rate and batch size; it is not that of the posterior.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int, UInt32

from partialbayes._utils.checks import require_positive_int
from partialbayes.algorithms._common import is_due, require_delay
from partialbayes.algorithms._map import MapState, map_estimate
from partialbayes.types import Algorithm, Batch, Info, Model, Params, Particles, Posterior, PRNGKey
from partialbayes.weights import uniform_log_weights, weighted_mean


class SwagState(NamedTuple):
    """The trajectory and its moments.

    Attributes:
        trajectory: The state of MAP training.
        steps: Number of steps done.
        collected: Number of snapshots taken.
        mean: Mean of the snapshots.
        squares: Σ (θ − m)² over the snapshots, of the sampled weights, as one vector.
        columns: The last deviations of those weights, D transposed.
        seed: The seed of the samples, so that a state always gives the same ones.
    """

    trajectory: MapState
    steps: Int[Array, ""]
    collected: Int[Array, ""]
    mean: Params
    squares: Float[Array, " weight"]
    columns: Float[Array, "rank weight"]
    seed: UInt32[Array, " two"]


def swag(
    model: Model,
    *,
    num_particles: int = 100,
    rank: int = 20,
    num_warmup: int = 200,
    every: int = 1,
    sample_psi: bool = False,
    optimizer: optax.GradientTransformation | None = None,
) -> Algorithm:
    """Train as MAP, then fit a normal law to the path of the optimizer.

    Before the first snapshot the posterior is the current point. If `fit` scores validation data, it may
    therefore return a point of the warm-up if no later posterior does better.

    Args:
        model: The model to train.
        num_particles: Number of samples in the posterior.
        rank: Number K of columns of the low-rank part; 0 for a diagonal covariance.
        num_warmup: Number of steps of plain training before averaging begins.
        every: Number of steps between snapshots.
        sample_psi: If false, ψ is its average and φ has the marginal law of the weights: the
            posterior has ``num_particles`` particles. If true, all weights are sampled together:
            ``num_particles`` members with their own ψ, of one particle each.
        optimizer: Optax transformation for the whole run; Adam at 0.01 by default. A schedule may give
            warm-up and averaging different rates.

    Returns:
        The algorithm, to pass to `fit`.

    Example:
        >>> import partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 20, 1]), "layers/0/*", pb.gaussian())
        >>> algorithm = pb.algorithms.swag(model, rank=10, num_warmup=300, every=5)
    """
    require_positive_int("num_particles", num_particles, "for example num_particles=100.")
    require_delay("num_warmup", num_warmup)
    require_positive_int("every", every, "for example every=1, a snapshot at each step.")
    if rank != 0:
        require_positive_int("rank", rank, "or 0 for a diagonal covariance.")
    if rank == 1:
        raise ValueError("rank must be 0 (diagonal) or at least 2: one column has no variance.")
    training = map_estimate(model, optimizer=optimizer)

    def flatten(params: Params) -> Float[Array, " weight"]:
        """Return the weights that are sampled, as one vector."""
        return ravel_pytree(params)[0] if sample_psi else params.phi

    def init(key: PRNGKey) -> SwagState:
        key_start, key_seed = jax.random.split(key)
        trajectory = training.init(key_start)
        params = trajectory.params
        weights = flatten(params)
        none_yet = jnp.zeros((), jnp.int32)
        return SwagState(
            trajectory=trajectory,
            steps=none_yet,
            collected=none_yet,
            mean=params,
            squares=jnp.zeros_like(weights),
            columns=jnp.zeros((rank, *weights.shape), weights.dtype),
            seed=jax.random.bits(key_seed, (2,), jnp.uint32),
        )

    def step(key: PRNGKey, state: SwagState, batch: Batch) -> tuple[SwagState, Info]:
        trajectory, info = training.step(key, state.trajectory, batch)
        state = state._replace(trajectory=trajectory, steps=state.steps + 1)
        state = collect(state, is_due(state.steps, num_warmup, every))
        return state, info | {"snapshots": state.collected.astype(info["loss"].dtype)}

    def collect(state: SwagState, due: Bool[Array, ""]) -> SwagState:
        """Add the current point to the moments, if due."""
        params = state.trajectory.params
        collected = state.collected + due
        number = jnp.maximum(collected, 1)
        deviation = jax.tree.map(jnp.subtract, params, state.mean)
        mean = jax.tree.map(
            lambda mean, deviation: mean + jnp.where(due, deviation / number, 0.0), state.mean, deviation
        )
        # (θ − old mean)(θ − new mean) = (θ − old mean)² (n − 1)/n, which rounding cannot make negative.
        growth = jnp.square(flatten(deviation)) * (number - 1) / number
        squares = state.squares + jnp.where(due, growth, 0.0)
        columns = state.columns
        if rank > 0:
            place = state.collected % rank
            newest = flatten(params) - flatten(mean)
            columns = columns.at[place].set(jnp.where(due, newest, columns[place]))
        return state._replace(collected=collected, mean=mean, squares=squares, columns=columns)

    def draw(state: SwagState, center: Float[Array, " weight"]) -> Float[Array, "sample weight"]:
        """Draw weights; all are at the center while there are no moments."""
        # The key is made from the seed each time, so that a state always gives the same samples.
        key = jax.random.wrap_key_data(state.seed, impl="threefry2x32")
        key_diagonal, key_columns = jax.random.split(key)
        shape = (num_particles, *center.shape)
        deviation = jnp.sqrt(state.squares / jnp.maximum(state.collected, 1))
        draws = deviation[None, :] * jax.random.normal(key_diagonal, shape, center.dtype)
        if rank > 0:
            # Until the ring of columns is full, the empty ones are zero and do not count.
            filled = jnp.minimum(state.collected, rank)
            mixing = jax.random.normal(key_columns, (num_particles, rank), center.dtype)
            low_rank = mixing @ state.columns / jnp.sqrt(jnp.maximum(filled - 1, 1))
            draws = math.sqrt(0.5) * (draws + low_rank.astype(center.dtype))
        return center[None, :] + draws

    def posterior(state: SwagState) -> Posterior:
        started = state.collected > 0
        center = jax.tree.map(
            lambda mean, now: jnp.where(started, mean, now), state.mean, state.trajectory.params
        )
        samples = draw(state, flatten(center))
        log_weights = uniform_log_weights(num_particles)
        if not sample_psi:
            return Posterior(center.psi, Particles(samples, log_weights))
        phi, psi = jax.vmap(ravel_pytree(center)[1])(samples)
        return Posterior(psi, Particles(phi[:, None, :], log_weights[:, None]))

    def restart(state: SwagState, posterior: Posterior) -> SwagState:
        psi, particles = posterior
        if posterior.is_ensemble:  # for example one of `swag` itself with `sample_psi`
            weights = jnp.exp(particles.log_weights)
            psi = jax.tree.map(lambda leaf: jnp.tensordot(weights.sum(axis=1), leaf, 1), psi)
            particles = Particles(
                particles.values.reshape(-1, model.split.dim), jnp.log(weights.ravel())
            )
        center = Params(weighted_mean(particles), psi)
        return state._replace(trajectory=state.trajectory._replace(params=center))

    return Algorithm(model, init, step, posterior, restart=restart)

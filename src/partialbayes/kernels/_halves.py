"""Kernels that learn from the cloud: each half is moved by what the kernel learned from the other.

A kernel that uses the covariance of the very particles it moves does not leave their target invariant:
it depends on each of them, by an amount of order d/J that adds up from move to move. So the cloud is
cut into two halves A and B, and with K_B the kernel learned from B,

    A ← K_B(A),    B ← K_A(B),    A ← K_B(A),    …

Given B, K_B is one fixed kernel that leaves the target invariant, whatever B is. It therefore leaves
the law of all particles together invariant, for any J (Goodman and Weare 2010). Likewise, the step size
in one half is adapted to the acceptance in the other. The rounds end when the particles have moved:
when the correlation of their log-densities with those at the start is below 0.05, and that of every
weight below 0.1, each plus an allowance for chance.

Resampling puts copies of a particle side by side, and their descendants stay together. The halves are
the first and the last particles, so all families but one lie within one half. Copies in both halves
would make the halves dependent.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from partialbayes.kernels._whitening import Factor, factorize
from partialbayes.parallel._sharding import shard_particles
from partialbayes.types import Kernel, KernelStep, Moments, Moved, Particles, PRNGKey, Scalar, Target
from partialbayes.weights import effective_sample_size, uniform_log_weights, weighted_covariance

Values: TypeAlias = Float[Array, "particle dim"]
HalfMove: TypeAlias = Callable[[PRNGKey, Values, Factor, Scalar, Target], tuple[Values, Scalar]]
"""``(key, values, factor, log_scale, target) -> (values, acceptance)``: moves particles with step
e^log_scale, in units in which the learned covariance is the identity."""

_Carry: TypeAlias = tuple[Particles, Particles, Scalar, Scalar]
"""The half that moves next, the other half, and the log-scales of both."""

_OF_DENSITY, _OF_PLACE = 0.05, 0.1  # correlations with the start below which it is forgotten


def by_halves(
    move: HalfMove, max_rounds: int, target_acceptance: float | Float[Array, ""], gain: float
) -> Kernel:
    """Make a kernel that learns a covariance and a step size from the cloud.

    Args:
        move: Moves one half, given the covariance of the other.
        max_rounds: The most times that each half is moved; it ends once the particles have moved.
        target_acceptance: The mean acceptance to aim for.
        gain: The change of the logarithm of the step for a difference of one in acceptance.

    Returns:
        The kernel.
    """

    def init(particles: Particles) -> Scalar:
        return jnp.zeros((), jnp.result_type(float))

    def step(key: PRNGKey, particles: Particles, target: Target, log_scale: Scalar) -> Moved:
        return run(key, particles, target, log_scale, None)

    def learn(pools: tuple[Particles, Particles], prior: Moments) -> KernelStep:
        both = [_factor(pool, prior) for pool in pools]
        return partial(run, factors=Factor(*(jnp.stack(parts) for parts in zip(*both, strict=True))))

    def run(
        key: PRNGKey, particles: Particles, target: Target, log_scale: Scalar, factors: Factor | None
    ) -> Moved:
        num_particles = particles.log_weights.shape[0]
        halves = _halves(particles)

        def half_move(carry: _Carry, stage: tuple[PRNGKey, Int[Array, ""]]) -> tuple[_Carry, Scalar]:
            mover, other, own_scale, other_scale = carry
            key_move, turn = stage
            if factors is None:
                factor = _factor(other, target.prior)
            else:
                factor = Factor(factors.lower[turn], factors.inverse[turn])
            values, acceptance = move(key_move, mover.values, factor, own_scale, target)
            other_scale = other_scale + gain * (acceptance - target_acceptance).astype(own_scale.dtype)
            return (other, mover._replace(values=values), other_scale, own_scale), acceptance

        def one_round(carry: _Carry, key: PRNGKey) -> tuple[_Carry, Scalar]:
            stages = jax.random.split(key, 2), jnp.arange(2)
            carry, acceptances = jax.lax.scan(half_move, carry, stages)
            return carry, acceptances.mean()

        start = (*halves, log_scale, log_scale)
        if max_rounds == 1:
            carry, acceptance = one_round(start, key)
        else:
            carry, acceptance = until_moved(key, start, one_round, target)
        first, second, *log_scales = carry
        values = jnp.concatenate([first.values, second.values])[:num_particles]
        unmoved = jnp.zeros_like(particles.log_weights)
        mean_scale = 0.5 * (log_scales[0] + log_scales[1])
        return Moved(shard_particles(values), unmoved, acceptance, mean_scale)

    def until_moved(
        key: PRNGKey,
        start: _Carry,
        one_round: Callable[[_Carry, PRNGKey], tuple[_Carry, Scalar]],
        target: Target,
    ) -> tuple[_Carry, Scalar]:
        def traits(carry: _Carry) -> Values:
            """Return the density and position of each particle, which it is to forget."""
            values = jnp.concatenate([carry[0].values, carry[1].values])
            return jnp.column_stack([jax.vmap(target.log_density)(values), values])

        at_start = traits(start)

        def unfinished(state: tuple[_Carry, Scalar, Int[Array, ""], Array]) -> Array:
            _, _, count, remembered = state
            return (count < max_rounds) & remembered

        def step(
            state: tuple[_Carry, Scalar, Int[Array, ""], Array],
        ) -> tuple[_Carry, Scalar, Int[Array, ""], Array]:
            carry, mean, count, _ = state
            carry, acceptance = one_round(carry, jax.random.fold_in(key, count))
            count = count + 1
            mean = mean + (acceptance - mean) / count.astype(mean.dtype)
            kept = _correlations(at_start, traits(carry))
            # By chance one correlation of J independent pairs is up to 1/√J, the largest of many 3/√J.
            noise = at_start.shape[0] ** -0.5
            forgotten = (kept[0] < _OF_DENSITY + noise) & jnp.all(kept[1:] < _OF_PLACE + 3.0 * noise)
            return carry, mean, count, ~forgotten

        zero = jnp.zeros((), start[0].values.dtype)
        carry, acceptance, _, _ = jax.lax.while_loop(
            unfinished, step, (start, zero, jnp.zeros((), jnp.int32), jnp.asarray(True))
        )
        return carry, acceptance

    return Kernel(step, init=init, learn=learn)


def _correlations(before: Values, after: Values) -> Float[Array, " trait"]:
    """Correlate each column with itself before; NaN for a column with equal entries."""
    before, after = (values - values.mean(axis=0)[None, :] for values in (before, after))
    squares = jnp.square(before).sum(axis=0) * jnp.square(after).sum(axis=0)
    return (before * after).sum(axis=0) / jnp.sqrt(squares)


def _halves(particles: Particles) -> tuple[Particles, Particles]:
    """Return the first and the last particles; an odd one is in both, with weight zero in the second."""
    values, log_weights = particles
    num_particles = log_weights.shape[0]
    if num_particles < 2:
        raise ValueError(
            "num_particles is 1, but an adaptive kernel learns from the other particles; use at least "
            "two, or random_walk_metropolis or hamiltonian."
        )
    if num_particles % 2:
        values = jnp.concatenate([values, values[-1:]])
        log_weights = jnp.append(log_weights, -jnp.inf)
    half = values.shape[0] // 2
    return (
        Particles(shard_particles(values[:half]), log_weights[:half]),
        Particles(shard_particles(values[half:]), log_weights[half:]),
    )


_LEAST_DOUBT = 1e-3


def enough_particles(dim: int, multiple: int = 1) -> int:
    """Return the default number of particles of a method that moves by halves, for ``dim`` weights.

    With ten particles per weight (105 weights, linear-Gaussian) the log-evidence was 0.5 too low, twice
    its reported standard error; with twenty it was right. Above 500 weights the number is capped, to
    save memory.
    """
    return -(-max(1000, min(20 * dim, 10_000)) // multiple) * multiple


def _factor(pool: Particles, prior: Moments) -> Factor:
    """Factor the covariance of the particles, made positive definite if they are few or all equal."""
    total = jax.nn.logsumexp(pool.log_weights)
    equal = uniform_log_weights(pool.log_weights.shape[0])
    log_weights = jnp.where(total > -jnp.inf, pool.log_weights - total, equal)
    covariance = weighted_covariance(pool._replace(log_weights=log_weights))
    dim, count = covariance.shape[0], effective_sample_size(log_weights)
    variance = jnp.diagonal(covariance)
    # A prior may be too heavy-tailed to have a variance.
    floor = jnp.where(jnp.isfinite(prior.variance), prior.variance, 1.0)
    doubt = jnp.maximum(_LEAST_DOUBT, _doubt(covariance, count / dim))
    return factorize((1.0 - doubt) * covariance + jnp.diag(doubt * variance + 1e-9 * floor))


def _doubt(covariance: Float[Array, "dim dim"], ratio: Scalar) -> Scalar:
    """Return by how much to shrink the correlations, for ``ratio`` particles per dimension.

    With two or more particles per dimension they are not shrunk. A direction a thousand times narrower
    than the others, shrunk by a tenth toward the diagonal, would be taken for 300 times as wide as it
    is, and all steps would be limited by its true width. With fewer particles, many narrow directions
    are due to chance. The shrinkage is then the part of the squared correlations that chance alone would
    explain, (1 − r²)² / n each (Schäfer and Strimmer 2005); with fewer than one particle per dimension,
    also the part that cannot be estimated.
    """
    dim = covariance.shape[0]
    deviation = jnp.sqrt(jnp.diagonal(covariance))
    scale = jnp.where(deviation > 0.0, deviation, 1.0)
    squares = jnp.square(covariance / (scale[:, None] * scale[None, :]))
    squares = jnp.where(jnp.eye(dim, dtype=bool), 0.0, jnp.minimum(squares, 1.0))
    count = jnp.maximum(ratio * dim, 2.0) - 1.0
    chance = (jnp.square(1.0 - squares).sum() - dim) / count
    by_chance = jnp.clip(chance / jnp.maximum(squares.sum(), 1e-12), 0.0, 1.0)
    return jnp.maximum(1.0 - ratio, jnp.minimum(by_chance, 1.0 - 0.5 * ratio))

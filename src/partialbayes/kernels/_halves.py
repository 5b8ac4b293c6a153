"""Kernels that learn from the cloud: each half is moved by what the other half says.

A kernel whose covariance is that of the very particles it moves does not leave their target invariant:
it depends on each of them, by an amount of order d/J that adds up from move to move. So the cloud is
cut into two halves A and B, and with K_B the kernel that B asks for,

    A ← K_B(A),    B ← K_A(B),    A ← K_B(A),    …

Given B, K_B is one fixed kernel that leaves the target invariant, whatever B is: so is the law of all
particles together, for any J (Goodman and Weare 2010). Likewise the length of steps in one half is
steered by the acceptance in the other. The rounds end once the particles have moved: when the
correlation of their log-densities with those at the start is below 0.05, and that of every weight below
0.1, but for chance.

Resampling puts copies of a particle side by side, and their descendants stay together. The halves are
the first and the last particles, so that all families but one are whole in one half: copies in both
would tell of each other.
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
"""``(key, values, factor, log_scale, target) -> (values, acceptance)``: moves of particles with step
e^log_scale, in units in which the covariance to go by is one."""


_Carry: TypeAlias = tuple[Particles, Particles, Scalar, Scalar]
"""Who moves next, the others, and the log-scales of both."""

_OF_DENSITY, _OF_PLACE = 0.05, 0.1  # correlations with the start below which it is forgotten


def by_halves(
    move: HalfMove, max_rounds: int, target_acceptance: float | Float[Array, ""], gain: float
) -> Kernel:
    """A kernel that learns a covariance and a step size from the cloud.

    Args:
        move: Moves one half, given the covariance of the other.
        max_rounds: The most times that each half is moved; it ends once the particles have moved.
        target_acceptance: Mean acceptance to steer toward.
        gain: By how much the logarithm of the step changes for a gap of one in acceptance.
    """

    def init(particles: Particles) -> Scalar:
        return jnp.zeros((), jnp.result_type(float))

    def step(key: PRNGKey, particles: Particles, target: Target, log_scale: Scalar) -> Moved:
        return run(key, particles, target, log_scale, None)

    def learn(pools: tuple[Particles, Particles], prior: Moments) -> KernelStep:
        both = [_factor(pool, prior) for pool in pools]
        return partial(run, factors=Factor(*(jnp.stack(parts) for parts in zip(*both, strict=True))))

    def run(
        key: PRNGKey,
        particles: Particles,
        target: Target,
        log_scale: Scalar,
        factors: Factor | None,
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
            """What is to be forgotten of each particle: its density, and where it is."""
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
            # Of so many independent pairs one is up to 1/√J by chance, the largest of many 3/√J.
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
    """Of each column with itself before, over the particles; NaN of one that was the same for all."""
    before, after = (values - values.mean(axis=0)[None, :] for values in (before, after))
    squares = jnp.square(before).sum(axis=0) * jnp.square(after).sum(axis=0)
    return (before * after).sum(axis=0) / jnp.sqrt(squares)


def _halves(particles: Particles) -> tuple[Particles, Particles]:
    """The first and the last particles; an odd one is there twice, the second time without weight."""
    values, log_weights = particles
    num_particles = log_weights.shape[0]
    if num_particles < 2:
        raise ValueError(
            "a kernel that adapts itself learns from the other particles, and num_particles is 1; use "
            "at least two, or random_walk_metropolis or hamiltonian."
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
    """Return how many particles a method that moves by halves takes by default, for ``dim`` weights.

    With ten for each weight (105 weights, linear-Gaussian) the log-evidence came out 0.5 too low, twice
    its reported standard error; with twenty it was right. Beyond 500 weights memory is worth more.
    """
    return -(-max(1000, min(20 * dim, 10_000)) // multiple) * multiple


def _factor(pool: Particles, prior: Moments) -> Factor:
    """Factor of the particles' covariance, made positive definite where they are few or one."""
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
    """How little the correlations of so many particles for each dimension are to be believed.

    With two or more they are believed: a direction a thousand times narrower than the others, were it
    drawn a tenth of the way to the diagonal, would be taken for 300 times as wide as it is, and all
    steps be cut to its true width. With fewer than that many narrow directions are of chance. How much
    of the squared correlations is no more than chance would make of none, (1 − r²)² / n each, is what
    to doubt then (Schäfer and Strimmer 2005); and with fewer than one all that cannot be known.
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

"""Resampling: equally weighted particles with the same law in expectation.

A scheme is a `Resampler`. Those that copy particles are unbiased, E[number of copies of j] = J w_j;
`optimal_transport` moves them instead, and keeps means and variances.

`islands` resamples within K islands of J/K particles. Within island i, of weight W_i = Σ_j∈i w_j, the
copies of a particle are drawn by its share of the island, and every new particle has weight W_i K / J:

    E[Σ_j∈i w'_j f(φ'_j)] = Σ_j∈i w_j f(φ_j)    for every island and every f.

So the cloud represents the same law, and the evidence stays unbiased, with or without exchange.
Without exchange the variance of the evidence grows: islands of little weight are wasted work (Vergé et
al. 2015).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from partialbayes._utils.checks import require_positive, require_positive_int
from partialbayes.parallel._sharding import replicate, shard_particles
from partialbayes.types import Particles, PRNGKey, Resampler
from partialbayes.weights import (
    cumulative,
    effective_sample_size,
    uniform_log_weights,
    weighted_mean,
    weighted_variance,
)

__all__ = [
    "islands",
    "multinomial",
    "optimal_transport",
    "residual",
    "stratified",
    "systematic",
    "when_ess_below",
]


Weights: TypeAlias = Float[Array, " particle"]
Ancestors: TypeAlias = Int[Array, " particle"]


def _copy(
    key: PRNGKey, particles: Particles, draw: Callable[[PRNGKey, Weights], Ancestors]
) -> tuple[Particles, Ancestors]:
    """Copy particles whose indices are drawn from the weights."""
    # Softmax corrects a sum of weights that is off by rounding.
    ancestors = replicate(draw(key, jax.nn.softmax(particles.log_weights)).astype(jnp.int32))
    log_weights = uniform_log_weights(ancestors.shape[0])
    return Particles(gather(particles.values, ancestors), log_weights), ancestors


def gather(values: Float[Array, "particle dim"], indices: Int[Array, " num"]) -> Array:
    """Return the particles at the indices; each device gets all of them and keeps its own.

    φ is small, so of all ways to move copies between devices this one has a known cost.
    """
    return shard_particles(replicate(values)[indices])


def _inverse(weights: Weights, points: Float[Array, " num"]) -> Int[Array, " num"]:
    """Return the particle in whose part of the cumulative weights each point of [0, 1) falls."""
    sums = cumulative(weights)
    total = sums[-1]
    indices = jnp.searchsorted(sums, points * total, side="right")
    # A point that rounding put at the end belongs to the last particle with any weight.
    return jnp.minimum(indices, jnp.searchsorted(sums, total, side="left"))


def _by_counting(weights: Weights, offsets: Float[Array, "#num"], num: int) -> Int[Array, " num"]:
    """Return the particle of each of the points (i + offset_i) / num, as `_inverse`, in O(J + num).

    With one point per stratum, ⌊c⌋ or ⌊c⌋ + 1 points lie below c, so no search is needed.
    """
    sums = cumulative(weights)
    places = num * (sums / sums[-1])
    strata = jnp.minimum(places.astype(jnp.int32), num - 1)
    offset = jnp.broadcast_to(offsets, (num,))[strata]
    below = strata + (offset < places - strata)
    # The i-th point belongs to the first particle with more than i points below its end.
    ends = jnp.zeros(num, jnp.int32).at[below].add(1, mode="drop")
    return jnp.cumsum(ends)


def stratified_indices(key: PRNGKey, weights: Weights, num: int) -> Int[Array, " num"]:
    """Draw indices by weight, one in each of ``num`` strata: E[copies of j] = num · w_j."""
    return _by_counting(weights, jax.random.uniform(key, (num,), weights.dtype), num)


def subsample(key: PRNGKey, particles: Particles, num: int) -> Particles:
    """Draw ``num`` particles by weight, of every member of an ensemble; keep all if there are no more.

    A member keeps its own weight, which its particles share.
    """
    values, log_weights = particles
    if num >= log_weights.shape[-1]:
        return particles
    if log_weights.ndim == 2:
        keys = jax.random.split(key, log_weights.shape[0])
        return jax.vmap(lambda *member: subsample(member[0], Particles(*member[1:]), num))(
            keys, values, log_weights
        )
    return _sharing_alike(particles, stratified_indices(key, jax.nn.softmax(log_weights), num))


def thin(particles: Particles, num: int) -> Particles:
    """Choose particles without randomness: those in the middle of ``num`` equal strata."""
    values, log_weights = particles
    if num >= log_weights.shape[-1]:
        return particles
    if log_weights.ndim == 2:
        return jax.vmap(lambda *member: thin(Particles(*member), num))(values, log_weights)
    middle = jnp.full(1, 0.5, log_weights.dtype)
    return _sharing_alike(particles, _by_counting(jax.nn.softmax(log_weights), middle, num))


def _sharing_alike(particles: Particles, chosen: Int[Array, " num"]) -> Particles:
    """Return the chosen particles, with equal shares of the total weight."""
    total = jax.nn.logsumexp(particles.log_weights)
    return Particles(particles.values[chosen], total + uniform_log_weights(chosen.shape[0]))


def stratified(key: PRNGKey, particles: Particles) -> tuple[Particles, Ancestors]:
    """Draw one uniform number in each of J equal strata of the cumulative weights.

    Args:
        key: The random key.
        particles: The particles, with normalized log-weights.

    Returns:
        The equally weighted particles, and the index of each one's parent.

    Example:
        >>> import jax, jax.numpy as jnp, partialbayes as pb
        >>> log_weights = jnp.array([-jnp.inf, 0.0, -jnp.inf])
        >>> particles = pb.types.Particles(jnp.arange(3.0)[:, None], log_weights)
        >>> resampled, ancestors = pb.resampling.stratified(jax.random.key(0), particles)
        >>> ancestors.tolist()
        [1, 1, 1]
    """
    return _copy(key, particles, lambda key, weights: stratified_indices(key, weights, weights.shape[0]))


def systematic(key: PRNGKey, particles: Particles) -> tuple[Particles, Ancestors]:
    """Draw one uniform number for all J strata: particle j is copied ⌊J w_j⌋ or ⌈J w_j⌉ times.

    Args:
        key: The random key.
        particles: The particles, with normalized log-weights.

    Returns:
        The equally weighted particles, and the index of each one's parent.

    Example:
        >>> import partialbayes as pb
        >>> resample = pb.resampling.when_ess_below(0.5, pb.resampling.systematic)
    """

    def draw(key: PRNGKey, weights: Weights) -> Ancestors:
        return _by_counting(weights, jax.random.uniform(key, (1,), weights.dtype), weights.shape[0])

    return _copy(key, particles, draw)


def _independent(key: PRNGKey, weights: Weights) -> Ancestors:
    return _inverse(weights, jax.random.uniform(key, weights.shape, weights.dtype))


def multinomial(key: PRNGKey, particles: Particles) -> tuple[Particles, Ancestors]:
    """Draw J particles independently: the noisiest scheme, and the easiest to analyze.

    Args:
        key: The random key.
        particles: The particles, with normalized log-weights.

    Returns:
        The equally weighted particles, and the index of each one's parent.

    Example:
        >>> import partialbayes as pb
        >>> resample = pb.resampling.when_ess_below(0.5, pb.resampling.multinomial)
    """
    return _copy(key, particles, _independent)


def residual(key: PRNGKey, particles: Particles) -> tuple[Particles, Ancestors]:
    """Copy particle j ⌊J w_j⌋ times, and draw the rest from the remaining weights.

    Args:
        key: The random key.
        particles: The particles, with normalized log-weights.

    Returns:
        The equally weighted particles, and the index of each one's parent.

    Example:
        >>> import partialbayes as pb
        >>> resample = pb.resampling.when_ess_below(0.5, pb.resampling.residual)
    """

    def draw(key: PRNGKey, weights: Weights) -> Ancestors:
        size = weights.shape[0]
        expected = size * weights
        # An integer that rounding put just below itself counts as that integer.
        copies = jnp.floor(expected * (1.0 + 8.0 * np.finfo(weights.dtype).eps))
        kept = jnp.repeat(
            jnp.arange(size, dtype=jnp.int32), copies.astype(jnp.int32), total_repeat_length=size
        )
        drawn = _independent(key, jnp.maximum(expected - copies, 0.0))
        return jnp.where(jnp.arange(size) < copies.sum(), kept, drawn)

    return _copy(key, particles, draw)


def when_ess_below(threshold: float, scheme: Resampler = stratified) -> Resampler:
    """Resample only when the effective sample size, 1 / Σ_j w_j², falls below ``threshold · J``.

    Args:
        threshold: Fraction of J, in (0, 1].
        scheme: The scheme to resample with.

    Returns:
        The resampler, to pass as ``resample`` to an algorithm.

    Example:
        >>> import partialbayes as pb
        >>> resample = pb.resampling.when_ess_below(0.5, pb.resampling.systematic)
    """
    if not 0.0 < threshold <= 1.0:
        raise ValueError(
            f"threshold must be in (0, 1], a fraction of the number of particles, not {threshold!r}; "
            "for example when_ess_below(0.5)."
        )

    def resample(key: PRNGKey, particles: Particles) -> tuple[Particles, Int[Array, " particle"]]:
        num_particles = particles.log_weights.shape[0]
        collapsed = effective_sample_size(particles.log_weights) < threshold * num_particles
        return jax.lax.cond(
            collapsed,
            lambda: scheme(key, particles),
            lambda: (particles, jnp.arange(num_particles, dtype=jnp.int32)),
        )

    return resample


def optimal_transport(entropy: float | Float[Array, ""] = 0.05, num_iterations: int = 100) -> Resampler:
    """Map the weighted particles to equally weighted ones at the least squared distance.

    With every coordinate in units of its standard deviation, the plan T minimizes Σ_ij T_ij |φ_i − φ_j|²
    less ``entropy`` times its own entropy, where rows sum to 1/J and columns to w_j; the new particles
    are φ'_i = J Σ_j T_ij φ_j (Corenflos et al. 2021). Averages shrink the cloud, so it is stretched
    back: the mean and the variance of every coordinate are kept exactly, other moments only nearly.
    Nothing is drawn and no particle is copied. Each iteration takes time of order J², and the plan takes
    J² memory.

    Args:
        entropy: Strength of the regularization, as a fraction of the mean squared distance.
        num_iterations: Number of iterations of Sinkhorn's algorithm; a smaller entropy needs more.

    Returns:
        The resampler, to pass as ``resample`` to an algorithm.

    Example:
        >>> import partialbayes as pb
        >>> resample = pb.resampling.when_ess_below(0.5, pb.resampling.optimal_transport())
    """
    require_positive("entropy", entropy)
    require_positive_int("num_iterations", num_iterations, "for example num_iterations=100.")

    def resample(key: PRNGKey, particles: Particles) -> tuple[Particles, Ancestors]:
        values, log_weights = particles
        size = values.shape[0]
        log_uniform = uniform_log_weights(size)
        mean, scale = weighted_mean(particles), jnp.sqrt(weighted_variance(particles))
        # A coordinate in which all particles agree has no scale, and needs none.
        standard = (values - mean[None, :]) / jnp.where(scale > 0.0, scale, 1.0)[None, :]
        norms = jnp.square(standard).sum(axis=1)
        costs = jnp.maximum(norms[:, None] + norms[None, :] - 2.0 * standard @ standard.T, 0.0)
        mean_cost = jnp.exp(log_uniform) @ costs @ jnp.exp(log_weights)
        costs = costs / jnp.where(mean_cost > 0.0, entropy * mean_cost, 1.0)

        def balance(_: Int[Array, ""], columns: Weights) -> Weights:
            """Return the potential of the columns that gives the right column sums."""
            return -jax.nn.logsumexp(rows_of(columns)[:, None] + log_uniform[:, None] - costs, axis=0)

        def rows_of(columns: Weights) -> Weights:
            return -jax.nn.logsumexp((columns + log_weights)[None, :] - costs, axis=1)

        columns = jax.lax.fori_loop(0, num_iterations, balance, jnp.zeros_like(log_weights))
        # Each row of J T, normalized: where one new particle comes from.
        shares = jax.nn.softmax((columns + log_weights)[None, :] - costs, axis=1)
        moved = shares @ standard
        # This also removes the error of the mean that finitely many iterations leave.
        moved = moved - moved.mean(axis=0)[None, :]
        shrunk = jnp.sqrt(jnp.square(moved).mean(axis=0))
        stretch = scale / jnp.where(shrunk > 0.0, shrunk, 1.0)
        moved = mean[None, :] + stretch[None, :] * moved
        return Particles(moved, log_uniform), jnp.argmax(shares, axis=1).astype(jnp.int32)

    return resample


def islands(num_islands: int, every: int = 10, scheme: Resampler = stratified) -> Resampler:
    """Resample within islands of particles, and the whole cloud once in ``every`` times on average.

    On a mesh whose axis ``particle`` divides ``num_islands``, particles leave their device only at an
    exchange, which helps on slow networks between devices. A resampler has no memory, so exchanges come
    at random, each time with probability 1 / ``every``, on all devices at once.

    Args:
        num_islands: K, which must divide the number of particles.
        every: Mean number of resamplings per exchange; 1 for the plain scheme.
        scheme: A scheme that copies particles: `stratified`, `systematic`, `multinomial` or `residual`.

    Returns:
        The resampler, to pass as ``resample`` to an algorithm.

    Example:
        >>> import partialbayes as pb
        >>> resample = pb.resampling.when_ess_below(0.5, pb.resampling.islands(4, every=10))
    """
    require_positive_int("num_islands", num_islands, "for example the number of devices.")
    require_positive_int("every", every, "how many resamplings there are to one exchange.")
    if scheme not in (stratified, systematic, multinomial, residual):
        raise ValueError(
            "scheme must copy particles: stratified, systematic, multinomial or residual. To resample "
            "only when the weights are uneven, use when_ess_below(0.5, islands(...))."
        )

    def resample(key: PRNGKey, particles: Particles) -> tuple[Particles, Int[Array, " particle"]]:
        key_exchange, key_all, key_within = jax.random.split(key, 3)
        num_particles = particles.log_weights.shape[0]
        if num_particles % num_islands:
            raise ValueError(
                f"num_particles is {num_particles}, which {num_islands} islands do not divide; use "
                f"num_particles={-(-num_particles // num_islands) * num_islands}, or a different number "
                "of islands."
            )
        return jax.lax.cond(
            jax.random.bernoulli(key_exchange, 1.0 / every),
            lambda: scheme(key_all, particles),
            lambda: within(key_within, particles),
        )

    def within(key: PRNGKey, particles: Particles) -> tuple[Particles, Int[Array, " particle"]]:
        values, log_weights = particles
        own = shard_particles(values.reshape(num_islands, -1, values.shape[1]))
        shares = log_weights.reshape(num_islands, -1)
        totals = jax.nn.logsumexp(shares, axis=1, keepdims=True)
        # An island without any weight may use any shares.
        shares = jnp.where(totals > -jnp.inf, shares - jnp.where(totals > -jnp.inf, totals, 0.0), 0.0)
        nothing = jnp.zeros((*shares.shape, 0), values.dtype)  # only the indices are needed
        keys = jax.random.split(key, num_islands)
        drawn, ancestors = jax.vmap(scheme)(keys, Particles(nothing, replicate(shares)))
        ancestors = replicate(ancestors)  # drawn by every device, as the log-weights are
        copied = shard_particles(jax.vmap(lambda island, places: island[places])(own, ancestors))
        first = jnp.arange(num_islands, dtype=ancestors.dtype)[:, None] * own.shape[1]
        weighted = Particles(
            shard_particles(copied.reshape(values.shape)), (drawn.log_weights + totals).reshape(-1)
        )
        return weighted, (first + ancestors).reshape(-1)

    return resample

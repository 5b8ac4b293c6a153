"""Resampling on islands: each device resamples its own particles, and only now and then all of them.

The J particles are K islands of J/K. Within island i, of weight W_i = Σ_j∈i w_j, the copies of a
particle are drawn by its share of the island, and every new particle has weight W_i K / J:

    E[Σ_j∈i w'_j f(φ'_j)] = Σ_j∈i w_j f(φ_j)    for every island and every f,

so the whole cloud stands for what it stood for, and the evidence stays unbiased, exchange or not. What
suffers without exchange is its variance: islands of little weight are work for nothing (Vergé et al.
2015).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from partialbayes.checks import require_count
from partialbayes.resampling import multinomial, residual, stratified, systematic
from partialbayes.sharding import everywhere, over_particles
from partialbayes.types import Particles, PRNGKey, Resampler


def islands(num_islands: int, every: int = 10, scheme: Resampler = stratified) -> Resampler:
    """Resample within islands of particles, and the whole cloud on average every so many times.

    On a mesh whose axis ``particle`` divides ``num_islands`` no particle leaves its device but at an
    exchange, for networks that are slow. A resampler has no memory, so exchanges come at random, each
    time with probability 1 / ``every``, on all devices at once.

    Args:
        num_islands: K, which must divide the number of particles.
        every: How many resamplings there are to one exchange, on average; 1 for the plain scheme.
        scheme: One that copies particles: `stratified`, `systematic`, `multinomial` or `residual`.

    Raises:
        ValueError: A number is not a whole one of at least 1, or the scheme moves particles; or,
            from the first step, ``num_islands`` does not divide the number of particles.

    Example:
        >>> import partialbayes as pb
        >>> resample = pb.when_ess_below(0.5, pb.parallel.islands(4, every=10))
    """
    require_count("num_islands", num_islands, "for example the number of devices.")
    require_count("every", every, "how many resamplings there are to one exchange.")
    if scheme not in (stratified, systematic, multinomial, residual):
        raise ValueError(
            "scheme must be one that copies particles: stratified, systematic, multinomial or residual. "
            "To resample only when the weights are uneven, use when_ess_below(0.5, islands(...))."
        )

    def resample(key: PRNGKey, particles: Particles) -> tuple[Particles, Int[Array, " particle"]]:
        key_exchange, key_all, key_within = jax.random.split(key, 3)
        num_particles = particles.log_weights.shape[0]
        if num_particles % num_islands:
            raise ValueError(
                f"num_particles is {num_particles}, which {num_islands} islands do not divide; use "
                f"num_particles={-(-num_particles // num_islands) * num_islands}, or other islands."
            )
        return jax.lax.cond(
            jax.random.bernoulli(key_exchange, 1.0 / every),
            lambda: scheme(key_all, particles),
            lambda: within(key_within, particles),
        )

    def within(key: PRNGKey, particles: Particles) -> tuple[Particles, Int[Array, " particle"]]:
        values, log_weights = particles
        own = over_particles(values.reshape(num_islands, -1, values.shape[1]))
        shares = log_weights.reshape(num_islands, -1)
        totals = jax.nn.logsumexp(shares, axis=1, keepdims=True)
        # An island without any weight has no shares: any will do.
        shares = jnp.where(totals > -jnp.inf, shares - jnp.where(totals > -jnp.inf, totals, 0.0), 0.0)
        nothing = jnp.zeros((*shares.shape, 0), values.dtype)  # where to copy from is all that is asked
        keys = jax.random.split(key, num_islands)
        drawn, ancestors = jax.vmap(scheme)(keys, Particles(nothing, everywhere(shares)))
        ancestors = everywhere(ancestors)  # drawn by every device, as the log-weights are
        copied = over_particles(jax.vmap(lambda island, places: island[places])(own, ancestors))
        first = jnp.arange(num_islands, dtype=ancestors.dtype)[:, None] * own.shape[1]
        weighted = Particles(
            over_particles(copied.reshape(values.shape)), (drawn.log_weights + totals).reshape(-1)
        )
        return weighted, (first + ancestors).reshape(-1)

    return resample

"""Resampling: equally weighted particles with the same law in expectation.

A scheme is a `Resampler`; every one is unbiased, E[number of copies of j] = J w_j. The index
schemes are BlackJAX's.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from partialbayes.types import Particles, PRNGKey, Resampler
from partialbayes.weights import effective_sample_size, uniform_log_weights


def _by_index(scheme: str) -> Resampler:
    def resample(key: PRNGKey, particles: Particles) -> tuple[Particles, Int[Array, " particle"]]:
        # Imported here because importing BlackJAX starts XLA, and `jax.distributed` must come first.
        import blackjax.smc.resampling as schemes

        draw: Callable[[PRNGKey, Float[Array, " particle"], int], Int[Array, " particle"]]
        draw = getattr(schemes, scheme)
        num_particles = particles.log_weights.shape[0]
        # BlackJAX needs weights that sum to one; a sum off by rounding is mended here.
        ancestors = draw(key, jax.nn.softmax(particles.log_weights), num_particles)
        resampled = Particles(particles.values[ancestors], uniform_log_weights(num_particles))
        return resampled, ancestors

    return resample


stratified: Resampler = _by_index("stratified")
"""One uniform draw in each of J equal strata of the cumulative weights."""

systematic: Resampler = _by_index("systematic")
"""One uniform draw shared by all J strata: particle j is copied ⌊J w_j⌋ or ⌈J w_j⌉ times."""


def when_ess_below(threshold: float, scheme: Resampler = stratified) -> Resampler:
    """Resample only when the effective sample size falls below ``threshold · J``.

    Args:
        threshold: Share of J, in (0, 1].
        scheme: What to resample with.

    Example:
        >>> import partialbayes as pb
        >>> resample = pb.when_ess_below(0.5, pb.systematic)
    """
    if not 0.0 < threshold <= 1.0:
        raise ValueError(
            f"threshold must be in (0, 1], a share of the number of particles, not {threshold!r}; "
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

"""Random-walk Metropolis: propose φ + N(0, v I), accept by the ratio of densities.

The adapted kernel proposes φ + N(0, λ (2.38²/d) Σ), where Σ is the covariance of the particles; for each
half it is that of the other half (`_halves.py`). λ = 1 is the best scaling for a normal target (Gelman,
Roberts & Gilks 1996). After each move log λ ← log λ + 2 (acceptance − target acceptance).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from partialbayes._utils.checks import require_positive, require_positive_int, require_probability
from partialbayes.feynman_kac._random import antithetic
from partialbayes.kernels._from_mcmc import advance
from partialbayes.kernels._halves import by_halves
from partialbayes.kernels._whitening import Factor
from partialbayes.types import (
    Kernel,
    LogDensity,
    Moved,
    ParticleKernel,
    Particles,
    PRNGKey,
    Scalar,
    Target,
)

_GAIN = 2.0  # acceptance falls by about 1/4 per unit of log λ, so a move closes half the difference


def adapted_metropolis(
    num_steps: int = 1, *, target_acceptance: float | Float[Array, ""] = 0.234
) -> Kernel:
    """Move particles by random-walk Metropolis that tunes itself and leaves the target invariant.

    Each half of the particles is moved with the covariance and step size learned from the other half.

    Args:
        num_steps: Number of steps per move, all with the same proposal.
        target_acceptance: The mean acceptance to aim for, in (0, 1); 0.234 is best for a random
            walk in many dimensions.

    Returns:
        The kernel.

    Raises:
        ValueError: At the first move: there is only one particle.

    Example:
        >>> import partialbayes as pb
        >>> kernel = pb.kernels.adapted_metropolis(num_steps=10)
    """
    require_positive_int("num_steps", num_steps, "how often each particle moves.")
    require_probability("target_acceptance", target_acceptance, "for example 0.234.")

    def move(
        key: PRNGKey,
        values: Float[Array, "particle dim"],
        factor: Factor,
        log_scale: Scalar,
        target: Target,
    ) -> tuple[Float[Array, "particle dim"], Scalar]:
        proposal = jnp.exp(0.5 * log_scale) * 2.38 / jnp.sqrt(values.shape[1]) * factor.lower
        return metropolis(key, values, proposal, target.log_density, num_steps)

    return by_halves(move, 1, target_acceptance, _GAIN)


def random_walk_metropolis(
    variance: float | Float[Array, ""] | Float[Array, " dim"],
    num_steps: int = 1,
    *,
    in_pairs: bool = False,
) -> Kernel:
    """Move particles by random-walk Metropolis, which leaves the target invariant.

    Args:
        variance: Variance (not standard deviation) of the proposal; one number, or one per weight.
        num_steps: Number of steps per move.
        in_pairs: Whether to draw the noise in opposite pairs of neighbors, which takes half as many
            random numbers. Each particle still moves by its own law, so averages and the evidence stay
            unbiased, but the two of a pair are not independent, as the standard error of the evidence
            assumes.

    Returns:
        The kernel.

    Example:
        >>> import partialbayes as pb
        >>> kernel = pb.kernels.random_walk_metropolis(0.05, num_steps=10)
    """
    require_positive("variance", variance)
    require_positive_int("num_steps", num_steps, "how often each particle moves.")
    factor = jnp.sqrt(jnp.asarray(variance, float))
    draw = antithetic if in_pairs else jax.random.normal

    def step(key: PRNGKey, particles: Particles, target: Target, state: PyTree) -> Moved:
        values, acceptance = metropolis(
            key, particles.values, factor, target.log_density, num_steps, draw
        )
        return Moved(values, jnp.zeros_like(particles.log_weights), acceptance, state)

    return Kernel(step)


def metropolis(
    key: PRNGKey,
    values: Float[Array, "particle dim"],
    factor: Float[Array, "*shape"],
    log_density: LogDensity,
    num_steps: int,
    draw: Callable[..., Float[Array, "particle dim"]] = jax.random.normal,
) -> tuple[Float[Array, "particle dim"], Scalar]:
    """Propose φ + F z with z standard normal, for every particle, ``num_steps`` times.

    The noise takes most of the time of a step on small networks; it is drawn for all particles at once.

    Args:
        key: The random key.
        values: The particles.
        factor: F: a number, a vector (its diagonal) or a matrix such as a Cholesky factor.
        log_density: The density to leave invariant.
        num_steps: Number of steps of each particle.
        draw: ``(key, shape, dtype) -> z``.

    Returns:
        The new positions and the mean acceptance.
    """
    import blackjax

    accept_or_stay = blackjax.mcmc.random_walk.build_additive_step()

    def keys_and_moves(key: PRNGKey) -> PyTree:
        key_noise, key_accept = jax.random.split(key)
        noise = draw(key_noise, values.shape, values.dtype)
        moves = noise @ factor.T if factor.ndim == 2 else jnp.broadcast_to(factor, values.shape) * noise
        return jax.random.split(key_accept, values.shape[0]), moves

    def step(drawn: Any, state: PyTree, log_density: LogDensity) -> tuple[PyTree, PyTree]:
        key, move = drawn
        return accept_or_stay(key, state, log_density, lambda *_: move)

    kernel = ParticleKernel(blackjax.mcmc.random_walk.init, step)
    return advance(key, values, kernel, log_density, num_steps, keys_and_moves)

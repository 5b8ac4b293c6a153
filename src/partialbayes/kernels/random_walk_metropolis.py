"""Random-walk Metropolis: propose φ + N(0, v I), accept by the ratio of densities."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from partialbayes.checks import require_count, require_positive
from partialbayes.kernels.lift import advance
from partialbayes.noise import antithetic, normal
from partialbayes.types import Kernel, LogDensity, Move, Moved, Particles, PRNGKey, Scalar, Target


def random_walk_metropolis(
    variance: float | Float[Array, ""] | Float[Array, " dim"],
    num_steps: int = 1,
    *,
    in_pairs: bool = False,
) -> Move:
    """Random-walk Metropolis steps that leave the target invariant.

    Args:
        variance: Variance (not standard deviation) of the proposal; a number or one per weight.
        num_steps: Steps per move.
        in_pairs: Draw the noise in opposite pairs of neighbours, half as many numbers. Each particle
            still moves by its own law, so averages and the evidence stay unbiased, but two of a pair
            are not independent, as the standard error of the evidence supposes.

    Raises:
        ValueError: ``variance`` is not positive, or ``num_steps`` not a whole number of at least 1.

    Example:
        >>> import partialbayes as pb
        >>> kernel = pb.kernels.random_walk_metropolis(0.05, num_steps=10)
    """
    require_positive("variance", variance)
    require_count("num_steps", num_steps, "how often each particle moves.")
    factor = jnp.sqrt(jnp.asarray(variance, float))
    draw = antithetic if in_pairs else normal

    def init(dim: int) -> PyTree:
        return ()

    def step(key: PRNGKey, particles: Particles, target: Target, state: PyTree) -> Moved:
        values, acceptance = metropolis(
            key, particles.values, factor, target.log_density, num_steps, draw
        )
        return Moved(values, jnp.zeros_like(particles.log_weights), acceptance, state)

    return Move(init, step)


def metropolis(
    key: PRNGKey,
    values: Float[Array, "particle dim"],
    factor: Float[Array, "*shape"],
    log_density: LogDensity,
    num_steps: int,
    draw: Callable[..., Float[Array, "particle dim"]] = normal,
) -> tuple[Float[Array, "particle dim"], Scalar]:
    """Propose φ + F z with z standard normal, for every particle, ``num_steps`` times.

    The noise, most of the time of a step on small networks, is drawn for all particles at once.

    Args:
        key: Of the steps.
        values: The particles.
        factor: F: a number, a vector (its diagonal) or a matrix such as a Cholesky factor.
        log_density: What to leave invariant.
        num_steps: How often each particle moves.
        draw: ``(key, shape, dtype) -> z``.

    Returns:
        Their new positions, and the mean acceptance.
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

    kernel = Kernel(blackjax.mcmc.random_walk.init, step)
    return advance(key, values, kernel, log_density, num_steps, keys_and_moves)

"""Apply a Markov kernel on one particle to every particle of the cloud."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from partialbayes._utils.checks import require_positive_int
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


def from_mcmc(kernel: ParticleKernel, num_steps: int = 1) -> Kernel:
    """Move every particle independently by the same kernel, ``num_steps`` times.

    The kernel must leave the target's ``log_density`` invariant.

    Args:
        kernel: A kernel on one particle, from BlackJAX or your own.
        num_steps: Number of steps per move.

    Returns:
        The kernel on the cloud.

    Example:
        >>> from functools import partial
        >>> import blackjax, jax.numpy as jnp, partialbayes as pb
        >>> step = partial(blackjax.barker.build_kernel(), step_size=0.1)
        >>> move = pb.kernels.from_mcmc(pb.types.ParticleKernel(blackjax.barker.init, step), num_steps=5)
    """
    require_positive_int("num_steps", num_steps, "how often each particle moves.")

    def step(key: PRNGKey, particles: Particles, target: Target, state: PyTree) -> Moved:
        values, acceptance = advance(key, particles.values, kernel, target.log_density, num_steps)
        return Moved(values, jnp.zeros_like(particles.log_weights), acceptance, state)

    return Kernel(step)


def advance(
    key: PRNGKey,
    values: Float[Array, "particle dim"],
    kernel: ParticleKernel,
    log_density: LogDensity,
    num_steps: int,
    draw: Callable[[PRNGKey], PyTree] | None = None,
) -> tuple[Float[Array, "particle dim"], Scalar]:
    """Apply a kernel to every particle.

    Args:
        key: The random key.
        values: The particles.
        kernel: The kernel on one particle.
        log_density: The density to leave invariant.
        num_steps: Number of steps of each particle.
        draw: Draws the randomness of one step of the whole cloud, one entry per particle, which the
            kernel gets in place of its key. By default it splits the key.

    Returns:
        The new positions and the mean acceptance.
    """

    def keys_of(key: PRNGKey) -> Key[Array, " particle"]:
        return jax.random.split(key, values.shape[0])

    def one_step(states: PyTree, key: PRNGKey) -> tuple[PyTree, Scalar]:
        drawn = (draw or keys_of)(key)
        states, infos = jax.vmap(lambda own, state: kernel.step(own, state, log_density))(drawn, states)
        acceptance = getattr(infos, "acceptance_rate", jnp.ones((), values.dtype))
        return states, jnp.mean(acceptance).astype(values.dtype)

    states = jax.vmap(lambda phi: kernel.init(phi, log_density))(values)
    states, acceptances = jax.lax.scan(one_step, states, jax.random.split(key, num_steps))
    return states.position, jnp.mean(acceptances)

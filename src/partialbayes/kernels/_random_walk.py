"""Brownian random walk, φ' = φ + N(0, v I), and the identity, φ' = φ."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from partialbayes._utils.checks import require_positive
from partialbayes.feynman_kac._random import antithetic
from partialbayes.types import Kernel, Moved, Particles, PRNGKey, Target


def random_walk(variance: float | Float[Array, ""] | Float[Array, " dim"]) -> Kernel:
    """Add N(0, ``variance`` I) to every particle.

    The kernel leaves no density invariant. In OHSMC its variance determines how fast earlier data are
    forgotten.

    Args:
        variance: Variance (not standard deviation) added per step; one number, or one per weight.

    Returns:
        The kernel, to pass to `ohsmc`.

    Raises:
        ValueError: In algorithms that need an invariant kernel, such as `smc`.

    Example:
        >>> import partialbayes as pb
        >>> kernel = pb.kernels.random_walk(0.01)
    """
    require_positive("variance", variance)

    def step(key: PRNGKey, particles: Particles, target: Target, state: PyTree) -> Moved:
        values = particles.values
        scale = jnp.broadcast_to(jnp.sqrt(jnp.asarray(variance, values.dtype)), values.shape[1:])
        noise = antithetic(key, values.shape, values.dtype)
        return moved_without_correction(values + scale[None, :] * noise, state)

    return Kernel(step, keeps_target=False)


def moved_without_correction(values: Float[Array, "particle dim"], state: PyTree = ()) -> Moved:
    """Return a `Moved` without a correction of the weights and without rejections.

    Args:
        values: The new positions.
        state: The kernel's memory.

    Returns:
        The result of the kernel's step.
    """
    return Moved(values, jnp.zeros(values.shape[0], values.dtype), jnp.ones((), values.dtype), state)


def identity() -> Kernel:
    """Leave the particles where they are.

    Every density is invariant, but nothing new is explored: with resampling the cloud collapses to a few
    points.

    Returns:
        The kernel.

    Example:
        >>> import partialbayes as pb
        >>> kernel = pb.kernels.identity()
    """

    def step(key: PRNGKey, particles: Particles, target: Target, state: PyTree) -> Moved:
        return moved_without_correction(particles.values, state)

    return Kernel(step)

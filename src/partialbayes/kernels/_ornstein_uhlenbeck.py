"""Ornstein–Uhlenbeck kernel with the prior as its stationary law.

Over time t, coordinate by coordinate, for the prior N(m, s²):

    φ' = m + e^{−t/(2s²)} (φ − m) + sqrt(s² (1 − e^{−t/s²})) ε.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from partialbayes._utils.checks import require_positive
from partialbayes.feynman_kac._random import antithetic
from partialbayes.kernels._random_walk import moved_without_correction
from partialbayes.types import Kernel, Moved, Particles, PRNGKey, Target


def ornstein_uhlenbeck(time: float | Float[Array, ""]) -> Kernel:
    """Pull particles toward the prior's mean and add noise, for a time ``time``.

    The kernel leaves the prior, which must be normal, invariant. However often it is applied, the
    particles never spread beyond the prior.

    Args:
        time: Time of the process per step; 0.1 is a usual value.

    Returns:
        The kernel, to pass to `ohsmc`.

    Raises:
        ValueError: In `ohsmc`: the prior is not normal.

    Example:
        >>> import partialbayes as pb
        >>> kernel = pb.kernels.ornstein_uhlenbeck(0.1)
    """
    require_positive("time", time)

    def step(key: PRNGKey, particles: Particles, target: Target, state: PyTree) -> Moved:
        mean, variance = target.prior
        decay = jnp.exp(-0.5 * time / variance)
        scale = jnp.sqrt(-variance * jnp.expm1(-time / variance))
        noise = antithetic(key, particles.values.shape, particles.values.dtype)
        pulled = mean[None, :] + decay[None, :] * (particles.values - mean[None, :])
        return moved_without_correction(pulled + scale[None, :] * noise, state)

    return Kernel(step, needs_normal_prior=True, keeps_target=False)

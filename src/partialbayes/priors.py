"""Priors π(φ) over the stochastic weights.

A prior is built for a split, because its shape may follow the layers. What is learned of it lives
in ``psi.prior``.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from partialbayes.checks import require_positive
from partialbayes.parameters import Learned, positive_parameter
from partialbayes.subsets import Split
from partialbayes.types import Moments, Phi, Prior, PriorBuilder, PRNGKey, Scalar


def normal(mean: Any = 0.0, scale: Any = 1.0) -> PriorBuilder:
    """φ ~ N(mean, diag(scale²)).

    Args:
        mean: A number, or one per stochastic weight.
        scale: Standard deviation: a positive number, one per stochastic weight, or
            ``learned(start)`` to train it by maximum marginal likelihood along with ψ.

    Example:
        >>> import partialbayes as pb
        >>> prior = pb.normal(scale=pb.learned(1.0))
    """
    if not isinstance(scale, Learned):
        require_positive("scale", scale)

    def build(split: Split) -> Prior:
        for name, value in (("mean", mean), ("scale", scale)):
            shape = np.shape(value.start if isinstance(value, Learned) else value)
            if shape not in ((), (split.dim,)):
                raise ValueError(
                    f"{name} of the normal prior has shape {shape}; give one number, or one for "
                    f"each of the {split.dim} stochastic weights, shape ({split.dim},)."
                )
        start, current = positive_parameter(scale)

        def moments(learned: PyTree) -> Moments:
            spread = jnp.broadcast_to(jnp.asarray(current(learned), float), (split.dim,))
            centre = jnp.broadcast_to(jnp.asarray(mean, float), (split.dim,))
            return Moments(centre, jnp.square(spread))

        def sample(key: PRNGKey, learned: PyTree, num: int) -> Float[Array, "num dim"]:
            centre, variance = moments(learned)
            noise = jax.random.normal(key, (num, split.dim), centre.dtype)
            return centre[None, :] + jnp.sqrt(variance)[None, :] * noise

        def log_density(phi: Phi, learned: PyTree) -> Scalar:
            centre, variance = moments(learned)
            return jnp.sum(
                -0.5 * jnp.square(phi - centre) / variance - 0.5 * jnp.log(2.0 * jnp.pi * variance)
            )

        return Prior(start, sample, log_density, moments, normal=True)

    return build

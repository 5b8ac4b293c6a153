"""Forgetting: make room for the batch, so that OHSMC settles at the posterior.

OHSMC multiplies the data in again each epoch. With ε = M/N the step

    π ← π^{1−ε} · prior^ε · p(batch)

has the posterior of all N rows as its stationary point, exactly so in the linear-Gaussian case:
the precision P⁻¹ ← (1−ε) P⁻¹ + ε S⁻¹ + M F stays at S⁻¹ + N F. The kernel does the first two factors
on particles, by their moments. In coordinates z where the prior is N(0, I) and the cloud's
covariance is diagonal, with mean m and variance q,

    q' = q / (1 − ε + ε q),    m' = (1 − ε) m / (1 − ε + ε q),

the particles are shifted to m' and get noise of variance q' − q; where q' < q (the cloud is wider
than the prior) they are drawn together about the mean by sqrt(q'/q) instead.

The batch then enters by weights. At the right spread their logarithms have a variance of some ε d, and
every resampling makes an error of order d/J in the covariance, which the recursion forgets at the rate
2ε only: with fewer than some 10 d² particles the cloud is too narrow, with a few d it collapses, and
the effective sample size does not show it. Up to five weights, 200 particles do.
"""

from __future__ import annotations

from typing import Literal

import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from partialbayes.feynman_kac._random import antithetic
from partialbayes.kernels._random_walk import moved_without_correction
from partialbayes.types import Kernel, Moments, Moved, Particles, PRNGKey, Scalar, Target
from partialbayes.weights import weighted_covariance, weighted_mean, weighted_variance


def forgetting(covariance: Literal["full", "diagonal"] = "full") -> Kernel:
    """Forget the share M/N of what the particles know, in favor of the prior.

    It makes OHSMC's spread that of a posterior that is nearly normal, with 10 d² particles for d random
    weights; with fewer `ohsmc` warns. It needs no gradient in φ, which `transport` does, and knows the
    prior by its mean and variance.

    Args:
        covariance: "full" follows the correlations of the particles, and needs more particles than
            weights; "diagonal" treats every weight alone.

    Raises:
        ValueError: ``covariance`` is neither of the two; or, from `ohsmc`, the prior has no
            variance.

    Example:
        >>> import partialbayes as pb
        >>> kernel = pb.kernels.forgetting()
    """
    if covariance not in ("full", "diagonal"):
        raise ValueError(f'covariance must be "full" or "diagonal", not {covariance!r}.')

    def step(key: PRNGKey, particles: Particles, target: Target, state: PyTree) -> Moved:
        num_particles, dim = particles.values.shape
        scale = jnp.sqrt(target.prior.variance)
        whitened = (particles.values - target.prior.mean[None, :]) / scale[None, :]
        cloud = Particles(whitened, particles.log_weights)
        if covariance == "diagonal":
            variance = weighted_variance(cloud)
            axes = None
        else:
            _require_enough(num_particles, dim)
            # The posterior's axes after whitening: forgetting is diagonal in them.
            variance, axes = jnp.linalg.eigh(weighted_covariance(cloud))
            cloud = cloud._replace(values=whitened @ axes)
        # The floor keeps a collapsed cloud from dividing by zero when all the data is forgotten.
        before = Moments(weighted_mean(cloud), jnp.maximum(variance, np.finfo(variance.dtype).eps))
        after = forget(before, target.room)
        contraction = jnp.minimum(jnp.sqrt(after.variance / before.variance), 1.0)
        added = jnp.sqrt(jnp.maximum(after.variance - before.variance, 0.0))
        noise = antithetic(key, whitened.shape, whitened.dtype)
        centered = contraction[None, :] * (cloud.values - before.mean[None, :])
        moved = after.mean[None, :] + centered + added[None, :] * noise
        if axes is not None:
            moved = moved @ axes.T
        return moved_without_correction(target.prior.mean[None, :] + scale[None, :] * moved, state)

    return Kernel(
        step,
        needs_prior_variance=True,
        keeps_target=False,
        needs_batches=True,
        fewest_particles=lambda dim: 10 * dim**2,
    )


def forget(moments: Moments, fraction: Scalar) -> Moments:
    """What is left of a normal law, in coordinates where the prior is standard normal."""
    rate = fraction.astype(moments.variance.dtype)
    share = 1.0 / (1.0 - rate + rate * moments.variance)
    return Moments((1.0 - rate) * share * moments.mean, share * moments.variance)


def _require_enough(num_particles: int, dim: int) -> None:
    if num_particles <= dim:
        raise ValueError(
            f"{num_particles} particles do not have a full covariance in {dim} dimensions; use "
            f'forgetting("diagonal"), or num_particles above {dim}.'
        )

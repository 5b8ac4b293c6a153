"""Forgetting: discount earlier information by as much as a batch adds.

OHSMC multiplies the data in again each epoch. With ε = M/N the step

    π ← π^{1−ε} · prior^ε · p(batch)

has the posterior of all N rows as its stationary point, exactly so in the linear-Gaussian case:
the precision P⁻¹ ← (1−ε) P⁻¹ + ε S⁻¹ + M F stays at S⁻¹ + N F. The kernel applies the first two factors
to particles, by their moments. In coordinates z where the prior is N(0, I) and the cloud's
covariance is diagonal, with mean m and variance q,

    q' = q / (1 − ε + ε q),    m' = (1 − ε) m / (1 − ε + ε q),

the particles are shifted to m' and noise of variance q' − q is added. If q' < q (the cloud is wider
than the prior), their deviations from the mean are multiplied by sqrt(q'/q) instead.

The batch then enters by the weights. At the right spread, log-weights have a variance of about ε d, and
each resampling makes an error of order d/J in the covariance, which the recursion forgets only at the
rate 2ε. So with fewer than about 10 d² particles the cloud is too narrow, and with a few times d it
collapses; the effective sample size does not show it. For up to five weights, 200 particles are enough.
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
    """Forget the fraction M/N of earlier information, in favor of the prior.

    With this kernel the spread of OHSMC is that of the posterior, if the posterior is nearly normal and
    there are 10 d² particles for d random weights; `ohsmc` warns if there are fewer. Unlike `transport`
    it needs no gradient in φ. It uses only the mean and variance of the prior.

    Args:
        covariance: "full" uses the correlations of the particles, and needs more particles than
            weights; "diagonal" treats each weight separately.

    Returns:
        The kernel, to pass to `ohsmc`.

    Raises:
        ValueError: In `ohsmc`: the prior has no variance.

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
    """Discount a normal law, in coordinates where the prior is standard normal."""
    rate = fraction.astype(moments.variance.dtype)
    share = 1.0 / (1.0 - rate + rate * moments.variance)
    return Moments((1.0 - rate) * share * moments.mean, share * moments.variance)


def _require_enough(num_particles: int, dim: int) -> None:
    if num_particles <= dim:
        raise ValueError(
            f"{num_particles} particles do not have a full covariance in {dim} dimensions; use "
            f'forgetting("diagonal"), or num_particles above {dim}.'
        )

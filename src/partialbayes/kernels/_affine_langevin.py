"""Affine-invariant Langevin moves, preconditioned by the covariance of the cloud.

With m and C the mean and covariance of the J particles and π̂(φ) = π(φ) p(batch | φ)^{N/M},

    φ_j ← φ_j + h C ∇log π̂(φ_j) + h (d + 1)/J (φ_j − m) + √(2h) C^{½} ξ_j,    ξ_j ~ N(0, I)

(Garbuno-Inigo, Nüsken and Reich, 2020). The move is the same in all linear coordinates. The middle
term is the divergence of C, which depends on φ_j itself. With this term, J independent draws from the
posterior remain such draws in the limit of small h, for finite J > d + 1. With C = Rᵀ R, C^{½} ξ is
Rᵀ ξ, a combination of the particles' deviations from their mean. In diagonal form C holds only the
variances, and its divergence is (2/J) (φ_j − m).

The kernel chooses the step: h = 0.2 M/N, so that a batch moves the mean by a fifth of the shift it
asks for, and less where the gradients show that this is too far. The regression of the gradients on
the cloud gives the curvature K of −log π̂ in the cloud's coordinates: the identity if the cloud has the
shape of the posterior, and far larger if the cloud is too wide, as draws from the prior are. h is
limited to 1 / (2 ‖K‖), with the Frobenius norm estimated from the spread of the gradients, and the
root mean square shift of the mean to one standard deviation.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from partialbayes.kernels._random_walk import moved_without_correction
from partialbayes.kernels._transport import Covariance, is_full, require_covariance, slopes_of
from partialbayes.kernels._whitening import whiten, whiten_each
from partialbayes.parallel._sharding import replicate
from partialbayes.types import Kernel, Moved, Particles, PRNGKey, Target

_RATE = 0.2
_LONGEST = 0.5
_MARGIN = 2.0  # particles per dimension for the preconditioner to be full


def affine_langevin(covariance: Covariance = "auto") -> Kernel:
    """Move each particle by its gradient and by noise, both in the coordinates of the cloud.

    Unlike `transport`, this kernel can follow a posterior that is not normal, if it is not strongly
    curved. It takes about ten times as long to settle: its step is a fifth of the fraction M/N, and
    shorter at the start from the prior. It needs the gradient in φ, which the backward pass for ψ also
    computes.

    Args:
        covariance: "full" uses the correlations of the particles, and needs more particles than weights;
            "diagonal" uses one variance per weight; "auto" is full if there are at least twice as many
            particles as weights.

    Returns:
        The kernel, to pass to `ohsmc`.

    Raises:
        ValueError: At the first step: there are too few particles.

    Example:
        >>> import partialbayes as pb
        >>> kernel = pb.kernels.affine_langevin()
    """
    require_covariance(covariance)

    def step(key: PRNGKey, particles: Particles, target: Target, state: PyTree) -> Moved:
        values = replicate(particles.values)
        num_particles, dim = values.shape
        gradient = replicate(slopes_of(particles, target).log_density)
        full = is_full(covariance, num_particles, dim, _MARGIN)
        cloud = whiten(values) if full else whiten_each(values)
        pulled = gradient @ cloud.factor.T if full else gradient * cloud.factor[None, :]
        mean = pulled.mean(axis=0)
        curvature = jnp.sqrt(jnp.mean(jnp.sum(jnp.square(pulled - mean[None, :]), axis=1)))
        tiny = np.finfo(values.dtype).tiny
        length = jnp.minimum(
            jnp.minimum(_RATE * target.fraction.astype(values.dtype), _LONGEST / (curvature + tiny)),
            np.sqrt(dim) / (jnp.linalg.norm(mean) + tiny),
        )
        divergence = (dim + 1 if full else 2) / num_particles
        noise = jax.random.normal(key, values.shape, values.dtype)
        shift = length * (pulled + divergence * cloud.standard) + jnp.sqrt(2.0 * length) * noise
        shift = shift @ cloud.factor if full else shift * cloud.factor[None, :]
        return moved_without_correction(values + shift, state)

    return Kernel(step, keeps_target=False, batch_rate=_RATE)

"""Transport: one affine map of the cloud both forgets and updates with the batch.

The step π ← π^{1−ε} · prior^ε · p(batch), ε = M/N, has the posterior of all N rows as its fixed point
(see `forgetting`). Here it is done by moving particles only. With

    U(φ) = ε log π(φ) + log p(batch | φ),

a cloud with mean m and covariance C is moved to mean m' and covariance C',

    C'⁻¹ = (1 − ε) C⁻¹ − E[∇²U],    m' = m + C' E[∇U],

with expectations over the cloud. This is a natural-gradient step of length ε for the Gaussian closest to
the posterior. If U is quadratic (a network linear in φ, Gaussian noise and prior), it is the Kalman
update, and the fixed point is the posterior itself. No second derivatives are needed: by Stein's
identity, E[∇²U] = C⁻¹ Cov(φ, ∇U), a regression of the gradients on the particles. It is exact for
quadratic U and any cloud with more particles than dimensions.

In whitened coordinates y, φ = m + Rᵀ y with C = Rᵀ R, the step is, with G_j = R ∇U(φ_j),

    B = (1 − ε) I − sym((1/J) Σ_j y_j G_jᵀ),    y_j ← B⁻¹ (1/J) Σ_i G_i + B^{−½} y_j.

The symmetric root is the map that moves the cloud least, in the metric C⁻¹. The eigenvalues of B are at
least max(1 − ε, ½): the curvature of a batch may be negative, but a batch must not widen the cloud more
than forgetting does. The shift of the mean is limited to a root mean square of two standard deviations,
because the cloud's gradients are not informative farther out.

In diagonal form, for clouds with hardly more particles than dimensions, R and B are diagonal, and the
fixed point is the closest Gaussian with independent coordinates. Each coordinate is then reflected at
its mean with probability ½. That keeps the distribution, and random correlations between coordinates
average out over steps.

No particle is weighted, resampled or copied, and no noise is added. An affine map keeps the shape of the
cloud: the result approximates the posterior by a Gaussian, even if it is curved or has several modes.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from partialbayes.kernels._random_walk import moved_without_correction
from partialbayes.kernels._whitening import floored, inverse_root, whiten, whiten_each
from partialbayes.parallel._sharding import replicate
from partialbayes.types import Kernel, Moved, Particles, Phi, PRNGKey, Scalar, Slopes, Target

Covariance = Literal["auto", "full", "diagonal"]
Values = Float[Array, "particle dim"]

_LEAST_FACTOR = 0.5
_FARTHEST = 2.0
_MARGIN = 1.25  # particles per dimension for a full covariance


class Frame(NamedTuple):
    """Whitened coordinates of a cloud: φ_j = m + Rᵀ y_j.

    Attributes:
        standard: y, with mean zero and covariance I. An affine map of the cloud does not change it.
        factor: R, which each move multiplies.
    """

    standard: Values
    factor: Float[Array, "dim dim"]


def transport(covariance: Covariance = "auto") -> Kernel:
    """Move the cloud by an affine map that forgets the share M/N and updates with the batch.

    This is the default of `ohsmc`. It reproduces the mean and covariance of a nearly Gaussian posterior
    with a few particles per random weight, and has no step size. It needs the gradient in φ, which comes
    with the backward pass for ψ.

    Args:
        covariance: "full" tracks the correlations of the weights, and needs more particles than random
            weights. "diagonal" treats every weight separately, and its variances are too small for
            correlated weights. "auto" is full if there are at least 5/4 as many particles as weights.

    Returns:
        The kernel, to pass to `ohsmc`.

    Raises:
        ValueError: ``covariance`` is none of the three, or there are too few particles when the kernel
            is used.

    Example:
        >>> import partialbayes as pb
        >>> kernel = pb.kernels.transport()
    """
    require_covariance(covariance)

    def init(particles: Particles) -> Frame | tuple[()]:
        values = replicate(particles.values)
        num_particles, dim = values.shape
        if not is_full(covariance, num_particles, dim, _MARGIN):
            return ()
        cloud = whiten(values)
        return Frame(cloud.standard, cloud.factor)

    def step(key: PRNGKey, particles: Particles, target: Target, frame: Frame | tuple[()]) -> Moved:
        values = replicate(particles.values)
        slopes = slopes_of(particles, target)
        rate = target.room.astype(values.dtype)
        gradient = replicate(rate * slopes.log_prior + slopes.log_potential)
        if isinstance(frame, Frame):
            return _move_together(values, gradient, rate, frame)
        return moved_without_correction(_move_each(key, values, gradient, rate), frame)

    return Kernel(step, init, keeps_target=False, batch_rate=1.0)


def _move_together(values: Values, gradient: Values, rate: Scalar, frame: Frame) -> Moved:
    """Move the cloud and its frame; the whitened coordinates do not change."""
    num_particles, dim = values.shape
    standard, factor = frame
    regression = -(standard.T @ gradient) @ factor.T / num_particles
    ratio = (1.0 - rate) * jnp.eye(dim, dtype=values.dtype) + 0.5 * (regression + regression.T)
    root = inverse_root(floored(ratio, _least(rate)))
    shift = _held_back(root @ (root @ (factor @ gradient.mean(axis=0))))
    mean = values.mean(axis=0) + shift @ factor
    factor = root @ factor
    return moved_without_correction(mean[None, :] + standard @ factor, Frame(standard, factor))


def _move_each(key: PRNGKey, values: Values, gradient: Values, rate: Scalar) -> Values:
    """Move every coordinate separately."""
    cloud = whiten_each(values)
    pulled = gradient * cloud.factor[None, :]
    factors = jnp.maximum(1.0 - rate - (cloud.standard * pulled).mean(axis=0), _least(rate))
    sides = jax.random.rademacher(key, cloud.mean.shape, values.dtype)
    shift = _held_back(pulled.mean(axis=0) / factors)
    anomalies = (sides * jax.lax.rsqrt(factors))[None, :] * cloud.standard
    return cloud.mean[None, :] + (shift[None, :] + anomalies) * cloud.factor[None, :]


def _least(rate: Scalar) -> Scalar:
    return jnp.maximum(1.0 - rate, _LEAST_FACTOR)


def _held_back(shift: Phi) -> Phi:
    length = jnp.sqrt(jnp.mean(jnp.square(shift)))
    return shift * jnp.minimum(1.0, _FARTHEST / jnp.maximum(length, _FARTHEST))


def slopes_of(particles: Particles, target: Target) -> Slopes:
    """Return the gradients that come with the target, or compute them."""
    if target.slopes is not None:
        return target.slopes
    of_density = jax.vmap(jax.grad(target.log_density))(particles.values)
    of_potential = jax.vmap(jax.grad(target.log_potential))(particles.values)
    return Slopes(of_density, of_density - of_potential / target.fraction, of_potential)


def require_covariance(covariance: str) -> None:
    """Refuse an unknown form of the covariance."""
    if covariance not in ("auto", "full", "diagonal"):
        raise ValueError(f'covariance must be "auto", "full" or "diagonal", not {covariance!r}.')


def is_full(covariance: Covariance, num_particles: int, dim: int, margin: float) -> bool:
    """Return whether a cloud of this size gets a full covariance; refuse clouds that are too small."""
    if num_particles < 2:
        raise ValueError(
            "this kernel uses the spread of the particles, and a single particle has none; use at least "
            "num_particles=2, better a few for every random weight."
        )
    if covariance == "full" and num_particles <= dim:
        raise ValueError(
            f"{num_particles} particles have no full covariance in {dim} dimensions; use "
            f'covariance="diagonal", or num_particles above {dim}.'
        )
    return covariance == "full" or (covariance == "auto" and num_particles >= margin * dim + 1)

"""Transport: forgetting and the batch both enter by one affine map of the cloud.

The step π ← π^{1−ε} · prior^ε · p(batch), ε = M/N, has the posterior of all N rows as its fixed point
(see `forgetting`). Here all of it is done by moving particles. With

    U(φ) = ε log π(φ) + log p(batch | φ),

a cloud of mean m and covariance C goes to mean m' and covariance C',

    C'⁻¹ = (1 − ε) C⁻¹ − E[∇²U],    m' = m + C' E[∇U],

expectations over the cloud: the natural-gradient step, of length ε, of the normal law nearest to the
posterior. If U is quadratic (a network linear in φ, normal noise and prior) it is Kalman's update, so
that the fixed point is the posterior itself. Curvature needs no second derivatives: by Stein's
identity E[∇²U] = C⁻¹ Cov(φ, ∇U), the regression of the particles' own gradients on where they are,
which is exact where U is quadratic, for any cloud of more particles than dimensions.

In coordinates y of the cloud, φ = m + Rᵀ y with C = Rᵀ R, it reads: with G_j = R ∇U(φ_j),

    B = (1 − ε) I − sym((1/J) Σ_j y_j G_jᵀ),    y_j ← B⁻¹ (1/J) Σ_i G_i + B^{−½} y_j,

where the symmetric root is the map that moves the cloud least, measured by the cloud. The
eigenvalues of B are held above 1 − ε, and ½ at least: the curvature of a batch may be negative, and no
batch widens the cloud by more than forgetting does. The shift of the mean is held below two standard
deviations, root mean square: further out the cloud's gradients say little.

In diagonal form, for clouds with hardly more particles than dimensions, R and B are diagonal, and the
fixed point is the nearest normal law with independent coordinates. Each coordinate is then mirrored
at its mean, or not, at random: it is the same law, and chance correlations between coordinates
average out over steps.

No particle is weighted, resampled or copied, and there is no noise. An affine map keeps the cloud's
shape: what comes out is the normal law nearest to the posterior, which a banana or two modes are not.
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
_MARGIN = 1.25  # particles per dimension for the covariance to be full


class Frame(NamedTuple):
    """A cloud's own coordinates: φ_j = m + Rᵀ y_j.

    Attributes:
        standard: y, of mean zero and covariance one. An affine map of the cloud does not change it.
        factor: R, which the moves multiply.
    """

    standard: Values
    factor: Float[Array, "dim dim"]


def transport(covariance: Covariance = "auto") -> Kernel:
    """Move the cloud by an affine map that forgets the share M/N and takes the batch in.

    The default of `ohsmc`. It holds mean and covariance of a posterior that is nearly normal with a few
    particles per dimension, and has no number to choose. It needs the gradient in φ, which the backward
    pass for ψ gives along.

    Args:
        covariance: "full" follows the correlations of the particles, and needs more particles than
            weights; "diagonal" treats every weight alone, and its variances are too small where weights
            are correlated; "auto" is full from 5/4 as many particles as weights.

    Raises:
        ValueError: ``covariance`` is none of the three; or, when it is used, there are too few
            particles.

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
    """Move the cloud and its frame; the standard coordinates stay as they are."""
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
    """Move every coordinate by its own variance."""
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
    """The gradients that come with the target, or else by a pass of its own."""
    if target.slopes is not None:
        return target.slopes
    of_density = jax.vmap(jax.grad(target.log_density))(particles.values)
    of_potential = jax.vmap(jax.grad(target.log_potential))(particles.values)
    return Slopes(of_density, of_density - of_potential / target.fraction, of_potential)


def require_covariance(covariance: str) -> None:
    """Refuse what is no form of a covariance."""
    if covariance not in ("auto", "full", "diagonal"):
        raise ValueError(f'covariance must be "auto", "full" or "diagonal", not {covariance!r}.')


def is_full(covariance: Covariance, num_particles: int, dim: int, margin: float) -> bool:
    """Which form a cloud of this size gets, and an error where it is too small for any."""
    if num_particles < 2:
        raise ValueError(
            "this kernel moves the particles by their own spread, and one particle has none; use "
            "num_particles=2 at least, and a few for every random weight if you can."
        )
    if covariance == "full" and num_particles <= dim:
        raise ValueError(
            f"{num_particles} particles do not have a full covariance in {dim} dimensions; use "
            f'covariance="diagonal", or num_particles above {dim}.'
        )
    return covariance == "full" or (covariance == "auto" and num_particles >= margin * dim + 1)

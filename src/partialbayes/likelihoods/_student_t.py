"""Student-t noise for targets with outliers: (y − f(x)) / s ~ t(ν)."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from partialbayes._utils.checks import require_positive
from partialbayes._utils.recipes import serializable_builder
from partialbayes.likelihoods._common import (
    broadcast_per_output,
    check_two_heads,
    independent_outputs,
    real_targets,
    require_per_output,
    shape_without_single,
    squeeze_single,
    two_heads,
)
from partialbayes.parameters import as_parameter, parameter_dict
from partialbayes.types import Likelihood, PRNGKey


class StudentT(NamedTuple):
    """Parameters of independent Student-t targets."""

    location: Float[Array, "example ..."]
    scale: Float[Array, "example ..."]
    degrees_of_freedom: Float[Array, "example ..."]


@serializable_builder("likelihoods.student_t")
def student_t(degrees_of_freedom: Any = 4.0, scale: Any = 1.0, minimum: float = 1e-3) -> Likelihood:
    """Model real targets with Student-t noise: (y − f(x)) / scale ~ t(ν), independent over outputs.

    Args:
        degrees_of_freedom: Degrees of freedom ν: a positive number, one per output, ``learned`` or
            ``sampled``. The predictive variance is infinite for ν ≤ 2.
        scale: Scale of the noise, in the same forms. The standard deviation is sqrt(ν / (ν − 2)) times
            as large. With ``"predicted"`` the network predicts the scale: it returns two outputs per
            target, as for `heteroscedastic`, and the scale is ``minimum + softplus`` of the second.
        minimum: Lower bound of a predicted scale.

    Returns:
        The likelihood.

    Example:
        >>> import partialbayes as pb
        >>> likelihood = pb.likelihoods.student_t(degrees_of_freedom=4.0, scale=pb.learned(1.0))
        >>> robust = pb.likelihoods.student_t(degrees_of_freedom=pb.learned(4.0), scale="predicted")
        >>> model = pb.partial_bnn(pb.mlp([1, 20, 2]), pb.subsets.layer(-1), robust)
    """
    require_positive("minimum", minimum)
    is_predicted = isinstance(scale, str)
    if is_predicted and scale != "predicted":
        raise ValueError(f'scale must be positive, learned, sampled or "predicted", not {scale!r}.')
    single = {"degrees_of_freedom": as_parameter("degrees_of_freedom", degrees_of_freedom)}
    if not is_predicted:
        single["scale"] = as_parameter("scale", scale)
    given = parameter_dict(single)

    def entries(parameters: StudentT, targets: Array) -> Array:
        location, scale, degrees_of_freedom = parameters
        return jax.scipy.stats.t.logpdf(targets, degrees_of_freedom, location, scale)

    def parameters(outputs: PyTree, learned: PyTree, latent: dict[str, Array]) -> StudentT:
        values = given.values(learned, latent)
        if is_predicted:
            location, raw = two_heads(outputs)
            spread = minimum + jax.nn.softplus(raw)
        else:
            location = squeeze_single(outputs)
            spread = broadcast_per_output(values["scale"], location)
        return StudentT(location, spread, broadcast_per_output(values["degrees_of_freedom"], location))

    def variance(parameters: StudentT) -> Array:
        degrees_of_freedom = parameters.degrees_of_freedom
        finite = degrees_of_freedom > 2.0
        factor = degrees_of_freedom / jnp.where(finite, degrees_of_freedom - 2.0, 1.0)
        return jnp.where(finite, jnp.square(parameters.scale) * factor, jnp.inf)

    def cdf(parameters: StudentT, targets: Array) -> Array:
        location, scale, degrees_of_freedom = parameters
        return _student_cdf((targets - location) / scale, degrees_of_freedom)

    def sample(key: PRNGKey, parameters: StudentT) -> Array:
        # Bailey's polar method: √(ν (U^(−2/ν) − 1)) cos 2πV. JAX draws by rejection, much more slowly.
        location, _, degrees_of_freedom = parameters
        key_radius, key_angle = jax.random.split(key)
        share = 1.0 - jax.random.uniform(key_radius, location.shape, location.dtype)  # never 0
        angle = 2.0 * jnp.pi * jax.random.uniform(key_angle, location.shape, location.dtype)
        square = degrees_of_freedom * jnp.expm1(-2.0 / degrees_of_freedom * jnp.log(share))
        return location + parameters.scale * jnp.sqrt(square) * jnp.cos(angle)

    def check(outputs: Any, targets: Any) -> Array:
        if is_predicted:
            checked = check_two_heads(outputs, targets, "Student-t")
            shape = checked.shape
        else:
            shape = shape_without_single(outputs, "Student-t")
            checked = real_targets(targets, shape, "Student-t")
        for name, entry in single.items():
            require_per_output(name, entry.shape, shape[1:])
        return checked

    return Likelihood(
        init=given.init,
        parameters=parameters,
        **independent_outputs(entries),
        mean=lambda parameters: parameters.location,
        variance=variance,
        sample=sample,
        check=check,
        latents=given.latents,
        values=given.values,
        cdf=cdf,
    )


def _student_cdf(values: Array, degrees_of_freedom: Array) -> Array:
    """Compute P(T ≤ t) by the incomplete beta function, in the form with less rounding."""
    square, half = jnp.square(values), 0.5 * jnp.ones_like(values)
    is_central = square < degrees_of_freedom
    # P(|T| < |t|) = I_{t²/(ν+t²)}(½, ν/2) and P(|T| > |t|) = I_{ν/(ν+t²)}(ν/2, ½).
    share = jax.scipy.special.betainc(
        jnp.where(is_central, half, 0.5 * degrees_of_freedom),
        jnp.where(is_central, 0.5 * degrees_of_freedom, half),
        jnp.where(is_central, square, degrees_of_freedom) / (degrees_of_freedom + square),
    )
    outside = jnp.where(values < 0, 0.5 * share, 1.0 - 0.5 * share)
    return jnp.where(is_central, 0.5 + 0.5 * jnp.sign(values) * share, outside)

"""Gaussian noise, independent over outputs: y ~ N(f(x), v), with v given, learned or predicted."""

from __future__ import annotations

from functools import partial
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
from partialbayes.parameters import as_parameter
from partialbayes.types import Likelihood, PRNGKey


class Normal(NamedTuple):
    """Parameters of independent normal targets."""

    mean: Float[Array, "example ..."]
    variance: Float[Array, "example ..."]


@serializable_builder("likelihoods.gaussian")
def gaussian(variance: Any = 1.0) -> Likelihood:
    """Model real targets with Gaussian noise: y ~ N(f(x), variance), independent over outputs.

    Args:
        variance: Noise variance: a positive number, or one per output. Pass ``learned(start)`` to learn
            it in ψ, or ``sampled(start)`` to give it a prior and sample it in φ. An array as start makes
            one variance per output.

    Returns:
        The likelihood.

    Example:
        >>> import partialbayes as pb
        >>> likelihood = pb.gaussian(variance=pb.learned(1.0))
        >>> model = pb.partial_bnn(pb.mlp([2, 20, 1]), "layers/0/**", likelihood)
    """
    noise = as_parameter("variance", variance)

    def parameters(outputs: Array, learned: PyTree, latent: dict[str, Array]) -> Normal:
        mean = squeeze_single(outputs)
        return Normal(mean, broadcast_per_output(noise.value(learned, latent), mean))

    def check(outputs: Any, targets: Any) -> Array:
        shape = shape_without_single(outputs, "Gaussian")
        require_per_output("variance", noise.shape, shape[1:])
        return real_targets(targets, shape, "Gaussian")

    return Likelihood(
        init=noise.init,
        parameters=parameters,
        **independent_outputs(_entries),
        mean=lambda parameters: parameters.mean,
        variance=lambda parameters: parameters.variance,
        sample=_sample,
        check=check,
        latents=noise.latents,
        values=lambda learned, latent: {"variance": noise.value(learned, latent)},
        cdf=_cdf,
        is_gaussian=True,
    )


@serializable_builder("likelihoods.heteroscedastic")
def heteroscedastic(beta: float = 0.0, minimum: float = 1e-6) -> Likelihood:
    """Model real targets whose noise variance the network predicts: y ~ N(m(x), v(x)).

    The network returns two outputs per target, first the means, or a pair ``(mean, raw)`` from two
    heads. The variance is ``minimum + softplus(raw)``. For targets with outliers,
    ``student_t(scale="predicted")`` is more robust.

    Args:
        beta: Exponent β of the β-NLL, in [0, 1]; 0 is maximum likelihood. The gradient of each target is
            weighted by v(x)^β, so that targets with a large predicted variance still train the mean. The
            density, and so the weights of particles, do not change. Second stages and SMC from the prior
            use the gradient of the density; moves of `ohsmc` that follow a gradient in φ use the
            weighted one.
        minimum: Lower bound of the variance.

    Returns:
        The likelihood.

    Example:
        >>> import partialbayes as pb
        >>> likelihood = pb.likelihoods.heteroscedastic(beta=0.5)
        >>> model = pb.partial_bnn(pb.mlp([1, 20, 2]), pb.subsets.layer(0), likelihood)
    """
    if not isinstance(beta, jax.core.Tracer) and not 0.0 <= beta <= 1.0:
        raise ValueError(f"beta must lie between 0 and 1, not {beta!r}.")
    require_positive("minimum", minimum)
    is_plain = not isinstance(beta, jax.core.Tracer) and beta == 0.0

    def entries(parameters: Normal, targets: Array) -> Array:
        values = _entries(parameters, targets)
        weights = jax.lax.stop_gradient(parameters.variance**beta)
        constant = jax.lax.stop_gradient(values)
        return constant + weights * (values - constant)

    def parameters(outputs: PyTree, learned: PyTree, latent: dict[str, Array]) -> Normal:
        mean, raw = two_heads(outputs)
        return Normal(mean, minimum + jax.nn.softplus(raw))

    return Likelihood(
        init=tuple,
        parameters=parameters,
        **independent_outputs(entries),
        mean=lambda parameters: parameters.mean,
        variance=lambda parameters: parameters.variance,
        sample=_sample,
        check=partial(check_two_heads, likelihood="heteroscedastic"),
        cdf=_cdf,
        is_gaussian=True,
        exact=None if is_plain else heteroscedastic(0.0, minimum),
    )


def _entries(parameters: Normal, targets: Array) -> Array:
    mean, variance = parameters
    return -0.5 * jnp.square(targets - mean) / variance - 0.5 * jnp.log(2.0 * jnp.pi * variance)


def _cdf(parameters: Normal, targets: Array) -> Array:
    return jax.scipy.special.ndtr((targets - parameters.mean) / jnp.sqrt(parameters.variance))


def _sample(key: PRNGKey, parameters: Normal) -> Array:
    noise = jax.random.normal(key, parameters.mean.shape, parameters.mean.dtype)
    return parameters.mean + jnp.sqrt(parameters.variance) * noise

"""Build a likelihood from a function that returns one log-density per example."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from partialbayes._utils.checks import as_float_arrays, num_rows, require_finite
from partialbayes.likelihoods._common import MISSING_REMEDY
from partialbayes.parameters import as_parameter, parameter_dict
from partialbayes.types import Likelihood, PRNGKey


class Custom(NamedTuple):
    """The outputs of the network and the parameters of the likelihood by name."""

    outputs: PyTree
    values: dict[str, Array]


def custom(
    log_density: Callable[..., Float[Array, " example"]],
    *,
    mean: Callable[..., Array] | None = None,
    variance: Callable[..., Array] | None = None,
    sample: Callable[..., PyTree] | None = None,
    cdf: Callable[..., Array] | None = None,
    probabilities: Callable[..., Array] | None = None,
    **parameters: Any,
) -> Likelihood:
    """Build a likelihood from your own functions.

    Args:
        log_density: ``(outputs, targets) ->`` one log-density per example.
        mean: ``outputs ->`` predictive means. Needed only to predict means.
        variance: ``outputs ->`` predictive variances. Needed only to predict variances.
        sample: ``(key, outputs) -> targets``. Needed only to draw predictive samples.
        cdf: ``(outputs, targets) ->`` cumulative probabilities of each entry. Without it, quantiles are
            estimated from samples.
        probabilities: ``outputs ->`` class probabilities along the last axis. Pass it if the targets are
            classes.
        **parameters: Positive parameters: numbers, `learned` or `sampled`. All functions above get their
            values as keyword arguments.

    Returns:
        The likelihood.

    Example:
        >>> import jax, jax.numpy as jnp, partialbayes as pb
        >>> def logistic(outputs, targets, scale):
        ...     return jax.scipy.stats.logistic.logpdf(targets, outputs[:, 0], scale)
        >>> likelihood = pb.likelihoods.custom(
        ...     logistic, mean=lambda outputs, scale: outputs[:, 0], scale=pb.learned(1.0)
        ... )
    """
    own = parameter_dict({name: as_parameter(name, value) for name, value in parameters.items()})

    def call(name: str, function: Callable[..., Any] | None) -> Callable[..., Any]:
        def of_parameters(parameters: Custom, *given: Any) -> Any:
            if function is None:
                raise ValueError(
                    f"custom likelihood cannot predict: it was given no {name}; pass "
                    f"custom(..., {name}=...)."
                )
            return function(parameters.outputs, *given, **parameters.values)

        return of_parameters

    density = call("log_density", log_density)

    def observed_density(parameters: Custom, targets: PyTree, observed: Array) -> Array:
        rows = observed.reshape(observed.shape[0], -1).all(axis=1)
        return jnp.where(rows, density(parameters, targets), 0.0)

    def draw(key: PRNGKey, parameters: Custom) -> PyTree:
        with_key = None if sample is None else partial(sample, key)
        return call("sample", with_key)(parameters)

    def check(outputs: Any, targets: Any) -> PyTree:
        require_finite("targets", targets, MISSING_REMEDY)
        arrays = as_float_arrays(targets)
        rows = num_rows("targets", arrays)
        latent = {entry.name: entry.start() for entry in own.latents}
        values = jax.eval_shape(lambda: own.values(own.init(), latent))
        result = jax.eval_shape(lambda *pair: log_density(*pair[:2], **pair[2]), outputs, arrays, values)
        if jnp.shape(result) != (rows,):
            raise ValueError(
                f"log_density of the custom likelihood gives shape {jnp.shape(result)} for {rows} "
                f"examples; it must return one number per example, shape ({rows},)."
            )
        return arrays

    return Likelihood(
        init=own.init,
        parameters=lambda outputs, learned, latent: Custom(outputs, own.values(learned, latent)),
        log_density=density,
        mean=call("mean", mean),
        variance=call("variance", variance),
        sample=draw,
        check=check,
        latents=own.latents,
        observed_log_density=observed_density,
        values=own.values,
        cdf=None if cdf is None else call("cdf", cdf),
        probabilities=None if probabilities is None else call("probabilities", probabilities),
        kind="real" if probabilities is None else "class",
    )

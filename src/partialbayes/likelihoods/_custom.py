"""Any likelihood, from a function that gives one log-density per example."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from partialbayes._utils.checks import as_float_arrays, num_rows, require_finite
from partialbayes.likelihoods._common import MISSING_REMEDY
from partialbayes.parameters import as_parameter, parameter_dict
from partialbayes.types import Likelihood, PRNGKey


class Custom(NamedTuple):
    """The outputs of the network, and the likelihood's own parameters by name."""

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
    """A likelihood of your own.

    Args:
        log_density: ``(outputs, targets) ->`` one log-density per example.
        mean: ``outputs ->`` predictive means; needed only to predict means.
        variance: ``outputs ->`` predictive variances; needed only to predict.
        sample: ``(key, outputs) -> targets``; needed only to draw predictive samples.
        cdf: ``(outputs, targets) ->`` cumulative probabilities, entry by entry; without it,
            quantiles come from samples.
        probabilities: ``outputs ->`` class probabilities along the last axis, if the targets are
            classes.
        **parameters: Positive parameters, numbers or `learned` or `sampled`; all these functions
            get their values by name.

    Raises:
        ValueError: From `fit`, where ``log_density`` does not give one number per example; from
            `predict`, where a function that is asked for was not given.

    Example:
        >>> import jax, jax.numpy as jnp, partialbayes as pb
        >>> def logistic(outputs, targets, scale):
        ...     return jax.scipy.stats.logistic.logpdf(targets, outputs[:, 0], scale)
        >>> likelihood = pb.likelihoods.custom(
        ...     logistic, mean=lambda outputs, scale: outputs[:, 0], scale=pb.learned(1.0)
        ... )
    """
    own = parameter_dict({name: as_parameter(name, value) for name, value in parameters.items()})

    def given(name: str, function: Callable[..., Any] | None) -> Callable[..., Any]:
        if function is None:
            raise ValueError(
                f"this custom likelihood cannot predict: it was given no {name}; pass "
                f"custom(..., {name}=...)."
            )
        return function

    def density(parameters: Custom, targets: PyTree) -> Float[Array, " example"]:
        return log_density(parameters.outputs, targets, **parameters.values)

    def observed_density(parameters: Custom, targets: PyTree, observed: Array) -> Array:
        rows = observed.reshape(observed.shape[0], -1).all(axis=1)
        return jnp.where(rows, density(parameters, targets), 0.0)

    def draw(key: PRNGKey, parameters: Custom) -> PyTree:
        return given("sample", sample)(key, parameters.outputs, **parameters.values)

    def cumulative(parameters: Custom, targets: Array) -> Array:
        return given("cdf", cdf)(parameters.outputs, targets, **parameters.values)

    def of_classes(parameters: Custom) -> Array:
        return given("probabilities", probabilities)(parameters.outputs, **parameters.values)

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
                f"examples; it must give one number per example, shape ({rows},)."
            )
        return arrays

    return Likelihood(
        init=own.init,
        parameters=lambda outputs, learned, latent: Custom(outputs, own.values(learned, latent)),
        log_density=density,
        mean=lambda parameters: given("mean", mean)(parameters.outputs, **parameters.values),
        variance=lambda parameters: given("variance", variance)(parameters.outputs, **parameters.values),
        sample=draw,
        check=check,
        latents=own.latents,
        observed_log_density=observed_density,
        values=own.values,
        cdf=None if cdf is None else cumulative,
        probabilities=None if probabilities is None else of_classes,
        kind="real" if probabilities is None else "class",
    )

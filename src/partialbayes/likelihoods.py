"""Likelihoods: per-example log-densities and predictive moments from a network's outputs.

A single output loses its trailing axis: outputs of shape (n, 1) go with targets of shape (n,).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from partialbayes.checks import require_finite, require_positive
from partialbayes.parameters import Learned, positive_parameter
from partialbayes.types import Likelihood, PRNGKey


def squeeze_single(outputs: Array) -> Array:
    """Drop the trailing axis of a single output, (n, 1) -> (n,)."""
    return outputs[:, 0] if outputs.ndim == 2 and outputs.shape[1] == 1 else outputs


def sum_outputs(values: Float[Array, "example ..."]) -> Float[Array, " example"]:
    """Sum over everything but the example axis."""
    return values.reshape(values.shape[0], -1).sum(axis=1)


class Normal(NamedTuple):
    """Parameters of independent normal targets."""

    mean: Float[Array, "example ..."]
    variance: Float[Array, "example ..."]


def gaussian(variance: Any = 1.0) -> Likelihood:
    """Y ~ N(f(x), variance), independent over outputs.

    Args:
        variance: Noise variance: a positive number, one per output, or ``learned(start)`` to
            learn it (an array start learns one per output).

    Example:
        >>> import partialbayes as pb
        >>> likelihood = pb.gaussian(variance=pb.learned(1.0))
    """
    if not isinstance(variance, Learned):
        require_positive("variance", variance)
    variance_shape = np.shape(variance.start if isinstance(variance, Learned) else variance)
    start, current = positive_parameter(variance)

    def parameters(outputs: Array, learned: PyTree) -> Normal:
        mean = squeeze_single(outputs)
        return Normal(mean, _broadcast_per_output(current(learned), mean))

    def log_density(parameters: Normal, targets: Array) -> Float[Array, " example"]:
        mean, spread = parameters
        return sum_outputs(
            -0.5 * jnp.square(targets - mean) / spread - 0.5 * jnp.log(2.0 * jnp.pi * spread)
        )

    def sample(key: PRNGKey, parameters: Normal) -> Array:
        noise = jax.random.normal(key, parameters.mean.shape, parameters.mean.dtype)
        return parameters.mean + jnp.sqrt(parameters.variance) * noise

    def check(outputs: jax.ShapeDtypeStruct, targets: Any) -> Array:
        array = np.asarray(targets)
        if not (np.issubdtype(array.dtype, np.number) or array.dtype == bool):
            raise ValueError(
                f"targets must be numbers for the Gaussian likelihood, not {array.dtype}; "
                "encode them as floats, or use a classification likelihood."
            )
        shape = jax.eval_shape(squeeze_single, outputs).shape
        array = _match_shape(array, shape, "Gaussian")
        if variance_shape not in ((), shape[1:]):
            raise ValueError(
                f"variance has shape {variance_shape} but the network has outputs of shape "
                f"{shape[1:]} per example; give one number or one per output."
            )
        require_finite("targets", array, "drop those rows before training.")
        return jnp.asarray(array, jnp.result_type(float))

    return Likelihood(
        init=start,
        parameters=parameters,
        log_density=log_density,
        mean=lambda parameters: parameters.mean,
        variance=lambda parameters: parameters.variance,
        sample=sample,
        check=check,
    )


def _broadcast_per_output(value: Array, like: Array) -> Array:
    """A number, or one per output, spread over every example."""
    shape = (1,) * (like.ndim - value.ndim) + value.shape
    return jnp.broadcast_to(value.reshape(shape), like.shape)


def bernoulli() -> Likelihood:
    """Y ∈ {0, 1} with log-odds f(x), independent over outputs.

    Example:
        >>> import partialbayes as pb
        >>> likelihood = pb.bernoulli()
    """

    def log_density(logits: Array, targets: Array) -> Float[Array, " example"]:
        # log σ(z) for y = 1 and log σ(−z) for y = 0.
        return sum_outputs(jax.nn.log_sigmoid(jnp.where(targets == 1, logits, -logits)))

    def variance(logits: Array) -> Array:
        return jax.nn.sigmoid(logits) * jax.nn.sigmoid(-logits)

    def check(outputs: jax.ShapeDtypeStruct, targets: Any) -> Array:
        array = _whole_numbers(targets, "Bernoulli")
        array = _match_shape(array, jax.eval_shape(squeeze_single, outputs).shape, "Bernoulli")
        _require_labels(array, 2, "use the categorical likelihood for more than two classes.")
        return jnp.asarray(array, jnp.int32)

    return Likelihood(
        init=lambda: (),
        parameters=lambda outputs, learned: squeeze_single(outputs),
        log_density=log_density,
        mean=lambda logits: jax.nn.sigmoid(logits),
        variance=variance,
        sample=lambda key, logits: jax.random.bernoulli(key, jax.nn.sigmoid(logits)).astype(jnp.int32),
        check=check,
    )


def categorical() -> Likelihood:
    """Y ∈ {0, …, C−1} with class logits f(x), one output per class.

    Example:
        >>> import partialbayes as pb
        >>> likelihood = pb.categorical()
    """

    def log_density(
        logits: Float[Array, "example classes"], targets: Int[Array, " example"]
    ) -> Float[Array, " example"]:
        log_probabilities = jax.nn.log_softmax(logits)
        return jnp.take_along_axis(log_probabilities, targets[:, None], axis=1)[:, 0]

    def variance(logits: Array) -> Array:
        probabilities = jax.nn.softmax(logits)
        return probabilities * (1.0 - probabilities)

    def check(outputs: jax.ShapeDtypeStruct, targets: Any) -> Array:
        if len(outputs.shape) != 2 or outputs.shape[1] < 2:
            raise ValueError(
                f"the network's outputs have shape {outputs.shape}; the categorical likelihood needs "
                "(examples, classes) with at least two classes. For one logit use bernoulli()."
            )
        array = _match_shape(_whole_numbers(targets, "categorical"), outputs.shape[:1], "categorical")
        _require_labels(array, outputs.shape[1], "give the network one output per class.")
        return jnp.asarray(array, jnp.int32)

    return Likelihood(
        init=lambda: (),
        parameters=lambda outputs, learned: outputs,
        log_density=log_density,
        mean=lambda logits: jax.nn.softmax(logits),
        variance=variance,
        sample=lambda key, logits: jax.random.categorical(key, logits),
        check=check,
    )


def _whole_numbers(targets: Any, likelihood: str) -> Any:
    array = np.asarray(targets)
    if np.issubdtype(array.dtype, np.floating):
        require_finite("targets", array, "drop those rows before training.")
        if np.any(array != np.round(array)):
            raise ValueError(
                f"targets must be whole class labels for the {likelihood} likelihood, but some are "
                f"fractions ({float(array[array != np.round(array)].flat[0])!r}); for real-valued "
                "targets use gaussian()."
            )
    elif not (np.issubdtype(array.dtype, np.integer) or array.dtype == bool):
        raise ValueError(
            f"targets must be integer class labels for the {likelihood} likelihood, not "
            f"{array.dtype}; number the classes from 0."
        )
    return array


def _match_shape(array: Any, shape: tuple[int, ...], likelihood: str) -> Any:
    if array.shape == (*shape, 1):
        array = array[..., 0]
    if array.shape != shape:
        raise ValueError(
            f"targets have shape {array.shape} but the {likelihood} likelihood of this network needs "
            f"{shape}; reshape the targets, or change the network's last layer."
        )
    return array


def _require_labels(array: Any, classes: int, remedy: str) -> None:
    low, high = int(array.min()), int(array.max())
    if low < 0 or high >= classes:
        raise ValueError(
            f"targets hold labels from {low} to {high}, but there are {classes} classes, "
            f"0 to {classes - 1}; {remedy}"
        )

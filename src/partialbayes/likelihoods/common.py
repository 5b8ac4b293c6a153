"""What the likelihoods share: shapes, checks of targets, independence over outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from partialbayes.checks import require_finite

MISSING_REMEDY = "drop those rows before training, or wrap the likelihood in allow_missing()."


def squeeze_single(outputs: Array) -> Array:
    """Drop the trailing axis of a single output, (n, 1) -> (n,)."""
    return outputs[:, 0] if outputs.ndim == 2 and outputs.shape[1] == 1 else outputs


def sum_outputs(values: Float[Array, "example ..."]) -> Float[Array, " example"]:
    """Sum over everything but the example axis."""
    return values.reshape(values.shape[0], -1).sum(axis=1)


def broadcast_per_output(value: Array, like: Array) -> Array:
    """A number, or one per output, spread over every example."""
    shape = (1,) * (like.ndim - value.ndim) + value.shape
    return jnp.broadcast_to(value.reshape(shape), like.shape)


class Densities(NamedTuple):
    """The two log-densities of a likelihood: of whole rows, and of their observed entries."""

    log_density: Callable[[Any, Any], Float[Array, " example"]]
    observed_log_density: Callable[[Any, Any, Any], Float[Array, " example"]]


def independent(entries: Callable[[Any, Any], Float[Array, "example ..."]]) -> Densities:
    """Both log-densities where the entries of a row are independent given the outputs."""

    def log_density(parameters: Any, targets: Any) -> Float[Array, " example"]:
        return sum_outputs(entries(parameters, targets))

    def observed_log_density(parameters: Any, targets: Any, observed: Any) -> Float[Array, " example"]:
        return sum_outputs(jnp.where(observed, entries(parameters, targets), 0.0))

    return Densities(log_density, observed_log_density)


def require_array(outputs: Any, likelihood: str) -> None:
    """Refuse a network with several outputs where one array is needed."""
    if not hasattr(outputs, "shape"):
        raise ValueError(
            f"the network gives a {type(outputs).__name__}, but the {likelihood} likelihood needs one "
            "array; for a mean and a variance head use heteroscedastic()."
        )


def real_targets(targets: Any, shape: tuple[int, ...], likelihood: str) -> Array:
    """Finite real targets of the given shape."""
    array = np.asarray(targets)
    if not (np.issubdtype(array.dtype, np.number) or array.dtype == bool):
        raise ValueError(
            f"targets must be numbers for the {likelihood} likelihood, not {array.dtype}; "
            "encode them as floats, or use a classification likelihood."
        )
    array = match_shape(array, shape, likelihood)
    require_finite("targets", array, MISSING_REMEDY)
    return jnp.asarray(array, jnp.result_type(float))


def squeezed_shape(outputs: Any, likelihood: str) -> tuple[int, ...]:
    """The shape of the targets that go with these outputs."""
    require_array(outputs, likelihood)
    return tuple(jax.eval_shape(squeeze_single, outputs).shape)


def require_per_output(name: str, shape: tuple[int, ...], outputs: tuple[int, ...]) -> None:
    """Refuse a parameter that is neither one number nor one per output."""
    if shape not in ((), outputs):
        raise ValueError(
            f"{name} has shape {shape} but the network has outputs of shape {outputs} per example; "
            "give one number or one per output."
        )


def whole_numbers(targets: Any, likelihood: str, kind: str) -> Any:
    """Targets that are whole numbers, in whatever dtype they came."""
    array = np.asarray(targets)
    if np.issubdtype(array.dtype, np.floating):
        require_finite("targets", array, MISSING_REMEDY)
        if np.any(array != np.round(array)):
            raise ValueError(
                f"targets must be {kind} for the {likelihood} likelihood, but some are "
                f"fractions ({float(array[array != np.round(array)].flat[0])!r}); for real-valued "
                "targets use gaussian()."
            )
    elif not (np.issubdtype(array.dtype, np.integer) or array.dtype == bool):
        raise ValueError(
            f"targets must be {kind} for the {likelihood} likelihood, not {array.dtype}; number the "
            "classes from 0."
        )
    return array


def match_shape(array: Any, shape: tuple[int, ...], likelihood: str) -> Any:
    """Targets of the given shape, a single trailing axis dropped."""
    if array.shape == (*shape, 1):
        array = array[..., 0]
    if array.shape != shape:
        raise ValueError(
            f"targets have shape {array.shape} but the {likelihood} likelihood of this network needs "
            f"{shape}; reshape the targets, or change the network's last layer."
        )
    return array


def refuse_variance(variance: Any, likelihood: str) -> None:
    """A classification has no noise variance, fixed or learned."""
    if variance is not None:
        raise ValueError(
            f"the {likelihood} likelihood has no variance to fix or learn: its spread follows from its "
            "probabilities. Leave variance out; for real-valued targets use gaussian(variance=...)."
        )

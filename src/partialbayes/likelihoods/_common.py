"""Share shapes, checks of targets, independent outputs and two-headed outputs between likelihoods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from partialbayes._utils.checks import require_finite

MISSING_REMEDY = "drop those rows before training, or wrap the likelihood in allow_missing()."


def squeeze_single(outputs: Array) -> Array:
    """Drop the trailing axis of a single output, (n, 1) -> (n,)."""
    return outputs[:, 0] if outputs.ndim == 2 and outputs.shape[1] == 1 else outputs


def sum_outputs(values: Float[Array, "example ..."]) -> Float[Array, " example"]:
    """Sum over all axes but the example axis."""
    return values.reshape(values.shape[0], -1).sum(axis=1)


def broadcast_per_output(value: Array, like: Array) -> Array:
    """Broadcast one number, or one per output, over the examples."""
    shape = (1,) * (like.ndim - value.ndim) + value.shape
    return jnp.broadcast_to(value.reshape(shape), like.shape)


def independent_outputs(entries: Callable[[Any, Any], Float[Array, "example ..."]]) -> dict[str, Any]:
    """Build both log-densities of a `Likelihood` for entries that are independent given the outputs."""

    def log_density(parameters: Any, targets: Any) -> Float[Array, " example"]:
        return sum_outputs(entries(parameters, targets))

    def observed_log_density(parameters: Any, targets: Any, observed: Any) -> Float[Array, " example"]:
        return sum_outputs(jnp.where(observed, entries(parameters, targets), 0.0))

    return {"log_density": log_density, "observed_log_density": observed_log_density}


def require_array(outputs: Any, likelihood: str) -> None:
    """Require a network with one array as output."""
    if not hasattr(outputs, "shape"):
        raise ValueError(
            f"network returns a {type(outputs).__name__}, but the {likelihood} likelihood needs one "
            "array; for a mean and a variance head use heteroscedastic()."
        )


def real_targets(targets: Any, shape: tuple[int, ...], likelihood: str) -> Array:
    """Validate finite real targets of a given shape."""
    array = np.asarray(targets)
    if not (np.issubdtype(array.dtype, np.number) or array.dtype == bool):
        raise ValueError(
            f"targets must be numbers for the {likelihood} likelihood, not {array.dtype}; "
            "encode them as floats, or use a classification likelihood."
        )
    array = match_shape(array, shape, likelihood)
    require_finite("targets", array, MISSING_REMEDY)
    return jnp.asarray(array.astype(jnp.result_type(float)))


def shape_without_single(outputs: Any, likelihood: str) -> tuple[int, ...]:
    """Return the shape of the targets for given outputs."""
    require_array(outputs, likelihood)
    return tuple(jax.eval_shape(squeeze_single, outputs).shape)


def require_per_output(name: str, shape: tuple[int, ...], outputs: tuple[int, ...]) -> None:
    """Require one number, or one per output."""
    if shape not in ((), outputs):
        raise ValueError(
            f"{name} has shape {shape} but the network has outputs of shape {outputs} per example; "
            "pass one number or one per output."
        )


def whole_numbers(targets: Any, likelihood: str, kind: str) -> Any:
    """Validate integer targets of any dtype."""
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
    if array.size and not float(np.abs(array).max()) < 2**31:
        raise ValueError(
            f"targets hold {array.max()}, too large for the {likelihood} likelihood; for amounts use "
            "gaussian()."
        )
    return array


def match_shape(array: Any, shape: tuple[int, ...], likelihood: str) -> Any:
    """Validate the shape of targets, and drop a single trailing axis."""
    if array.shape == (*shape, 1):
        array = array[..., 0]
    if array.shape != shape:
        raise ValueError(
            f"targets have shape {array.shape} but the {likelihood} likelihood of this network needs "
            f"{shape}; reshape the targets, or change the network's last layer."
        )
    return array


def two_heads(outputs: PyTree) -> tuple[Array, Array]:
    """Split outputs into location and raw spread: one array with the locations first, or a pair."""
    if isinstance(outputs, tuple | list):
        if len(outputs) != 2:
            raise ValueError(
                f"network returns {len(outputs)} outputs; a network that predicts the noise must "
                "return a pair, the mean and the spread."
            )
        middle, raw = outputs
    else:
        middle, raw = jnp.split(outputs, 2, axis=-1)
    return squeeze_single(middle), squeeze_single(raw)


def check_two_heads(outputs: Any, targets: Any, likelihood: str) -> Array:
    """Validate targets for a network with two outputs per target."""
    if hasattr(outputs, "shape") and (len(outputs.shape) < 2 or outputs.shape[-1] % 2):
        raise ValueError(
            f"network has outputs of shape {outputs.shape}; the {likelihood} likelihood needs two "
            "for each target, first the means and then the spreads."
        )
    middle, raw = jax.eval_shape(two_heads, outputs)
    if middle.shape != raw.shape:
        raise ValueError(
            f"network has heads of shapes {middle.shape} and {raw.shape}; mean and spread "
            "must have the same shape."
        )
    return real_targets(targets, shape_without_single(middle, likelihood), likelihood)

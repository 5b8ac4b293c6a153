"""Convert the arguments of scores to a common shape."""

from __future__ import annotations

from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from partialbayes.prediction._predictive import Predictive
from partialbayes.types import Scalar

AnyArray: TypeAlias = Array | np.ndarray
Prediction: TypeAlias = Predictive | AnyArray
"""A `Predictive`, or the array that a score needs."""
Interval: TypeAlias = Predictive | tuple[AnyArray, AnyArray]
"""A `Predictive`, or the lower and upper ends of its intervals."""
Score: TypeAlias = Scalar | float
"""A JAX scalar, or a float if the predictions are NumPy arrays."""


def as_mean(prediction: Prediction) -> AnyArray:
    """Return the predictive mean."""
    return prediction.mean if isinstance(prediction, Predictive) else prediction


def as_probabilities(prediction: Prediction) -> AnyArray:
    """Return the class probabilities."""
    return prediction.probabilities if isinstance(prediction, Predictive) else prediction


def as_interval(prediction: Interval, coverage: float) -> tuple[AnyArray, AnyArray]:
    """Return the ends of the central interval."""
    return prediction.interval(coverage) if isinstance(prediction, Predictive) else prediction


def align(name: str, values: AnyArray, targets: AnyArray) -> tuple[Any, Any]:
    """Give predictions and targets the same shape; targets may have a trailing axis of one.

    Both are NumPy arrays in double precision if the predictions are NumPy arrays.
    """
    if isinstance(values, np.ndarray) and not isinstance(targets, jax.core.Tracer):
        values, targets = np.asarray(values, float), np.asarray(targets, float)
    else:
        values, targets = jnp.asarray(values), jnp.asarray(targets)
    if targets.shape == (*values.shape, 1):
        targets = targets[..., 0]
    if values.shape != targets.shape:
        raise ValueError(
            f"{name} has shape {values.shape} and targets {targets.shape}; they must be the same."
        )
    return values, targets


def as_sorted(name: str, values: Any) -> Float[Array, " example"]:
    """Sort uncertainties, one per input."""
    array = jnp.asarray(values)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(
            f"{name} has shape {array.shape}; pass one uncertainty per input, and at least one."
        )
    return jnp.sort(array)


def per_class(prediction: Prediction, labels: AnyArray) -> tuple[Array, Array]:
    """Return the probabilities of every class, and the labels."""
    probabilities, labels = jnp.asarray(as_probabilities(prediction)), jnp.asarray(labels)
    shape = probabilities.shape
    if labels.shape != shape[:1] or not (len(shape) == 1 or (len(shape) == 2 and shape[1] > 1)):
        raise ValueError(
            f"probabilities have shape {shape} and labels {labels.shape}; pass (n,) for the "
            "probability of class one, or (n, classes), and labels of shape (n,)."
        )
    if len(shape) == 1:
        probabilities = jnp.stack([1.0 - probabilities, probabilities], axis=1)
    return probabilities, labels

"""Scores of predictions against targets."""

from __future__ import annotations

from typing import TypeAlias

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from partialbayes.checks import require_count
from partialbayes.types import Scalar

__all__ = [
    "accuracy",
    "expected_calibration_error",
    "nlpd",
    "rmse",
]


AnyArray: TypeAlias = Array | np.ndarray


def nlpd(log_densities: Float[AnyArray, " example"]) -> Scalar:
    """Negative log predictive density, −(1/n) Σ_i log p(y_i | x_i).

    Args:
        log_densities: From `log_predictive_density`, so that it is that of the mixture.

    Example:
        >>> import jax.numpy as jnp, partialbayes as pb
        >>> float(pb.nlpd(jnp.array([-1.0, -3.0])))
        2.0
    """
    return -jnp.mean(jnp.asarray(log_densities))


def rmse(mean: Float[AnyArray, "example ..."], targets: Float[AnyArray, "example ..."]) -> Scalar:
    """Root mean squared error of the predictive mean.

    Example:
        >>> import jax.numpy as jnp, partialbayes as pb
        >>> float(pb.rmse(jnp.array([1.0, 2.0]), jnp.array([1.0, 4.0])))
        1.4142135381698608
    """
    mean, targets = jnp.asarray(mean), jnp.asarray(targets)
    if targets.shape == (*mean.shape, 1):
        targets = targets[..., 0]
    if mean.shape != targets.shape:
        raise ValueError(
            f"mean has shape {mean.shape} and targets {targets.shape}; they must be the same."
        )
    return jnp.sqrt(jnp.mean(jnp.square(mean - targets)))


def accuracy(
    probabilities: Float[AnyArray, " example"] | Float[AnyArray, "example classes"],
    labels: Int[AnyArray, " example"],
) -> Scalar:
    """Share of examples whose most probable class is the right one.

    Args:
        probabilities: Of class one, or of each class.
        labels: Whole numbers from 0.

    Example:
        >>> import jax.numpy as jnp, partialbayes as pb
        >>> float(pb.accuracy(jnp.array([0.9, 0.2]), jnp.array([1, 1])))
        0.5
    """
    per_class, labels = _per_class(probabilities, labels)
    return jnp.mean(jnp.argmax(per_class, axis=1) == labels)


def expected_calibration_error(
    probabilities: Float[AnyArray, " example"] | Float[AnyArray, "example classes"],
    labels: Int[AnyArray, " example"],
    bins: int = 15,
) -> Scalar:
    """ECE: mean gap between confidence and accuracy, over equal bins of confidence.

    Σ_b (n_b / n) |accuracy_b − confidence_b|.

    Args:
        probabilities: Of class one, or of each class.
        labels: Whole numbers from 0.
        bins: How many equal parts [0, 1] is cut into.

    Example:
        >>> import jax.numpy as jnp, partialbayes as pb
        >>> round(float(pb.expected_calibration_error(jnp.array([0.9, 0.9]), jnp.array([1, 0]))), 3)
        0.4
    """
    require_count("bins", bins, "15 is usual.")
    per_class, labels = _per_class(probabilities, labels)
    confidence = per_class.max(axis=1)
    correct = (jnp.argmax(per_class, axis=1) == labels).astype(confidence.dtype)
    # A confidence on an edge belongs to the bin below it, (a, b]. The edges are rounded as the
    # confidences are: 0.6 is on the edge 9/15 whether or not 15 × 0.6 is 9.
    edges = jnp.asarray(np.arange(1, bins) / bins, confidence.dtype)
    index = jnp.searchsorted(edges, confidence)
    gaps = jnp.zeros(bins, confidence.dtype).at[index].add(correct - confidence)
    return jnp.sum(jnp.abs(gaps)) / confidence.shape[0]


def _per_class(probabilities: AnyArray, labels: AnyArray) -> tuple[Array, Array]:
    probabilities, labels = jnp.asarray(probabilities), jnp.asarray(labels)
    shape = probabilities.shape
    if labels.shape != shape[:1] or not (len(shape) == 1 or (len(shape) == 2 and shape[1] > 1)):
        raise ValueError(
            f"probabilities have shape {shape} and labels {labels.shape}; give (n,) for the "
            "probability of class one, or (n, classes), and labels of shape (n,)."
        )
    if len(shape) == 1:
        probabilities = jnp.stack([1.0 - probabilities, probabilities], axis=1)
    return probabilities, labels

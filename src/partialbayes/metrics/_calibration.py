"""Calibration errors of class probabilities, and reliability diagrams.

Σ_b (n_b / n) |frequency_b − mean probability_b| over bins b of predicted probability
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from partialbayes._utils.checks import require_positive_int
from partialbayes.metrics._common import AnyArray, Prediction, per_class
from partialbayes.types import Scalar


class Reliability(NamedTuple):
    """The points of a reliability diagram; NaN in the means of an empty bin.

    Attributes:
        probability: Mean predicted probability of each bin.
        frequency: Observed frequency of each bin.
        share: Fraction of all predictions in each bin.
    """

    probability: Float[Array, " bin"]
    frequency: Float[Array, " bin"]
    share: Float[Array, " bin"]


def expected_calibration_error(
    predictive: Prediction, labels: Int[AnyArray, " example"], bins: int = 15
) -> Scalar:
    """Compute the ECE, the mean gap between confidence and accuracy over bins of confidence.

    The bins b have equal width: Σ_b (n_b / n) |accuracy_b − confidence_b|.

    Args:
        predictive: The result of `predict`, or an array with the probabilities of class one or of each
            class.
        labels: Integer class labels from 0.
        bins: Number of bins of equal width in [0, 1].

    Returns:
        The error; 0 is perfect.

    Example:
        >>> import jax.numpy as jnp, partialbayes as pb
        >>> probabilities, labels = jnp.array([0.9, 0.9]), jnp.array([1, 0])
        >>> round(float(pb.metrics.expected_calibration_error(probabilities, labels)), 3)
        0.4
    """
    _require_bins(bins)
    confidence, correct = _confidence(predictive, labels)
    return _error(confidence, correct, _equal_width(confidence, bins), bins)


def classwise_calibration_error(
    predictive: Prediction, labels: Int[AnyArray, " example"], bins: int = 15
) -> Scalar:
    """Average the calibration error over the probabilities of all classes, not only the largest.

    Args:
        predictive: The result of `predict`, or an array with the probabilities of class one or of each
            class.
        labels: Integer class labels from 0.
        bins: Number of bins of equal width in [0, 1].

    Returns:
        The error; 0 is perfect.

    Example:
        >>> import jax.numpy as jnp, partialbayes as pb
        >>> probabilities = jnp.array([[0.5, 0.5], [0.5, 0.5]])
        >>> float(pb.metrics.classwise_calibration_error(probabilities, jnp.array([1, 0])))
        0.0
    """
    _require_bins(bins)
    each, labels = per_class(predictive, labels)
    indicators = jax.nn.one_hot(labels, each.shape[1], dtype=each.dtype)

    def one(probability: Array, happened: Array) -> Array:
        return _error(probability, happened, _equal_width(probability, bins), bins)

    return jnp.mean(jax.vmap(one, in_axes=1)(each, indicators))


def adaptive_calibration_error(
    predictive: Prediction, labels: Int[AnyArray, " example"], bins: int = 15
) -> Scalar:
    """Compute the expected calibration error over bins with equal numbers of predictions.

    Args:
        predictive: The result of `predict`, or an array with the probabilities of class one or of each
            class.
        labels: Integer class labels from 0.
        bins: Number of bins, whose sizes differ by at most one.

    Returns:
        The error; 0 is perfect.

    Example:
        >>> import jax.numpy as jnp, partialbayes as pb
        >>> sure = jnp.array([0.9, 0.8, 0.1, 0.2])
        >>> round(float(pb.metrics.adaptive_calibration_error(sure, jnp.array([1, 1, 0, 0]), 2)), 3)
        0.15
    """
    _require_bins(bins)
    confidence, correct = _confidence(predictive, labels)
    rows = confidence.shape[0]
    order = jnp.argsort(confidence)
    index = jnp.zeros(rows, jnp.int32).at[order].set(jnp.arange(rows, dtype=jnp.int32) * bins // rows)
    return _error(confidence, correct, index, bins)


def reliability(
    predictive: Prediction, labels: Int[AnyArray, " example"], bins: int = 15
) -> Reliability:
    """Compute confidence and accuracy per bin of confidence: the points of a reliability diagram.

    Args:
        predictive: The result of `predict`, or an array with the probabilities of class one or of each
            class.
        labels: Integer class labels from 0.
        bins: Number of bins of equal width in [0, 1].

    Returns:
        The mean probability, the frequency and the share of each bin.

    Example:
        >>> import jax.numpy as jnp, partialbayes as pb
        >>> table = pb.metrics.reliability(jnp.array([0.9, 0.9]), jnp.array([1, 0]), bins=2)
        >>> float(table.frequency[1])
        0.5
    """
    _require_bins(bins)
    confidence, correct = _confidence(predictive, labels)
    index = _equal_width(confidence, bins)
    zeros = jnp.zeros(bins, confidence.dtype)
    count = zeros.at[index].add(1.0)
    return Reliability(
        zeros.at[index].add(confidence) / count,
        zeros.at[index].add(correct) / count,
        count / confidence.shape[0],
    )


def _require_bins(bins: int) -> None:
    require_positive_int("bins", bins, "15 is usual.")


def _confidence(predictive: Prediction, labels: AnyArray) -> tuple[Array, Array]:
    """Return the largest probability of each example, and whether its class is right."""
    each, labels = per_class(predictive, labels)
    confidence = each.max(axis=1)
    return confidence, (jnp.argmax(each, axis=1) == labels).astype(confidence.dtype)


def _equal_width(probability: Array, bins: int) -> Array:
    # A probability on an edge belongs to the bin below it, (a, b]; edges are rounded like probabilities.
    edges = jnp.asarray(np.arange(1, bins) / bins, probability.dtype)
    return jnp.searchsorted(edges, probability)


def _error(probability: Array, happened: Array, index: Array, bins: int) -> Array:
    gaps = jnp.zeros(bins, probability.dtype).at[index].add(happened - probability)
    return jnp.sum(jnp.abs(gaps)) / probability.shape[0]

"""Whether probabilities can be taken at their word: calibration errors, and what they sum up.

Over bins b of predicted probability, Σ_b (n_b / n) |frequency_b − mean probability_b|.
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
    """What happened to the predictions of each bin; NaN in the means of an empty one.

    Attributes:
        probability: Mean predicted probability.
        frequency: How often it came true.
        share: Of all predictions, how many are in the bin.
    """

    probability: Float[Array, " bin"]
    frequency: Float[Array, " bin"]
    share: Float[Array, " bin"]


def expected_calibration_error(
    predictive: Prediction,
    labels: Int[AnyArray, " example"],
    bins: int = 15,
) -> Scalar:
    """ECE: mean gap between confidence and accuracy, over equal bins of confidence.

    Σ_b (n_b / n) |accuracy_b − confidence_b|.

    Args:
        predictive: From `predict`; or an array of the probabilities of class one, or of each class.
        labels: Whole numbers from 0.
        bins: How many equal parts [0, 1] is cut into.

    Raises:
        ValueError: The shapes do not belong together.

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
    predictive: Prediction,
    labels: Int[AnyArray, " example"],
    bins: int = 15,
) -> Scalar:
    """The calibration error of every class's probability, not only of the largest, averaged.

    Args:
        predictive: From `predict`; or an array of the probabilities of class one, or of each class.
        labels: Whole numbers from 0.
        bins: How many equal parts [0, 1] is cut into.

    Raises:
        ValueError: The shapes do not belong together.

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
    predictive: Prediction,
    labels: Int[AnyArray, " example"],
    bins: int = 15,
) -> Scalar:
    """The expected calibration error over bins that hold equally many predictions each.

    Args:
        predictive: From `predict`; or an array of the probabilities of class one, or of each class.
        labels: Whole numbers from 0.
        bins: How many parts the sorted confidences are cut into; their sizes differ by one at most.

    Raises:
        ValueError: The shapes do not belong together.

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
    predictive: Prediction,
    labels: Int[AnyArray, " example"],
    bins: int = 15,
) -> Reliability:
    """Confidence and accuracy by bin of confidence: the points of a reliability diagram.

    Args:
        predictive: From `predict`; or an array of the probabilities of class one, or of each class.
        labels: Whole numbers from 0.
        bins: How many equal parts [0, 1] is cut into.

    Raises:
        ValueError: The shapes do not belong together.

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
    """The largest probability of each example, and whether its class was the right one."""
    each, labels = per_class(predictive, labels)
    confidence = each.max(axis=1)
    return confidence, (jnp.argmax(each, axis=1) == labels).astype(confidence.dtype)


def _equal_width(probability: Array, bins: int) -> Array:
    # A probability on an edge belongs to the bin below it, (a, b]. The edges are rounded as the
    # probabilities are: 0.6 is on the edge 9/15 whether or not 15 × 0.6 is 9.
    edges = jnp.asarray(np.arange(1, bins) / bins, probability.dtype)
    return jnp.searchsorted(edges, probability)


def _error(probability: Array, happened: Array, index: Array, bins: int) -> Array:
    gaps = jnp.zeros(bins, probability.dtype).at[index].add(happened - probability)
    return jnp.sum(jnp.abs(gaps)) / probability.shape[0]

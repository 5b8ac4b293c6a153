"""Scores of predicted classes, and of the detection of unusual inputs."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Float, Int

from partialbayes.metrics._common import AnyArray, Prediction, as_sorted, per_class
from partialbayes.types import Scalar


def accuracy(predictive: Prediction, labels: Int[AnyArray, " example"]) -> Scalar:
    """Compute the fraction of examples whose most probable class is right.

    Args:
        predictive: The result of `predict`, or an array with the probabilities of class one or of each
            class.
        labels: Integer class labels from 0.

    Returns:
        The fraction; higher is better.

    Example:
        >>> import jax.numpy as jnp, partialbayes as pb
        >>> float(pb.metrics.accuracy(jnp.array([0.9, 0.2]), jnp.array([1, 1])))
        0.5
    """
    each, labels = per_class(predictive, labels)
    return jnp.mean(jnp.argmax(each, axis=1) == labels)


def brier(predictive: Prediction, labels: Int[AnyArray, " example"]) -> Scalar:
    """Compute the Brier score, the mean of Σ_c (p_c − 1[y = c])², between 0 and 2.

    Args:
        predictive: The result of `predict`, or an array with the probabilities of class one or of each
            class.
        labels: Integer class labels from 0.

    Returns:
        The score; lower is better.

    Example:
        >>> import jax.numpy as jnp, partialbayes as pb
        >>> float(pb.metrics.brier(jnp.array([1.0, 0.5]), jnp.array([1, 1])))
        0.25
    """
    each, labels = per_class(predictive, labels)
    indicators = jax.nn.one_hot(labels, each.shape[1], dtype=each.dtype)
    return jnp.mean(jnp.sum(jnp.square(each - indicators), axis=1))


def auroc(inside: Float[AnyArray, " example"], outside: Float[AnyArray, " other"]) -> Scalar:
    """Compute the area under the ROC curve of detecting unusual inputs by their uncertainty.

    It is the probability that an unusual input has a larger uncertainty than a usual one, with ties
    counted half: 1 is perfect, 0.5 is chance.

    Args:
        inside: Uncertainty of usual inputs, such as entropy, mutual information or epistemic variance.
        outside: Uncertainty of unusual inputs.

    Returns:
        The area.

    Example:
        >>> import jax.numpy as jnp, partialbayes as pb
        >>> float(pb.metrics.auroc(jnp.array([0.1, 0.2]), jnp.array([0.15, 0.9])))
        0.75
    """
    usual, strange = as_sorted("inside", inside), as_sorted("outside", outside)
    below = jnp.searchsorted(usual, strange, side="left")
    not_above = jnp.searchsorted(usual, strange, side="right")
    return jnp.mean(0.5 * (below + not_above)) / usual.size

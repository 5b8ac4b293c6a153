"""Scores of predicted classes, and of telling strange inputs from usual ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Float, Int

from partialbayes.metrics._common import AnyArray, Prediction, per_class
from partialbayes.types import Scalar


def accuracy(
    predictive: Prediction,
    labels: Int[AnyArray, " example"],
) -> Scalar:
    """Share of examples whose most probable class is the right one.

    Args:
        predictive: From `predict`; or an array of the probabilities of class one, or of each class.
        labels: Whole numbers from 0.

    Raises:
        ValueError: The shapes do not belong together.

    Example:
        >>> import jax.numpy as jnp, partialbayes as pb
        >>> float(pb.metrics.accuracy(jnp.array([0.9, 0.2]), jnp.array([1, 1])))
        0.5
    """
    each, labels = per_class(predictive, labels)
    return jnp.mean(jnp.argmax(each, axis=1) == labels)


def brier(
    predictive: Prediction,
    labels: Int[AnyArray, " example"],
) -> Scalar:
    """Brier score, the mean of Σ_c (p_c − 1[y = c])²: between 0 and 2, over all classes.

    Args:
        predictive: From `predict`; or an array of the probabilities of class one, or of each class.
        labels: Whole numbers from 0.

    Raises:
        ValueError: The shapes do not belong together.

    Example:
        >>> import jax.numpy as jnp, partialbayes as pb
        >>> float(pb.metrics.brier(jnp.array([1.0, 0.5]), jnp.array([1, 1])))
        0.25
    """
    each, labels = per_class(predictive, labels)
    indicators = jax.nn.one_hot(labels, each.shape[1], dtype=each.dtype)
    return jnp.mean(jnp.sum(jnp.square(each - indicators), axis=1))


def auroc(inside: Float[AnyArray, " example"], outside: Float[AnyArray, " other"]) -> Scalar:
    """Area under the ROC curve of telling strange inputs from usual ones by their uncertainty.

    The chance that a strange input looks stranger than a usual one, ties counting half: 1 is
    perfect, 0.5 is guessing.

    Args:
        inside: Uncertainty (entropy, mutual information, epistemic variance) of usual inputs.
        outside: The same of inputs from elsewhere.

    Raises:
        ValueError: Either has not one number per input.

    Example:
        >>> import jax.numpy as jnp, partialbayes as pb
        >>> float(pb.metrics.auroc(jnp.array([0.1, 0.2]), jnp.array([0.15, 0.9])))
        0.75
    """
    usual, strange = jnp.sort(jnp.asarray(inside)), jnp.asarray(outside)
    if usual.ndim != 1 or strange.ndim != 1 or usual.size == 0 or strange.size == 0:
        raise ValueError(
            f"inside has shape {usual.shape} and outside {strange.shape}; give one uncertainty per "
            "input, and at least one input of each."
        )
    below = jnp.searchsorted(usual, strange, side="left")
    not_above = jnp.searchsorted(usual, strange, side="right")
    return jnp.mean(0.5 * (below + not_above)) / usual.size

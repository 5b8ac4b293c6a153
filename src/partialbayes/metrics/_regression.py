"""Scores of predicted numbers: errors, intervals, densities."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float, Num

from partialbayes.metrics._common import (
    AnyArray,
    Interval,
    Prediction,
    Score,
    align,
    as_interval,
    as_mean,
)
from partialbayes.prediction._predictive import Predictive
from partialbayes.types import Scalar


def nlpd(predictive: Predictive, targets: Any) -> Scalar:
    """Compute the negative log predictive density, −(1/n) Σ_i log p(y_i | x_i).

    Args:
        predictive: The result of `predict`.
        targets: Observed targets.

    Returns:
        The mean over examples, in nats; lower is better.

    Example:
        >>> import partialbayes as pb  # predictive and x as in the example of predict
        >>> bool(pb.metrics.nlpd(predictive, x) > 0.9)
        True
    """
    return -jnp.mean(predictive.log_density(targets))


def rmse(predictive: Prediction, targets: Num[AnyArray, "example ..."]) -> Score:
    """Compute the root mean squared error of the predictive mean.

    Args:
        predictive: The result of `predict`, or an array of means.
        targets: Observed targets.

    Returns:
        The error, in units of the targets.

    Example:
        >>> import jax.numpy as jnp, partialbayes as pb
        >>> float(pb.metrics.rmse(jnp.array([1.0, 2.0]), jnp.array([1.0, 4.0])))
        1.4142135381698608
    """
    mean, targets = align("mean", as_mean(predictive), targets)
    squares = (mean - targets) ** 2
    return squares.mean() ** 0.5


def r_squared(predictive: Prediction, targets: Num[AnyArray, "example ..."]) -> Score:
    """Compute R² = 1 − Σ (y − mean)² / Σ (y − ȳ)², the explained fraction of the variance.

    Args:
        predictive: The result of `predict`, or an array of means.
        targets: Observed targets.

    Returns:
        The fraction: 1 is perfect, and 0 is no better than the mean ȳ of these targets.

    Example:
        >>> import numpy as np, partialbayes as pb
        >>> float(pb.metrics.r_squared(np.array([1.0, 2.0]), np.array([1.0, 3.0])))
        0.5
    """
    mean, targets = align("mean", as_mean(predictive), targets)
    left = jnp.sum(jnp.square(mean - targets))
    return 1.0 - left / jnp.sum(jnp.square(targets - jnp.mean(targets)))


def mae(predictive: Prediction, targets: Num[AnyArray, "example ..."]) -> Score:
    """Compute the mean absolute error of the predictive median.

    Args:
        predictive: The result of `predict`, or an array of medians.
        targets: Observed targets.

    Returns:
        The error, in units of the targets.

    Example:
        >>> import jax.numpy as jnp, partialbayes as pb
        >>> float(pb.metrics.mae(jnp.array([1.0, 2.0]), jnp.array([1.0, 4.0])))
        1.0
    """
    predicted = predictive.quantile(0.5) if isinstance(predictive, Predictive) else predictive
    predicted, targets = align("predicted", predicted, targets)
    return abs(predicted - targets).mean()


def interval_coverage(
    predictive: Interval, targets: Num[AnyArray, "example ..."], coverage: float = 0.9
) -> Score:
    """Compute the fraction of targets inside their central intervals, ends included.

    Args:
        predictive: The result of `predict`, or a pair of arrays, the lower and upper ends.
        targets: Observed targets.
        coverage: Probability inside the intervals, for a `Predictive`.

    Returns:
        The fraction; near ``coverage`` if the predictive is calibrated.

    Example:
        >>> import jax.numpy as jnp, partialbayes as pb
        >>> interval = (jnp.zeros(4), jnp.ones(4))
        >>> float(pb.metrics.interval_coverage(interval, jnp.array([0.5, 1.0, 2.0, -1.0])))
        0.5
    """
    ends = as_interval(predictive, coverage)
    low, targets = align("low", ends[0], targets)
    high, _ = align("high", ends[1], targets)
    return ((low <= targets) & (targets <= high)).mean(dtype=low.dtype)


def interval_width(predictive: Interval, coverage: float = 0.9) -> Score:
    """Compute the mean width of central intervals; at equal coverage, narrower is better.

    Args:
        predictive: The result of `predict`, or a pair of arrays, the lower and upper ends.
        coverage: Probability inside the intervals, for a `Predictive`.

    Returns:
        The mean width, in units of the targets.

    Example:
        >>> import jax.numpy as jnp, partialbayes as pb
        >>> float(pb.metrics.interval_width((jnp.zeros(2), jnp.array([1.0, 3.0]))))
        2.0
    """
    low, high = align("low", *as_interval(predictive, coverage))
    return (high - low).mean()


def pit(predictive: Predictive, targets: Num[AnyArray, "example ..."]) -> Float[Array, "example ..."]:
    """Compute the probability integral transform F(y_i | x_i), uniform if the predictive is calibrated.

    For counts it is (F(y − 1) + F(y)) / 2, with mean one half if the predictive is calibrated.

    Args:
        predictive: The result of `predict`.
        targets: Observed targets.

    Returns:
        The transform of each target.

    Example:
        >>> import partialbayes as pb  # predictive and x as in the example of predict
        >>> pb.metrics.pit(predictive, x).shape
        (8,)
    """
    values = predictive.cdf(targets)
    if predictive.model.likelihood.kind == "count":
        return 0.5 * (values + predictive.cdf(jnp.asarray(targets) - 1))
    return values

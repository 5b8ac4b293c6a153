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
    interval_of,
    mean_of,
)
from partialbayes.prediction._predictive import Predictive
from partialbayes.types import Scalar


def nlpd(predictive: Predictive, targets: Any) -> Scalar:
    """Negative log predictive density, −(1/n) Σ_i log p(y_i | x_i), of the mixture.

    Args:
        predictive: From `predict`.
        targets: What was observed.

    Returns:
        The mean over examples, in nats; lower is better.

    Example:
        >>> import jax, jax.numpy as jnp, partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 5, 1]), "layers/0/*", pb.gaussian())
        >>> x = jnp.linspace(-1.0, 1.0, 8)[:, None]
        >>> algorithm = pb.map_estimate(model)
        >>> posterior = algorithm.posterior(algorithm.init(jax.random.key(0)))  # before training
        >>> bool(pb.metrics.nlpd(pb.predict(model, posterior, x), x) > 0.9)
        True
    """
    return -jnp.mean(predictive.log_density(targets))


def rmse(predictive: Prediction, targets: Num[AnyArray, "example ..."]) -> Score:
    """Root mean squared error of the predictive mean.

    Args:
        predictive: From `predict`; or an array of means.
        targets: What was observed.

    Returns:
        The error, in units of the targets.

    Raises:
        ValueError: The shapes differ.

    Example:
        >>> import jax.numpy as jnp, partialbayes as pb
        >>> float(pb.metrics.rmse(jnp.array([1.0, 2.0]), jnp.array([1.0, 4.0])))
        1.4142135381698608
    """
    mean, targets = align("mean", mean_of(predictive), targets)
    squares = (mean - targets) ** 2
    return squares.mean() ** 0.5


def r_squared(predictive: Prediction, targets: Num[AnyArray, "example ..."]) -> Score:
    """R² = 1 − Σ (y − mean)² / Σ (y − ȳ)², the share of the targets' variance that is explained.

    One is perfect; zero is no better than the mean ȳ of these very targets.

    Args:
        predictive: From `predict`, or predictive means.
        targets: What was observed.

    Example:
        >>> import numpy as np, partialbayes as pb
        >>> float(pb.metrics.r_squared(np.array([1.0, 2.0]), np.array([1.0, 3.0])))
        0.5
    """
    mean = predictive.mean if isinstance(predictive, Predictive) else predictive
    mean, targets = align("mean", mean, targets)
    left = jnp.sum(jnp.square(mean - targets))
    return 1.0 - left / jnp.sum(jnp.square(targets - jnp.mean(targets)))


def mae(predictive: Prediction, targets: Num[AnyArray, "example ..."]) -> Score:
    """Mean absolute error of the predictive median, which makes it smallest.

    Args:
        predictive: From `predict`; or an array of medians.
        targets: What was observed.

    Returns:
        The error, in units of the targets.

    Raises:
        ValueError: The shapes differ.

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
    """Share of targets inside their central intervals, ends included.

    Args:
        predictive: From `predict`; or a pair of arrays, the lower and upper ends.
        targets: What was observed.
        coverage: The probability inside the intervals of a `Predictive`.

    Returns:
        The share; near ``coverage`` where the predictive is calibrated.

    Raises:
        ValueError: The shapes differ.

    Example:
        >>> import jax.numpy as jnp, partialbayes as pb
        >>> interval = (jnp.zeros(4), jnp.ones(4))
        >>> float(pb.metrics.interval_coverage(interval, jnp.array([0.5, 1.0, 2.0, -1.0])))
        0.5
    """
    ends = interval_of(predictive, coverage)
    low, targets = align("low", ends[0], targets)
    high, _ = align("high", ends[1], targets)
    return ((low <= targets) & (targets <= high)).mean(dtype=low.dtype)


def interval_width(predictive: Interval, coverage: float = 0.9) -> Score:
    """Mean width of central intervals: of two that cover as much, the narrower is better.

    Args:
        predictive: From `predict`; or a pair of arrays, the lower and upper ends.
        coverage: The probability inside the intervals of a `Predictive`.

    Returns:
        The width, in units of the targets.

    Example:
        >>> import jax.numpy as jnp, partialbayes as pb
        >>> float(pb.metrics.interval_width((jnp.zeros(2), jnp.array([1.0, 3.0]))))
        2.0
    """
    low, high = align("low", *interval_of(predictive, coverage))
    return (high - low).mean()


def pit(predictive: Predictive, targets: Num[AnyArray, "example ..."]) -> Float[Array, "example ..."]:
    """Probability integral transform F(y_i | x_i): uniform where the predictive is calibrated.

    Of counts it is (F(y − 1) + F(y)) / 2, whose mean is a half where the predictive is calibrated.

    Args:
        predictive: From `predict`.
        targets: What was observed.

    Example:
        >>> import jax, jax.numpy as jnp, partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 5, 1]), "layers/0/*", pb.gaussian())
        >>> x = jnp.linspace(-1.0, 1.0, 8)[:, None]
        >>> algorithm = pb.map_estimate(model)
        >>> posterior = algorithm.posterior(algorithm.init(jax.random.key(0)))  # before training
        >>> pb.metrics.pit(pb.predict(model, posterior, x), x).shape
        (8,)
    """
    values = predictive.cdf(targets)
    if predictive.model.likelihood.kind == "count":
        return 0.5 * (values + predictive.cdf(jnp.asarray(targets) - 1))
    return values

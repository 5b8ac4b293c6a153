"""Scores of predicted numbers: errors, intervals, densities."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float, Num

from partialbayes.metrics._common import AnyArray, align
from partialbayes.prediction._predictive import Predictive
from partialbayes.types import Scalar


def nlpd(log_densities: Float[AnyArray, " example"]) -> Scalar:
    """Negative log predictive density, −(1/n) Σ_i log p(y_i | x_i).

    Args:
        log_densities: From ``predict(...).log_density(targets)``, so that it is the mixture's.

    Example:
        >>> import jax.numpy as jnp, partialbayes as pb
        >>> float(pb.metrics.nlpd(jnp.array([-1.0, -3.0])))
        2.0
    """
    return -jnp.mean(jnp.asarray(log_densities))


def rmse(mean: Float[AnyArray, "example ..."], targets: Float[AnyArray, "example ..."]) -> Scalar:
    """Root mean squared error of the predictive mean.

    Raises:
        ValueError: The shapes differ.

    Example:
        >>> import jax.numpy as jnp, partialbayes as pb
        >>> float(pb.metrics.rmse(jnp.array([1.0, 2.0]), jnp.array([1.0, 4.0])))
        1.4142135381698608
    """
    mean, targets = align("mean", mean, targets)
    return jnp.sqrt(jnp.mean(jnp.square(mean - targets)))


def mae(predicted: Float[AnyArray, "example ..."], targets: Float[AnyArray, "example ..."]) -> Scalar:
    """Mean absolute error; the median of the predictive, not its mean, makes it smallest.

    Raises:
        ValueError: The shapes differ.

    Example:
        >>> import jax.numpy as jnp, partialbayes as pb
        >>> float(pb.metrics.mae(jnp.array([1.0, 2.0]), jnp.array([1.0, 4.0])))
        1.0
    """
    predicted, targets = align("predicted", predicted, targets)
    return jnp.mean(jnp.abs(predicted - targets))


def interval_coverage(
    low: Float[AnyArray, "example ..."],
    high: Float[AnyArray, "example ..."],
    targets: Float[AnyArray, "example ..."],
) -> Scalar:
    """Share of targets inside their intervals, ends included.

    Args:
        low: From ``predict(...).interval(coverage)``.
        high: From the same.
        targets: What was observed.

    Raises:
        ValueError: The shapes differ.

    Example:
        >>> import jax.numpy as jnp, partialbayes as pb
        >>> low, high = jnp.zeros(4), jnp.ones(4)
        >>> float(pb.metrics.interval_coverage(low, high, jnp.array([0.5, 1.0, 2.0, -1.0])))
        0.5
    """
    low, targets = align("low", low, targets)
    high, _ = align("high", high, targets)
    return jnp.mean((low <= targets) & (targets <= high), dtype=low.dtype)


def interval_width(low: Float[AnyArray, "example ..."], high: Float[AnyArray, "example ..."]) -> Scalar:
    """Mean width of intervals: of two that cover as much, the narrower is better.

    Example:
        >>> import jax.numpy as jnp, partialbayes as pb
        >>> float(pb.metrics.interval_width(jnp.zeros(2), jnp.array([1.0, 3.0])))
        2.0
    """
    low, high = align("low", low, high)
    return jnp.mean(high - low)


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

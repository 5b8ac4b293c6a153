"""Compute all scores that apply, and averages over particles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from partialbayes.metrics._calibration import (
    adaptive_calibration_error,
    classwise_calibration_error,
    expected_calibration_error,
)
from partialbayes.metrics._classification import accuracy, brier
from partialbayes.metrics._common import Score
from partialbayes.metrics._crps import crps
from partialbayes.metrics._regression import (
    interval_coverage,
    interval_width,
    mae,
    nlpd,
    r_squared,
    rmse,
)
from partialbayes.prediction._predictive import Predictive
from partialbayes.types import Scalar


def over_particles(metric: Callable[[Any, Any], Score], predictive: Predictive, targets: Any) -> Score:
    """Average a score over particles, Σ_j w_j metric(prediction of particle j, targets).

    The paper's tables use this average. The score of the mixture is usually better, because an average
    of predictions beats the average predictor.

    Args:
        metric: Score of means (or class probabilities) and targets: `rmse`, `mae`, `accuracy`, `brier`,
            `expected_calibration_error`, or a JAX function of your own. It is compiled once per
            function, unless units are restored, which NumPy does.
        predictive: The result of `predict`.
        targets: Observed targets.

    Returns:
        The average score.

    Example:
        >>> import partialbayes as pb  # predictive and x as in the example of predict
        >>> average = pb.metrics.over_particles(pb.metrics.rmse, predictive, x)
        >>> bool(average >= pb.metrics.rmse(predictive, x))
        True
    """
    means, _, log_weights = predictive.components()
    if isinstance(means, np.ndarray):
        each = [float(metric(mean, np.asarray(targets))) for mean in means]
        return float(np.exp(np.asarray(log_weights, float)) @ each)
    return _average(metric, means, log_weights, jnp.asarray(targets))


@partial(jax.jit, static_argnames=("metric",))
def _average(
    metric: Callable[[Any, Any], Score],
    means: Float[Array, "particle ..."],
    log_weights: Float[Array, " particle"],
    targets: Array,
) -> Scalar:
    scores = jax.lax.map(lambda mean: jnp.asarray(metric(mean, targets)), means)
    return jnp.exp(log_weights) @ scores


def evaluate(predictive: Predictive, targets: Any, coverage: float = 0.9) -> dict[str, float]:
    """Compute every score that applies to the kind of targets, by name.

    Scores named ``..._over_particles`` are averages over particles, as in the paper; the rest are scores
    of the mixture. They are in the units of the targets.

    Args:
        predictive: The result of `predict`.
        targets: Observed targets. Rows with missing entries count only for the NLPD.
        coverage: Probability inside the central interval whose coverage and width are reported.

    Returns:
        The scores by name, such as ``"nlpd"`` and ``"rmse"``.

    Example:
        >>> import partialbayes as pb  # predictive and x as in the example of predict
        >>> scores = pb.metrics.evaluate(predictive, x)
        >>> sorted(scores)[:3]
        ['coverage', 'crps', 'mae']
    """
    scores: dict[str, Any] = {"nlpd": nlpd(predictive, targets)}
    observed = np.asarray(targets)
    if not predictive.model.likelihood.is_classification:
        observed = observed.astype(float).reshape(predictive.mean.shape)
        known = ~np.isnan(observed).reshape(len(observed), -1).any(axis=1)
        if not known.all():
            kept = jax.tree.map(lambda leaf: leaf[known], predictive.inputs)
            predictive, observed = replace(predictive, inputs=kept), observed[known]
        interval = predictive.interval(coverage)
        scores |= {
            "rmse": rmse(predictive, observed),
            "mae": mae(predictive, observed),
            "r2": r_squared(predictive, observed),
            "crps": crps(predictive, observed),
            "coverage": interval_coverage(interval, observed),
            "width": interval_width(interval),
            "rmse_over_particles": over_particles(rmse, predictive, observed),
        }
    else:
        probabilities = predictive.probabilities
        if probabilities.ndim != 2:
            raise ValueError(
                "targets have several labels per example; evaluate each label individually."
            )
        labels = observed.astype(int).reshape(len(probabilities))
        scores |= {
            "accuracy": accuracy(predictive, labels),
            "brier": brier(predictive, labels),
            "ece": expected_calibration_error(predictive, labels),
            "classwise_ece": classwise_calibration_error(predictive, labels),
            "adaptive_ece": adaptive_calibration_error(predictive, labels),
            "accuracy_over_particles": over_particles(accuracy, predictive, labels),
            "ece_over_particles": over_particles(expected_calibration_error, predictive, labels),
        }
    return {name: float(value) for name, value in scores.items()}

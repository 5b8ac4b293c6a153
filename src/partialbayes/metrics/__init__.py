"""Scores of predictions against targets.

Each takes the `Predictive` and what was observed; those that need but its mean, its class probabilities
or its intervals take arrays of them too. `evaluate` gives all that apply; `over_particles` takes a score
of each particle by itself, as the paper does, and averages. They may import `prediction` and what is
below it.
"""

from partialbayes.metrics._calibration import (
    Reliability,
    adaptive_calibration_error,
    classwise_calibration_error,
    expected_calibration_error,
    reliability,
)
from partialbayes.metrics._classification import accuracy, auroc, brier
from partialbayes.metrics._crps import crps, normal_mixture_crps, sample_crps
from partialbayes.metrics._evaluate import evaluate, over_particles
from partialbayes.metrics._regression import interval_coverage, interval_width, mae, nlpd, pit, rmse

__all__ = [
    "Reliability",
    "accuracy",
    "adaptive_calibration_error",
    "auroc",
    "brier",
    "classwise_calibration_error",
    "crps",
    "evaluate",
    "expected_calibration_error",
    "interval_coverage",
    "interval_width",
    "mae",
    "nlpd",
    "normal_mixture_crps",
    "over_particles",
    "pit",
    "reliability",
    "rmse",
    "sample_crps",
]

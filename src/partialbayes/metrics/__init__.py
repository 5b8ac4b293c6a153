"""Score predictions against targets.

Each score takes a `Predictive` and the observed targets; scores of means, class probabilities or
intervals also take arrays. `evaluate` computes all scores that apply; `over_particles` averages the
scores of single particles, as the paper does. The room may import `prediction` and what is below it.
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
from partialbayes.metrics._outside import (
    RiskCoverage,
    Selective,
    aupr,
    aurc,
    combined,
    energy,
    feature_density,
    fpr95,
    risk_coverage,
    selective,
)
from partialbayes.metrics._regression import (
    interval_coverage,
    interval_width,
    mae,
    nlpd,
    pit,
    r_squared,
    rmse,
)

__all__ = [
    "Reliability",
    "RiskCoverage",
    "Selective",
    "accuracy",
    "adaptive_calibration_error",
    "aupr",
    "aurc",
    "auroc",
    "brier",
    "classwise_calibration_error",
    "combined",
    "crps",
    "energy",
    "evaluate",
    "expected_calibration_error",
    "feature_density",
    "fpr95",
    "interval_coverage",
    "interval_width",
    "mae",
    "nlpd",
    "normal_mixture_crps",
    "over_particles",
    "pit",
    "r_squared",
    "reliability",
    "risk_coverage",
    "rmse",
    "sample_crps",
    "selective",
]

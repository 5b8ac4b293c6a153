"""Predict: the mixture over particles, its moments, quantiles, densities and samples.

The room may import everything up to `algorithms`.
"""

from partialbayes.prediction._calibrate import calibrate
from partialbayes.prediction._conformal import conformal_interval, conformal_sets
from partialbayes.prediction._predict import log_predictive_density, predict
from partialbayes.prediction._predictive import Predictive
from partialbayes.prediction._target_scale import TargetScale

__all__ = [
    "Predictive",
    "TargetScale",
    "calibrate",
    "conformal_interval",
    "conformal_sets",
    "log_predictive_density",
    "predict",
]

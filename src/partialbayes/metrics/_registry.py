"""Titles and descriptions of the scores of `evaluate`."""

from typing import NamedTuple


class Score(NamedTuple):
    """Title and description of a score.

    Attributes:
        title: The name of the score in tables and reports.
        meaning: A description in one line.
    """

    title: str
    meaning: str


_OVER_PARTICLES = "average over single particles, as in the paper"
SCORES = {
    "nlpd": Score(
        "NLPD",
        "negative log predictive density, in nats per row: how surprising the rows are; lower is better",
    ),
    "rmse": Score(
        "RMSE", "root mean squared error of the mean, in units of the target; lower is better"
    ),
    "mae": Score("MAE", "mean absolute error of the median, in units of the target; lower is better"),
    "r2": Score(
        "R²", "share of the target's variance that the mean explains; 1 is perfect, 0 is useless"
    ),
    "crps": Score(
        "CRPS",
        "error of the whole distribution (continuous ranked probability score), in units of the target; "
        "lower is better",
    ),
    "coverage": Score(
        "coverage of 90 % intervals", "share of targets inside their 90 % intervals; should be near 0.9"
    ),
    "width": Score(
        "width of 90 % intervals",
        "mean width of the 90 % intervals, in units of the target; narrow is good if coverage is right",
    ),
    "accuracy": Score("accuracy", "share of rows whose most probable class is right; higher is better"),
    "brier": Score("Brier score", "squared error of the class probabilities, 0 to 2; lower is better"),
    "ece": Score(
        "ECE",
        "expected calibration error: how far probabilities are from the share that is right, 15 bins; 0 "
        "is perfect",
    ),
    "classwise_ece": Score(
        "class-wise ECE", "expected calibration error of the probability of every class, averaged"
    ),
    "adaptive_ece": Score(
        "adaptive ECE", "expected calibration error over bins with equal numbers of rows"
    ),
    "rmse_over_particles": Score("RMSE over particles", _OVER_PARTICLES),
    "accuracy_over_particles": Score("accuracy over particles", _OVER_PARTICLES),
    "ece_over_particles": Score("ECE over particles", _OVER_PARTICLES),
}

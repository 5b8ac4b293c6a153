"""The scores that `evaluate` gives: what each is called, and what it means."""

from typing import NamedTuple


class Score(NamedTuple):
    """One score.

    Attributes:
        title: What a table or a page calls it.
        meaning: What it is, in a line.
    """

    title: str
    meaning: str


_OF_PARTICLES = "of each particle by itself, averaged, as in the paper"
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
    "classwise_ece": Score("class-wise ECE", "the same for the probability of every class, averaged"),
    "adaptive_ece": Score("adaptive ECE", "the same over bins of equally many rows"),
    "rmse_over_particles": Score("RMSE over particles", _OF_PARTICLES),
    "accuracy_over_particles": Score("accuracy over particles", _OF_PARTICLES),
    "ece_over_particles": Score("ECE over particles", _OF_PARTICLES),
}

"""The metrics of the tables: their names, labels, meanings, and which value is best."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from partialbayes.metrics._registry import SCORES


class Metric(NamedTuple):
    """A metric of the tables.

    Attributes:
        label: The heading of its column in ``table.md``.
        evaluated: Its name in `partialbayes.metrics.evaluate`; empty if it has none.
        explanation: What it means.
        best: "low" or "high"; or the value that is best; None where none is better than another.
    """

    label: str
    evaluated: str = ""
    explanation: str = ""
    best: str | float | None = "low"

    @property
    def meaning(self) -> str:
        """What it means, in the words of the library where it has some."""
        return self.explanation or (SCORES[self.evaluated].meaning if self.evaluated else "")


METRICS = {
    "nlpd": Metric("NLPD", "nlpd"),
    "rmse_particles": Metric("RMSE of particles", "rmse_over_particles"),
    "rmse": Metric("RMSE", "rmse"),
    "mae": Metric("MAE", "mae"),
    "r2": Metric("R²", "r2", best="high"),
    "crps": Metric("CRPS", "crps"),
    "coverage90": Metric("coverage of 90 %", "coverage", best=0.9),
    "width90": Metric("width of 90 %", "width", best=None),
    "ece_particles": Metric("ECE of particles", "ece_over_particles"),
    "ece": Metric("ECE", "ece"),
    "accuracy_particles": Metric("accuracy of particles", "accuracy_over_particles", best="high"),
    "accuracy": Metric("accuracy", "accuracy", best="high"),
    "brier": Metric("Brier score", "brier"),
    "auroc_mutual_information": Metric(
        "AUROC of mutual information",
        explanation="how well mutual information tells Fashion-MNIST from digits",
        best="high",
    ),
    "psi": Metric("ψ", explanation="the learned ψ of the crescent", best=None),
    "best_psi": Metric(
        "best ψ",
        explanation="the maximizer of the evidence on the same data, by quadrature",
        best=None,
    ),
    "psi_error": Metric("error of ψ", explanation="the distance of the two", best=0.0),
    "auroc_entropy": Metric(
        "AUROC of entropy",
        explanation="how well the entropy of the predicted probabilities tells them apart",
        best="high",
    ),
    "classwise_ece": Metric("class-wise ECE", "classwise_ece"),
    "adaptive_ece": Metric("adaptive ECE", "adaptive_ece"),
    "ks_phi0": Metric(
        "KS distance of φ₀",
        explanation="Kolmogorov–Smirnov distance of φ₀'s samples to its posterior at the best ψ",
    ),
    "ks_phi1": Metric("KS distance of φ₁", explanation="the same of φ₁"),
    "validation_nlpd": Metric(
        "validation NLPD",
        explanation="NLPD on the validation rows, which the posterior was chosen by; on the scale of "
        "training, where targets are standardized",
    ),
    "seconds": Metric("seconds", explanation="processor time of a run, with its share of compiling"),
}
"""By their names in the CSV files."""

_BY_EVALUATED = {metric.evaluated: name for name, metric in METRICS.items() if metric.evaluated}


def metric_info(name: str) -> Metric:
    """Return what is known of a metric; of an unknown one, that less is better."""
    return METRICS.get(name, Metric(name.replace("_", " ")))


def rename_scores(scores: Mapping[str, float]) -> dict[str, float]:
    """Return scores of `partialbayes.metrics.evaluate` by their names in the tables.

    Example:
        >>> from reproduction.tables.metrics import rename_scores
        >>> rename_scores({"nlpd": 1.0, "coverage": 0.9})
        {'nlpd': 1.0, 'coverage90': 0.9}
    """
    return {_BY_EVALUATED.get(name, name): value for name, value in scores.items()}

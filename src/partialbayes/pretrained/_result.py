"""Hold the result of `bayesianize`: a posterior, and its scores beside those of the original network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, PyTree

from partialbayes import metrics
from partialbayes.model._trunk import Trunk
from partialbayes.prediction._predict import predict
from partialbayes.prediction._predictive import Predictive
from partialbayes.pretrained._strangeness import Uncertainty
from partialbayes.results import Departure
from partialbayes.types import Model, Posterior, Report


@dataclass(frozen=True, eq=False)
class Bayesianized:
    """The result of `bayesianize`.

    Attributes:
        model: The whole network as a model, for `predict`, `save` or more training.
        posterior: The posterior of the model.
        trunk: The model, split before its random weights; the method `predict` uses it.
        width: The chosen standard deviation of the prior.
        widths: The validation NLPD for each width that was tried.
        temperature: The factor by which the likelihood's parameter (a temperature or a noise variance)
            was multiplied to fit the validation rows; 1 if it has none.
        before: Scores of the original network, on rows that were not used for any choice.
        after: Scores of the posterior on the same rows.
        departure: The comparison of both, with its standard error.
        report: The report of the sampler; None if there was none.
        uncertainty: The function behind `strangeness`, of inputs and their features in the trunk.
    """

    model: Model
    posterior: Posterior
    trunk: Trunk
    width: float
    widths: dict[float, float]
    temperature: float
    before: dict[str, float]
    after: dict[str, float]
    departure: Departure
    report: Report
    uncertainty: Uncertainty

    def predict(self, inputs: PyTree) -> Predictive:
        """Predict new targets; the trunk runs once, not once per particle.

        Args:
            inputs: New inputs, one row per example.

        Returns:
            The predictive mixture, as from `predict`.
        """
        return predict(self.trunk.head, self.posterior, self.trunk.features(inputs))

    def strangeness(self, inputs: PyTree) -> Float[np.ndarray, " example"]:
        """Score how unlike the training data each input is.

        The score is −log p₁ − log p₂. Here p₁ is the share of validation rows with at least the same
        energy (`metrics.energy`; for regression, the same epistemic variance), and p₂ the share whose
        features are at least as unlikely (`metrics.feature_density`, for up to 2,048 features). The
        features are those before the last two layers of the original network. If its layers cannot be
        counted or have too many features, they are those before the random weights.

        Args:
            inputs: New inputs, one row per example.

        Returns:
            One number per input, larger for stranger inputs.
        """
        return self.uncertainty(inputs, self.trunk.features(inputs))

    def __str__(self) -> str:
        """Return the comparison as a table."""
        names = [name for name in self.after if name in self.before] + [
            name for name in self.after if name not in self.before
        ]
        wide = max(map(len, names))
        rows = [f"{'':<{wide}}  {'as it was':>10}  {'now':>10}"]
        for name in names:
            old = f"{self.before[name]:>10.4f}" if name in self.before else f"{'–':>10}"
            rows.append(f"{name:<{wide}}  {old}  {self.after[name]:>10.4f}")
        return "\n".join(rows)


def scores_of(model: Model, posterior: Posterior, rows: Any, outside: Any) -> dict[str, float]:
    """Score a posterior on features and targets, and its detection of out-of-distribution features."""
    predictive = predict(model, posterior, rows[0])
    scores = {
        name: value
        for name, value in metrics.evaluate(predictive, rows[1]).items()
        if not name.endswith("_over_particles")
    }
    if outside is None:
        return scores
    away = predict(model, posterior, outside)
    names = ["entropy"] if model.likelihood.is_classification else []
    if posterior.num_particles > 1:
        names.append("mutual_information" if names else "epistemic_variance")
    for name in names:
        inside, other = (
            np.asarray(getattr(one, name)).reshape(len(one.mean), -1).sum(axis=1)
            for one in (predictive, away)
        )
        scores[f"auroc_{name}"] = float(metrics.auroc(inside, other))
    return scores

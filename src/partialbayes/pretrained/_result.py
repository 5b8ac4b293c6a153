"""What became of a trained network: its posterior, and its predictions beside those it made before."""

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
    """What `bayesianize` returns.

    Attributes:
        model: The whole network as a model, for `predict`, `save` or more training.
        posterior: Its posterior.
        trunk: The model cut before its random weights; what `predict` here runs.
        width: The prior's standard deviation that was chosen.
        widths: The NLPD of the rows to choose by, for each width tried.
        temperature: What the likelihood's own parameter (a temperature, a noise variance) was
            multiplied by to fit the held-out rows; 1 where it has none.
        before: Scores of the network as it was, on rows that nothing was chosen by.
        after: The same of the posterior.
        departure: The comparison of both, with its error.
        report: What the sampler reports; None if there was none.
        uncertainty: From inputs and their features in the trunk to `strangeness`.

    Example:
        >>> import partialbayes as pb
        >>> sorted(pb.pretrained.Bayesianized.__dataclass_fields__)[:3]  # of pb.bayesianize(...)
        ['after', 'before', 'departure']
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
        """Return the predictive mixture at new inputs; the trunk runs once, not once per particle."""
        return predict(self.trunk.head, self.posterior, self.trunk.features(inputs))

    def strangeness(self, inputs: PyTree) -> Float[np.ndarray, " example"]:
        """Return one number per input, larger for inputs unlike those of the training data.

        It is −log p₁ − log p₂: p₁ is the share of the rows to choose by whose outputs claim them as
        little (`metrics.energy`; for numbers, whose particles disagree as much), p₂ the share whose
        features are as unlikely (`metrics.feature_density`, where a row has at most 2,048 of them). The
        features are those before the last two layers of the network as it was, or those
        before the random weights, where its layers cannot be counted or have too many.
        """
        return self.uncertainty(inputs, self.trunk.features(inputs))

    def __str__(self) -> str:
        """The comparison as a table."""
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
    """The scores of a posterior on features and targets, and how well it finds features from elsewhere.

    Args:
        model: The head.
        posterior: Of one particle, the network as it was, or of many.
        rows: Features and targets.
        outside: Features from elsewhere, or None.
    """
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

"""Scorers for scikit-learn that look at the whole predictive, not at its mean alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from partialbayes import metrics


def negative_nlpd(estimator: Any, X: Any, y: Any) -> float:  # noqa: N803
    """Mean log predictive density of y, in nats per row; higher is better.

    Args:
        estimator: A fitted `PartialBNNRegressor` or `PartialBNNClassifier`, or a pipeline that ends in
            one.
        X: Rows.
        y: Their targets or labels.

    Example:
        >>> import numpy as np, partialbayes as pb
        >>> from sklearn.model_selection import cross_val_score
        >>> x = np.linspace(-1, 1, 60)[:, None]
        >>> model = pb.PartialBNNRegressor((8,), max_iter=5, random_state=0)
        >>> score = pb.estimators.negative_nlpd(model.fit(x, x[:, 0]), x, x[:, 0])
        >>> scores = cross_val_score(model, x, x[:, 0], cv=2, scoring=pb.estimators.negative_nlpd)
    """
    predictive, targets = _predicted(estimator, X, y)
    return -float(metrics.nlpd(predictive, targets))


def negative_crps(estimator: Any, X: Any, y: Any) -> float:  # noqa: N803
    """Minus the mean CRPS, in units of y; higher is better.

    Args:
        estimator: A fitted `PartialBNNRegressor`, or a pipeline that ends in one.
        X: Rows.
        y: Their targets.

    Example:
        >>> import numpy as np, partialbayes as pb
        >>> x = np.linspace(-1, 1, 60)[:, None]
        >>> model = pb.PartialBNNRegressor((8,), max_iter=5, random_state=0)
        >>> pb.estimators.negative_crps(model.fit(x, x[:, 0]), x, x[:, 0]) < 0
        True
    """
    predictive, targets = _predicted(estimator, X, y)
    return -float(metrics.crps(predictive, targets))


def _predicted(estimator: Any, inputs: Any, targets: Any) -> tuple[Any, Any]:
    """The predictive at the rows, and the targets as it takes them."""
    if hasattr(estimator, "steps"):  # a pipeline: all but its last step make the inputs
        inputs, estimator = estimator[:-1].transform(inputs), estimator[-1]
    predictive = estimator.predictive(inputs)
    if not hasattr(estimator, "classes_"):
        return predictive, np.asarray(targets, float)
    labels = np.asarray(targets)
    places = np.searchsorted(estimator.classes_, labels).clip(max=len(estimator.classes_) - 1)
    if np.any(estimator.classes_[places] != labels):
        raise ValueError("y holds a label that was not there in training.")
    return predictive, places

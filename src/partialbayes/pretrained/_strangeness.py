"""How strange an input is to a network with a random part.

Two signs, each blind to what the other sees: how little the outputs claim the input (the energy of the
logits, or the disagreement of particles about a number), and how unlikely its features are. Both become
tail probabilities among known rows, and Fisher's method adds them. No input from elsewhere is used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from partialbayes.metrics import combined, energy, feature_density
from partialbayes.prediction._predict import predict
from partialbayes.prediction._predictive import Predictive
from partialbayes.types import Model, Posterior

Features = Sequence[Any]
Uncertainty = Callable[[Features], Float[np.ndarray, " example"]]

_MOST_FEATURES = 2048  # whose covariance is worth its memory
_MOST_ROWS = 20_000


def strangeness(
    head: Model, posterior: Posterior, training: tuple[Features, Any], known: Features
) -> Uncertainty:
    """A function from features to one number per row, from features that were not trained on.

    Args:
        head: The model of the features.
        posterior: Its posterior.
        training: Features and targets to fit the density of features to.
        known: Features of usual rows that the network was not trained on.
    """
    signs: list[Uncertainty] = [lambda features: _of_outputs(predict(head, posterior, tuple(features)))]
    if sum(int(np.prod(one.shape[1:])) for one in training[0]) <= _MOST_FEATURES:
        every = -(-len(training[1]) // _MOST_ROWS)
        targets = training[1][::every]
        labels = targets if head.likelihood.is_classification and targets.ndim == 1 else None
        density = feature_density(_flat([one[::every] for one in training[0]]), labels)
        signs.append(lambda features: density(_flat(features)))
    total = combined(*(sign(known) for sign in signs))
    return lambda features: total(*(sign(features) for sign in signs))


def _flat(features: Features) -> Float[np.ndarray, "row feature"]:
    return np.concatenate([np.asarray(one).reshape(len(one), -1) for one in features], axis=1)


def _of_outputs(predictive: Predictive) -> Float[np.ndarray, " example"]:
    if not predictive.model.likelihood.is_classification:
        doubts: Any = predictive.epistemic_variance
    else:
        doubts = predictive.entropy
        if doubts.ndim == 1:
            doubts = energy(predictive)
    return np.asarray(doubts).reshape(len(doubts), -1).sum(axis=1)

"""Score how unlike the training data an input is.

Two scores detect different things. One comes from the outputs: the energy of the logits, or the
epistemic variance in regression. The other is the negative log-density of features. Both become tail
probabilities among known rows, which Fisher's method combines. No out-of-distribution input is used.

The features are those before the last two layers of the original network. Those before the last layer
have lost most of what does not separate the known classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, PyTree

from partialbayes._utils.checks import num_rows
from partialbayes.metrics import combined, energy, feature_density
from partialbayes.model._partial_bnn import partial_bnn
from partialbayes.model._trunk import Trunk, split_trunk
from partialbayes.prediction._predict import predict
from partialbayes.prediction._predictive import Predictive
from partialbayes.subsets._select import layer
from partialbayes.types import Likelihood, Network, Posterior

Uncertainty = Callable[[PyTree, Any], Float[np.ndarray, " example"]]

_MOST_FEATURES = 2048  # the covariance of more features takes too much memory
_MOST_ROWS = 10_000


class Watcher:
    """Computes the features whose density is estimated, one row of numbers per input.

    Args:
        network: The original network.
        likelihood: Any likelihood that fits its outputs.
        trunk: The trunk to use if the layers of the network cannot be counted, or if there are too many
            features before the last two.
        inputs: A few rows of inputs.
        rows: Number of inputs that go through the network at a time.
    """

    def __init__(
        self, network: Network, likelihood: Likelihood, trunk: Trunk, inputs: PyTree, rows: int
    ) -> None:
        self.rows, self.channels_first = rows, network.output_axis == 0
        try:
            model = partial_bnn(network, layer(-2, -1), likelihood, freeze="**")
            self.trunk = split_trunk(model, inputs)
        except ValueError:  # a single layer, or layers of unknown order
            self.trunk = trunk
        if self(jax.tree.map(lambda leaf: leaf[:1], inputs)).shape[1] > _MOST_FEATURES:
            self.trunk = trunk

    def __call__(self, inputs: PyTree) -> Float[np.ndarray, "row feature"]:
        """Return the features; if there are many, arrays are averaged over their positions."""
        total = num_rows("inputs", inputs)
        rows = min(self.rows, total)
        pieces = []
        for begin in range(0, total, rows):
            start = min(begin, total - rows)  # the last piece overlaps: all have the same shape
            piece = jax.tree.map(lambda leaf, s=start: leaf[s : s + rows], inputs)
            pieces.append(self._flat(self.trunk.features(piece, rows))[begin - start :])
        return np.concatenate(pieces)

    def _flat(self, arrays: Sequence[Any]) -> Float[np.ndarray, "row feature"]:
        many = sum(np.size(one[0]) for one in arrays) > _MOST_FEATURES
        flat = [self._averaged(one) if many and one.ndim > 2 else one for one in arrays]
        return np.concatenate([one.reshape(len(one), -1) for one in flat], axis=1, dtype=np.float32)

    def _averaged(self, array: Any) -> Float[np.ndarray, "row channel"]:
        kept = 1 if self.channels_first and array.ndim > 3 else array.ndim - 1
        return array.mean(axis=tuple(axis for axis in range(1, array.ndim) if axis != kept))


def strangeness(
    trunk: Trunk, posterior: Posterior, watcher: Watcher, training: tuple[PyTree, Any], known: PyTree
) -> Uncertainty:
    """Make a function of inputs and their features in the trunk, larger for stranger inputs.

    The density of the watcher's features is fitted to the ``training`` inputs and targets. Tail
    probabilities are those among ``known`` inputs, which are not strange and were not trained on.
    """
    every = -(-len(training[1]) // _MOST_ROWS)
    features = watcher(jax.tree.map(lambda leaf: leaf[::every], training[0]))
    targets = training[1][::every]
    head = trunk.head
    signs: list[Uncertainty] = [lambda _, own: _of_outputs(predict(head, posterior, tuple(own)))]
    if features.shape[1] <= _MOST_FEATURES:
        labels = targets if head.likelihood.is_classification and targets.ndim == 1 else None
        density = feature_density(features, labels)
        signs.append(lambda inputs, _: density(watcher(inputs)))
    own = trunk.features(known)
    total = combined(*(sign(known, own) for sign in signs))
    return lambda inputs, own: total(*(sign(inputs, own) for sign in signs))


def _of_outputs(predictive: Predictive) -> Float[np.ndarray, " example"]:
    if not predictive.model.likelihood.is_classification:
        doubts: Any = predictive.epistemic_variance
    else:
        doubts = predictive.entropy
        if doubts.ndim == 1:
            doubts = energy(predictive)
    return np.asarray(doubts).reshape(len(doubts), -1).sum(axis=1)

"""Predictions of the training rows, each by the members that did not see it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, Int

from partialbayes.model._batch import padded_size
from partialbayes.prediction._conformal import Conformity
from partialbayes.prediction._predict import predict
from partialbayes.prediction._predictive import Predictive
from partialbayes.prediction._target_scale import TargetScale
from partialbayes.types import Model, Particles, Posterior

_SCORES = 2000  # at most are kept for conformal intervals


@dataclass(frozen=True, eq=False, repr=False)
class OutOfFold:
    """What `Predictive` is for new rows, for the rows of training: honest, because out of fold.

    Rows are those that were passed to ``fit``, in their order; where one was left out, of weight zero,
    stands NaN.
    """

    model: Model | None  # None on its way between processes
    posterior: Posterior
    inputs: Float[np.ndarray, "row feature"]
    folds: Int[np.ndarray, " row"]
    source: Int[np.ndarray, " row"]
    num_rows: int
    target_scale: TargetScale | None

    def __repr__(self) -> str:
        return f"OutOfFold(rows={self.num_rows}, folds={int(self.folds.max()) + 1})"

    @cached_property
    def _parts(self) -> list[tuple[Any, Any, Predictive]]:
        """The rows of each fold, and the predictive of its group at them, all of one shape."""
        num_folds = int(self.folds.max()) + 1
        places = [np.flatnonzero(self.folds == fold) for fold in range(num_folds)]
        width = padded_size(max(map(len, places)))
        parts = []
        for fold, rows in enumerate(places):
            # Every view of this fold.
            psi, (values, log_weights) = jax.tree.map(
                lambda leaf, fold=fold: leaf[fold::num_folds], self.posterior
            )
            log_weights = log_weights - jax.nn.logsumexp(log_weights)
            group = Posterior(psi, Particles(values, log_weights))
            padded = np.resize(rows, width)
            assert self.model is not None
            predictive = predict(self.model, group, self.inputs[padded], target_scale=self.target_scale)
            parts.append((rows, padded, predictive))
        return parts

    def _gather(self, function: Callable[[Predictive, Any], Any], given: Any = None) -> Any:
        """Rows of the training table, in its order, from the predictives of the folds."""
        internal: Any = None
        for rows, padded, predictive in self._parts:
            of_fold = None if given is None else np.asarray(given)[self.source][padded]
            values = np.asarray(function(predictive, of_fold), float)[: len(rows)]
            if internal is None:
                internal = np.empty((len(self.folds), *values.shape[1:]))
            internal[rows] = values
        result = np.full((self.num_rows, *internal.shape[1:]), np.nan)
        result[self.source] = internal
        return result

    @property
    def mean(self) -> Float[np.ndarray, "row ..."]:
        """Predictive means."""
        return self._gather(lambda predictive, _: predictive.mean)

    @property
    def std(self) -> Float[np.ndarray, "row ..."]:
        """Predictive standard deviations."""
        return self._gather(lambda predictive, _: predictive.std)

    @property
    def probabilities(self) -> Float[np.ndarray, "row class"]:
        """Class probabilities."""
        return self._gather(lambda predictive, _: predictive.probabilities)

    def log_density(self, targets: Any) -> Float[np.ndarray, " row"]:
        """Log-density of targets (of class numbers, for a classification), in their own units.

        Args:
            targets: One per row.
        """
        return self._gather(lambda predictive, own: predictive.log_density(own), targets)

    def cdf(self, targets: Any) -> Float[np.ndarray, "row ..."]:
        """P(Y ≤ y).

        Args:
            targets: One per row.
        """
        return self._gather(lambda predictive, own: predictive.cdf(own), targets)

    def quantile(self, level: float) -> Float[np.ndarray, "row ..."]:
        """Quantiles of one level.

        Args:
            level: Between 0 and 1.
        """
        return self._gather(lambda predictive, _: predictive.quantile(float(level)))

    def interval(self, coverage: float = 0.9) -> tuple[Any, Any]:
        """Ends of the central intervals.

        Args:
            coverage: Probability inside, between 0 and 1.
        """
        return self.quantile(0.5 - 0.5 * coverage), self.quantile(0.5 + 0.5 * coverage)

    def conformity(self, targets: Any, seed: int) -> Conformity:
        """Scores of the rows for conformal intervals or sets, of a part of them where there are many.

        Args:
            targets: As they were passed to ``fit``; class numbers for a classification.
            seed: Of the choice.
        """
        first = np.unique(self.source, return_index=True)[1]
        kept = self.source[first]
        assert self.model is not None
        if self.model.likelihood.is_classification:
            scores = 1.0 - self.probabilities[kept, np.asarray(targets)[kept]]
        else:
            mean = self.mean
            scores = np.abs(np.asarray(targets, float).reshape(mean.shape) - mean)[kept] / self.std[kept]
        chosen = np.random.default_rng(seed).permutation(len(kept))[:_SCORES]
        return Conformity(scores[chosen], self.folds[first][chosen])

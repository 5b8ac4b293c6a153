"""Predictions of the training rows, each by the members that did not see it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, Int

from partialbayes._utils.checks import as_key
from partialbayes._utils.forks import require_not_forked
from partialbayes.model._batch import padded_size
from partialbayes.prediction._conformal import Conformity
from partialbayes.prediction._predict import predict
from partialbayes.prediction._predictive import Components, Predictive
from partialbayes.prediction._target_scale import TargetScale
from partialbayes.types import Particles, Posterior

_SCORES = 2000  # at most are kept for conformal intervals


def without_log(scale: TargetScale | None) -> TargetScale | None:
    """The scale of the logarithms, where these were trained on."""
    return None if scale is None else scale._replace(log=False)


@dataclass(frozen=True, eq=False, repr=False)
class OutOfFold(Predictive):
    """What `Predictive` is for new rows, for the rows of training: honest, because out of fold.

    Rows are those that were passed to ``fit``, in their order; where one was left out, of weight zero,
    stands NaN. ``posterior`` is that of all groups, and ``inputs`` are the rows as they were trained on.
    """

    folds: Int[np.ndarray, " row"] = field(kw_only=True)
    source: Int[np.ndarray, " row"] = field(kw_only=True)
    num_rows: int = field(kw_only=True)
    num_folds: int = field(kw_only=True)

    def __repr__(self) -> str:
        return f"OutOfFold(rows={self.num_rows}, folds={self.num_folds})"

    @cached_property
    def _parts(self) -> list[tuple[Any, Any, Predictive]]:
        """The rows of each fold, and the predictive of its group at them, all of one shape."""
        num_folds = self.num_folds
        places = [np.flatnonzero(self.folds == fold) for fold in range(num_folds)]
        width = padded_size(max(map(len, places)))
        parts = []
        for fold, rows in enumerate(places):
            if len(rows) == 0:
                continue
            # Every view of this fold.
            psi, (values, log_weights) = jax.tree.map(
                lambda leaf, fold=fold: leaf[fold::num_folds], self.posterior
            )
            log_weights = log_weights - jax.nn.logsumexp(log_weights)
            group = Posterior(psi, Particles(values, log_weights))
            padded = np.resize(rows, width)
            predictive = predict(self.model, group, self.inputs[padded], target_scale=self.target_scale)
            parts.append((rows, padded, predictive))
        return parts

    def _gather(
        self, function: Callable[[Predictive, Any], Any], given: Any = None, axis: int = 0
    ) -> Any:
        """Rows of the training table, in its order, from the predictives of the folds."""
        require_not_forked()
        result: Any = None
        for rows, padded, predictive in self._parts:
            of_fold = None if given is None else np.asarray(given)[self.source][padded]
            values = np.moveaxis(np.asarray(function(predictive, of_fold), float), axis, 0)
            if result is None:
                result = np.full((self.num_rows, *values.shape[1:]), np.nan)
            result[self.source[rows]] = values[: len(rows)]
        return np.moveaxis(result, 0, axis)

    @property
    def mean(self) -> Float[np.ndarray, "row ..."]:
        """Predictive means."""
        return self._gather(lambda predictive, _: predictive.mean)

    @property
    def std(self) -> Float[np.ndarray, "row ..."]:
        """Predictive standard deviations."""
        return self._gather(lambda predictive, _: predictive.std)

    @property
    def variance(self) -> Float[np.ndarray, "row ..."]:
        """Total variance."""
        return np.square(self.std)

    @property
    def aleatoric_variance(self) -> Float[np.ndarray, "row ..."]:
        """Variance of the noise."""
        return self._gather(lambda predictive, _: predictive.aleatoric_variance)

    @property
    def epistemic_variance(self) -> Float[np.ndarray, "row ..."]:
        """Variance between members."""
        return self._gather(lambda predictive, _: predictive.epistemic_variance)

    @property
    def probabilities(self) -> Any:
        """Class probabilities."""
        return self._gather(lambda predictive, _: predictive.probabilities)

    @property
    def entropy(self) -> Any:
        """Entropy of the class probabilities."""
        return self._gather(lambda predictive, _: predictive.entropy)

    @property
    def expected_entropy(self) -> Any:
        """Aleatoric part of the entropy."""
        return self._gather(lambda predictive, _: predictive.expected_entropy)

    @property
    def mutual_information(self) -> Any:
        """Epistemic part of the entropy."""
        return self._gather(lambda predictive, _: predictive.mutual_information)

    def log_density(self, targets: Any) -> Any:
        """Log-density of targets (of class numbers, for a classification), in their own units.

        Args:
            targets: One per row.
        """
        return self._gather(lambda predictive, own: predictive.log_density(own), targets)

    def cdf(self, targets: Any) -> Any:
        """P(Y ≤ y).

        Args:
            targets: One per row.
        """
        return self._gather(lambda predictive, own: predictive.cdf(own), targets)

    def quantile(self, levels: Any) -> Float[np.ndarray, "..."]:
        """Quantiles.

        Args:
            levels: A number between 0 and 1, or several: these become the leading axis.
        """
        axis = np.ndim(levels)
        return self._gather(lambda predictive, _: predictive.quantile(levels), axis=axis)

    def sample(self, key: Any, num: int) -> Float[np.ndarray, "draw row ..."]:
        """Draws of new targets, along a leading axis.

        Args:
            key: A ``jax.random.key`` or a whole number to make one from.
            num: How many.
        """
        keys = iter(jax.random.split(as_key(key), self.num_folds))
        return self._gather(lambda predictive, _: predictive.sample(next(keys), num), axis=1)

    def even_sample(self, key: Any) -> Float[np.ndarray, "draw row ..."]:
        """At least 2000 draws, evenly from the members."""
        keys = iter(jax.random.split(key, self.num_folds))
        return self._gather(lambda predictive, _: predictive.even_sample(next(keys)), axis=1)

    def components(self) -> Components:
        """What each member of a row's group predicts by itself, and its weight."""
        mean = self._gather(lambda predictive, _: predictive.components().mean, axis=1)
        variance = self._gather(lambda predictive, _: predictive.components().variance, axis=1)
        return Components(mean, variance, self._parts[0][2].posterior.particles.log_weights.ravel())

    def conformity(self, targets: Any, seed: int) -> Conformity:
        """Scores of the rows for conformal intervals or sets, of a part of them where there are many.

        Args:
            targets: As they were passed to ``fit``; class numbers for a classification. Where their
                logarithms were trained on, the scores are of these.
            seed: Of the choice.
        """
        first = np.unique(self.source, return_index=True)[1]
        kept = self.source[first]
        if self.model.likelihood.is_classification:
            scores = 1.0 - self.probabilities[kept, np.asarray(targets)[kept]]
        else:
            plain = replace(self, target_scale=without_log(self.target_scale))
            mean = plain.mean
            wanted = np.asarray(targets, float).reshape(mean.shape)
            wanted = (
                np.log(wanted) if self.target_scale is not None and self.target_scale.log else wanted
            )
            scores = np.abs(wanted - mean)[kept] / plain.std[kept]
        chosen = np.random.default_rng(seed).permutation(len(kept))[:_SCORES]
        return Conformity(scores[chosen], self.folds[first][chosen])

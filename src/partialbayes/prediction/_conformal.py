"""Conformal intervals and class sets: coverage that holds for any model, on exchangeable rows.

The scores of k rows that were not trained on are r_i = |y_i − m(x_i)| / s(x_i), or 1 − p(y_i | x_i) of
classes. With α = 1 − coverage the interval at x is

    [the ⌊α(k+1)⌋-th smallest of m(x) − r_i s(x),  the ⌈(1−α)(k+1)⌉-th smallest of m(x) + r_i s(x)]

(Lei et al. 2018), and a class is in the set if the fraction of scores at least as large as its own is
above α. If the scores come from folds, m and s are those of the model that did not see row i (CV+,
Barber et al. 2021): the guarantee is then 1 − 2α, the coverage in practice 1 − α or more.

More, because CV+ counts the differences between the models of the folds twice: the scores have them, and
so have the m. The mean m̄ of K models errs by less than each of them, (y − m̄)² = mean_k (y − m_k)² − d²
with d² the variance of the m_k at x, whatever y is. `centered_intervals` take this difference off, in
the squares of half-widths of a normal distribution (z its quantile, q that of the scores):

    m̄(x) ± √((q s(x))² − (z d(x))²)

They have no guarantee for finite samples, and a coverage nearer to 1 − α.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import special

from partialbayes._utils.checks import require_coverage
from partialbayes.prediction._predictive import Predictive

_LEAST_SHARE = 0.25  # of a squared half-width is left, whatever the models disagree by
_ENTRIES = 4_000_000  # of scores times rows at a time


class Conformity(NamedTuple):
    """Scores of rows that were not trained on.

    Attributes:
        scores: One score per row, or per row and output.
        folds: The model that each score belongs to.
    """

    scores: Float[np.ndarray, "score ..."]
    folds: Int[np.ndarray, " score"]


class Spread(NamedTuple):
    """Centers and spreads of the predictions of each model, in original units."""

    mean: Float[np.ndarray, "model row ..."]
    std: Float[np.ndarray, "model row ..."]


def conformal_interval(
    predictive: Predictive, calibration: Predictive, targets: Any, coverage: float = 0.9
) -> tuple[Float[np.ndarray, "example ..."], Float[np.ndarray, "example ..."]]:
    """Compute intervals that hold at least ``coverage`` of new rows, for any model (split conformal).

    Args:
        predictive: The result of `predict` at the rows to predict.
        calibration: The result of `predict` at rows that training has not seen.
        targets: Targets of those rows.
        coverage: Probability inside the intervals, between 0 and 1.

    Returns:
        The lower and upper ends; infinite if there are too few rows for the coverage.

    Example:
        >>> import partialbayes as pb  # predictive and x as in the example of predict
        >>> low, high = pb.prediction.conformal_interval(predictive, predictive, x, 0.8)
        >>> bool((low <= high).all())
        True
    """
    if predictive.model.likelihood.is_classification:
        raise ValueError("intervals are for targets that are numbers; for classes use conformal_sets.")
    known, new = _spread_of(calibration), _spread_of(predictive)
    wanted = np.asarray(targets, float).reshape(known.mean.shape[1:])
    scores = np.abs(wanted - known.mean[0]) / known.std[0]
    return intervals(new, Conformity(scores, np.zeros(len(scores), int)), coverage)


def _spread_of(predictive: Predictive) -> Spread:
    return Spread(np.asarray(predictive.mean, float)[None], np.asarray(predictive.std, float)[None])


def conformal_sets(
    predictive: Predictive, calibration: Predictive, labels: Any, coverage: float = 0.9
) -> Bool[np.ndarray, "example class"]:
    """Compute sets of classes that hold the label of at least ``coverage`` of new rows.

    Args:
        predictive: The result of `predict` at the rows to predict.
        calibration: The result of `predict` at rows that training has not seen.
        labels: Labels of those rows, numbered from 0.
        coverage: Probability that the label is in the set, between 0 and 1.

    Returns:
        True for the classes in the set of each row.

    Example:
        >>> import jax.numpy as jnp, partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 5, 1]), "layers/0/*", pb.bernoulli())
        >>> x = jnp.linspace(-1.0, 1.0, 40)[:, None]
        >>> labels = (x[:, 0] > 0).astype(int)
        >>> trained = pb.fit(pb.ohsmc(model, num_particles=10), (x, labels), epochs=2)
        >>> predictive = pb.predict(model, trained.posterior, x)
        >>> pb.prediction.conformal_sets(predictive, predictive, labels).shape
        (40, 2)
    """
    known = np.asarray(calibration.probabilities, float)
    scores = 1.0 - known[np.arange(len(known)), np.asarray(labels, int)]
    new = np.asarray(predictive.probabilities, float)[None]
    return class_sets(new, Conformity(scores, np.zeros(len(scores), int)), coverage)


def intervals(spread: Spread, conformity: Conformity, coverage: float) -> tuple[Any, Any]:
    """Compute the ends of the intervals from the predictions of the model of each fold."""
    require_coverage(coverage)
    scores, folds = conformity
    count = len(scores)
    place = int(np.floor((1.0 - coverage) * (count + 1) + 1e-9))
    shape = spread.mean.shape[1:]
    if place < 1:
        return np.full(shape, -np.inf), np.full(shape, np.inf)
    low, high = np.empty(shape), np.empty(shape)
    step = max(1, _ENTRIES // (count * max(int(np.prod(shape[1:])), 1)))
    for begin in range(0, shape[0], step):
        rows = slice(begin, begin + step)
        middle, width = spread.mean[folds, rows], spread.std[folds, rows]
        reach = scores[:, None] * width
        low[rows] = np.partition(middle - reach, place - 1, axis=0)[place - 1]
        high[rows] = np.partition(middle + reach, count - place, axis=0)[count - place]
    return low, np.maximum(low, high)


def centered_intervals(spread: Spread, conformity: Conformity, coverage: float) -> tuple[Any, Any]:
    """Compute the ends of intervals around the mean of the predictions of all folds."""
    require_coverage(coverage)
    scores = np.sort(conformity.scores, axis=0)
    place = int(np.ceil(coverage * (len(scores) + 1) - 1e-9))
    shape = spread.mean.shape[1:]
    if place > len(scores):
        return np.full(shape, -np.inf), np.full(shape, np.inf)
    middle, between = spread.mean.mean(axis=0), spread.mean.var(axis=0)
    square = np.square(scores[place - 1]) * np.square(spread.std).mean(axis=0)
    taken_off = np.square(special.ndtri(0.5 + 0.5 * coverage)) * between
    reach = np.sqrt(np.maximum(square - taken_off, _LEAST_SHARE * square))
    return middle - reach, middle + reach


def class_sets(
    probabilities: Float[np.ndarray, "model row class"], conformity: Conformity, coverage: float
) -> Bool[np.ndarray, "row class"]:
    """Compute the classes in the sets from the predictions of the model of each fold."""
    require_coverage(coverage)
    scores, folds = conformity
    at_least = np.zeros(probabilities.shape[1:])
    for fold, predicted in enumerate(probabilities):
        own = np.sort(scores[folds == fold])
        # Rounding must not exclude a class whose score equals that of a known row.
        at_least += len(own) - np.searchsorted(own, 1.0 - predicted - 1e-9, side="left")
    chosen: Bool[np.ndarray, "row class"] = (1.0 + at_least) / (len(scores) + 1.0) > 1.0 - coverage
    return chosen

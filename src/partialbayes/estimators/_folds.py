"""Which rows each group of "crossfit" trains on, and which it does not see."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from partialbayes.model._batch import padded_size


class Folds(NamedTuple):
    """Which rows each group trains on, and which it does not see.

    Attributes:
        of_row: The fold of each row, -1 where nothing is held out.
        train: Rows of each group, padded.
        counts: How many of them count.
    """

    of_row: Int[np.ndarray, " row"]
    train: Int[np.ndarray, "group place"]
    counts: Int[np.ndarray, " group"]


def make_folds(
    inputs: Any, targets: Any, num_folds: int, groups: Any, is_classifier: bool, seed: int
) -> Folds:
    """Divide the rows; equal rows, or rows of one of the ``groups``, stay together.

    Rows are equal if their targets are, too: equal inputs with different targets are no copies of one
    row, and a new row may have the inputs of a known one. Classes are spread evenly over the folds.
    """
    rows = len(inputs)
    if groups is None:
        table = np.column_stack([inputs, np.asarray(targets, float).reshape(rows, -1)])
        groups = np.unique(table, axis=0, return_inverse=True)[1].reshape(-1)
    else:
        groups = np.unique(np.asarray(groups), return_inverse=True)[1].reshape(-1)
    count = int(groups.max()) + 1
    random = np.random.default_rng(seed)
    first = np.zeros(count, int)
    first[groups[::-1]] = np.arange(rows)[::-1]
    kind = targets[first] if is_classifier else np.zeros(count)
    order = np.lexsort((random.random(count), kind))
    of_group = np.empty(count, int)
    of_group[order] = np.arange(count) % num_folds
    of_row = of_group[groups]
    held_out = [of_row == fold for fold in range(num_folds)]
    if count < num_folds or min(np.sum(~mask) for mask in held_out) < 2:
        of_row = np.full(rows, -1)
        held_out = [np.zeros(rows, bool)] * num_folds
    train = [np.flatnonzero(~mask) for mask in held_out]
    counts = np.array([len(places) for places in train])
    width = padded_size(int(counts.max()))
    padded = np.stack([np.resize(places, width) for places in train])
    return Folds(of_row, padded, counts)


def draws(folds: Folds, weights: Any, num_views: int) -> tuple[Any, Any, Any]:
    """The rows of each group, how many, and their cumulative weights where rows are weighted."""
    train, counts = (np.concatenate([part] * num_views) for part in (folds.train, folds.counts))
    if weights is None:
        return train, counts, None
    of_places = np.asarray(weights, float)[train] * (np.arange(train.shape[1]) < counts[:, None])
    total = np.cumsum(of_places, axis=1)
    return train, counts, (total / total[:, -1:]).astype(np.float32)


def fold_places(folds: Folds) -> tuple[Int[np.ndarray, "fold place"], Bool[np.ndarray, "fold place"]]:
    """The rows of every fold, padded to one width, and which of them count."""
    held_out = [np.flatnonzero(folds.of_row == fold) for fold in range(len(folds.counts))]
    width = padded_size(max(map(len, held_out)))
    places = np.stack([np.resize(rows, width) for rows in held_out])
    mask = np.stack([np.arange(width) < len(rows) for rows in held_out])
    return places, mask

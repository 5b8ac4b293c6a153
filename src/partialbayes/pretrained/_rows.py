"""Divide rows into three parts: to train on, to choose with and to compare on."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from partialbayes._utils.checks import num_rows
from partialbayes.types import PRNGKey

Rows = tuple[PyTree, Any]


def divide_rows(key: PRNGKey, data: Any, validation: Any, share: float) -> tuple[Rows, Rows, Rows]:
    """Divide the data; the held-out rows, or those of ``validation``, are halved at random."""
    seed = np.asarray(jax.random.key_data(key)).ravel().tolist()
    generator = np.random.default_rng(seed)
    for name, pair in (("data", data), ("validation", validation)):
        if pair is not None:
            _require_pair(name, pair)
    if validation is None:
        total = num_rows("data", data[0])
        order = generator.permutation(total)
        held = max(2, round(share * total))
        if total - held < 1:
            raise ValueError(f"data has {total} rows, too few to hold some out; pass validation.")
        kept, held_out = _take(data, np.sort(order[held:])), _take(data, order[:held])
    else:
        total = num_rows("validation", validation[0])
        if total < 2:
            raise ValueError(
                f"validation has {total} row; pass at least 2: half of them choose the width, and half "
                "are for the comparison."
            )
        kept = (data[0], np.asarray(data[1]))
        held_out = _take(validation, generator.permutation(total))
    half = (len(held_out[1]) + 1) // 2
    return kept, _take(held_out, slice(0, half)), _take(held_out, slice(half, None))


def _require_pair(name: str, pair: Any) -> None:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise ValueError(f"{name} must be a pair (inputs, targets), not {type(pair).__name__}.")
    rows = num_rows(name, pair[0])
    if np.ndim(pair[1]) < 1 or len(pair[1]) != rows:
        raise ValueError(
            f"{name} has {rows} rows of inputs, but its targets have shape {np.shape(pair[1])}; pass "
            "one target for each row."
        )
    if np.asarray(pair[1]).dtype.kind not in "iufb":
        raise ValueError(
            f"{name} has targets of type {np.asarray(pair[1]).dtype}; pass numbers, for classes from 0 "
            "on, for example np.unique(labels, return_inverse=True)[1]."
        )


def _take(pair: Any, places: Any) -> Rows:
    return jax.tree.map(lambda leaf: np.asarray(leaf[places]), pair[0]), np.asarray(pair[1])[places]

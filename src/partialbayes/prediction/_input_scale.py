"""Scale inputs for training: subtract the mean of each column, and divide by its spread."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from partialbayes.prediction._target_scale import mean_and_spread

_FURTHEST = 1e9  # spreads; beyond it the squares of what a network computes overflow


class InputScale(NamedTuple):
    """The scaling z = (x − shift) / scale of the inputs of a network.

    Attributes:
        shift: One number per column.
        scale: One positive number per column.
    """

    shift: Any
    scale: Any

    @classmethod
    def of(cls, inputs: Any, robust: bool = False) -> InputScale:
        """Return the mean and standard deviation of each column of the training rows, or a robust scale.

        The robust scale is the median and the distance between the quartiles, or half the range if that
        is zero. A constant column carries no information. Its scale is its own magnitude, so that a
        small change at prediction changes the input of the network little.
        """
        array = np.asarray(inputs, float)
        mean, spread = mean_and_spread(array)
        if robust:
            low, mean, high = np.quantile(array, [0.25, 0.5, 0.75], axis=0)
            width = np.where(high > low, high - low, 0.5 * np.ptp(array, axis=0))
            spread = np.where(spread > 0, width, 0.0)
        magnitude = np.abs(mean)
        return cls(mean, np.where(spread > 0, spread, np.where(magnitude > 0, magnitude, 1.0)))

    def apply(self, inputs: Any) -> Float[np.ndarray, "row feature"]:
        """Convert from original units to those of training, in single precision."""
        return standardize("X", inputs, *self)


def standardize(name: str, table: Any, shift: Any, scale: Any) -> Float[np.ndarray, "row ..."]:
    """Compute (table − shift) / scale in single precision, by arithmetic in double precision."""
    array = np.asarray(table, float)
    with np.errstate(over="ignore"):
        values = (array - shift) / scale
    far = np.abs(values) > _FURTHEST
    if far.any():
        place = tuple(np.argwhere(far)[0])
        column = f", column {place[1]}" if len(place) > 1 else ""
        raise ValueError(
            f"{name} holds {array[place]:.6g} in row {place[0]}{column}, a billion spreads away from "
            "the training rows; check its units."
        )
    return values.astype(np.float32)

"""Inputs in units that suit training: each column moved by its mean, divided by its spread."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from partialbayes.prediction._target_scale import mean_and_spread

_FURTHEST = 1e9  # spreads; beyond it the squares of what a network computes overflow


class InputScale(NamedTuple):
    """Inputs go to the network as z = (x − shift) / scale.

    Attributes:
        shift: One number per column.
        scale: One positive number per column.
    """

    shift: Any
    scale: Any

    @classmethod
    def of(cls, inputs: Any, robust: bool = False) -> InputScale:
        """Mean and standard deviation of the training rows, by column; or median and quartiles.

        The robust scale is the distance between the quartiles, or half the range where that is zero.
        A column that was constant tells nothing. It is measured by its own magnitude, so that one
        that moves a little at prediction moves the network a little.
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
        """From original units to those of training, in single precision.

        Raises:
            ValueError: A value is a billion spreads away from the training rows.
        """
        return standardize("X", inputs, *self)


def standardize(name: str, table: Any, shift: Any, scale: Any) -> Float[np.ndarray, "row ..."]:
    """(table − shift) / scale in single precision, computed in double.

    Args:
        name: What to call the table in an error.
        table: Rows of numbers.
        shift: Of each column.
        scale: Of each column.

    Raises:
        ValueError: A value is a billion spreads away from the training rows.
    """
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

"""Scale targets for training, and restore them, in double precision on the host.

Devices compute in single precision, which holds seven digits: 1e9 + z loses all of z. So the
shift is subtracted before the numbers go to the device, and added after they have returned.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from partialbayes._utils.checks import num_rows, require_numeric

_SINGLE = float(np.finfo(np.float32).eps)
_DOUBLE = float(np.finfo(np.float64).eps)


class TargetScale(NamedTuple):
    """The scaling z = (y − shift) / scale of targets in training; predictions are returned as y.

    Attributes:
        shift: A number, or one per output.
        scale: A positive number, or one per output.
        log: Whether log y takes the place of y, for positive targets of very different magnitudes: no
            prediction or interval is then below zero. Densities and quantiles are exact; means and
            variances are those of a log-normal with the moments of log y, which is exact for
            Gaussian noise. For this, no component has a larger variance than log y in training.

    Example:
        >>> import numpy as np, partialbayes as pb
        >>> scale = pb.prediction.TargetScale.of(np.array([10.0, 30.0]))
        >>> scale.apply(np.array([40.0]))
        array([2.])
    """

    shift: Any
    scale: Any
    log: bool = False

    @classmethod
    def of(cls, targets: Any, log: bool = False) -> TargetScale:
        """Return the mean and standard deviation of the training targets, by output; NaN is left out.

        A constant target is only shifted; targets that differ only by rounding are constant.

        Args:
            targets: One row per example.
            log: Whether to train on their logarithms.

        Returns:
            The scaling.
        """
        num_rows("targets", targets)
        require_numeric("targets", targets)
        array = np.asarray(targets, float)
        if array.ndim == 2 and array.shape[1] == 1:
            array = array[:, 0]
        if np.isinf(array).any():
            raise ValueError("targets contains an infinite value; drop those rows before training.")
        if np.isnan(array).all(axis=0).any():
            raise ValueError("targets: an output is missing (NaN) in every row; leave it out.")
        if log:
            if np.any(array <= 0):
                raise ValueError(
                    f"targets must be positive to take logarithms of; {np.nanmin(array)} is not."
                )
            array = np.log(array)
        mean, spread = mean_and_spread(array)
        return cls(mean, np.where(spread > 0, spread, 1.0), log)

    def apply(self, targets: Any) -> Any:
        """Convert from original units to those of training.

        Args:
            targets: Targets in original units.

        Returns:
            The scaled targets.
        """
        values = np.asarray(targets, float)
        if self.log:
            with np.errstate(divide="ignore"):  # the logarithm of zero is −∞
                values = np.log(np.maximum(values, 0.0))
        return (values - self.shift) / self.scale

    def restore(self, values: Any) -> Any:
        """Convert from the units of training to the original ones.

        Args:
            values: Values in the units of training.

        Returns:
            The values in original units.
        """
        restored = self.shift + self.scale * np.asarray(values, float)
        return np.exp(restored) if self.log else restored


def mean_and_spread(array: Any) -> tuple[Any, Any]:
    """Compute mean and standard deviation by column; NaN is left out.

    The spread is 0 if it is rounding: if all values are equal up to the precision in which they were
    made, single if all of them are fractions that single precision holds.
    """
    magnitude = np.nanmax(np.abs(array), axis=0)
    unit = np.where(magnitude > 0, magnitude, 1.0)  # so that squares do not overflow
    relative = array / unit
    mean, spread = np.nanmean(relative, axis=0), np.nanstd(relative, axis=0)
    with np.errstate(over="ignore", under="ignore"):
        is_single = ((array.astype(np.float32) == array) | np.isnan(array)).all(axis=0)
    is_whole = ((np.rint(array) == array) | np.isnan(array)).all(axis=0)
    rounding = np.where(is_single & ~is_whole, 2 * _SINGLE, 64 * _DOUBLE)
    return mean * unit, np.where(spread > rounding, spread * unit, 0.0)


def lost_in_single_precision(shift: Any, scale: Any) -> Any:
    """Return True where single precision cannot hold shift + scale z to a hundredth of the scale."""
    shift, scale = np.abs(np.asarray(shift, float)), np.asarray(scale, float)
    largest = float(np.sqrt(np.finfo(np.float32).max)) / 1e3  # its square is a variance
    return (_SINGLE * shift > 0.01 * scale) | (shift + scale > largest)

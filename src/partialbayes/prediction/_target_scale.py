"""Targets in units that suit training, and the way back; in double precision, on the host.

Devices compute in single precision, which holds seven digits: of 1e9 + z nothing is left of z. So the
shift is taken off before the numbers go to the device, and put back after they have come from there.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from partialbayes._utils.checks import num_rows, require_numeric

_SINGLE = float(np.finfo(np.float32).eps)
_DOUBLE = float(np.finfo(np.float64).eps)


class TargetScale(NamedTuple):
    """Targets were trained on as z = (y − shift) / scale; predictions come back as y.

    Attributes:
        shift: A number, or one per output.
        scale: A positive number, or one per output.
        log: Whether log y stands in place of y, for positive targets that spread over magnitudes: no
            prediction or interval is then below zero. Densities and quantiles are exact; means and
            variances are those of a log-normal with the moments that log y has, which is exact for
            Gaussian noise.

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
        """Mean and standard deviation of the training targets, by output; NaN entries are left out.

        A constant target is only shifted; targets that differ by rounding alone are constant.

        Args:
            targets: One row per example.
            log: Whether to train on their logarithms.

        Raises:
            ValueError: The targets are not numbers, infinite, or missing in every row; or ``log``, and
                some are not positive.
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
        """From original units to those of training."""
        values = np.asarray(targets, float)
        if self.log:
            with np.errstate(divide="ignore"):  # nothing is below zero: its logarithm is −∞
                values = np.log(np.maximum(values, 0.0))
        return (values - self.shift) / self.scale

    def restore(self, values: Any) -> Any:
        """From the units of training to the original ones."""
        restored = self.shift + self.scale * np.asarray(values, float)
        return np.exp(restored) if self.log else restored


def mean_and_spread(array: Any) -> tuple[Any, Any]:
    """Mean and standard deviation by column; NaN is left out.

    The spread is 0 where it is rounding: where all values are the same up to the precision they were
    made in, single where all of them are fractions that single precision holds.
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
    """Where single precision cannot hold shift + scale z: its steps are a hundredth of the scale."""
    shift, scale = np.abs(np.asarray(shift, float)), np.asarray(scale, float)
    largest = float(np.sqrt(np.finfo(np.float32).max)) / 1e3  # its square is a variance
    return (_SINGLE * shift > 0.01 * scale) | (shift + scale > largest)

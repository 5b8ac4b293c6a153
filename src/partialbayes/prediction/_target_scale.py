"""Targets in units that suit training, and the way back."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from partialbayes._utils.checks import num_rows, require_numeric


class TargetScale(NamedTuple):
    """Targets were trained on as z = (y − shift) / scale; predictions come back as y.

    Attributes:
        shift: A number, or one per output.
        scale: A positive number, or one per output.

    Example:
        >>> import numpy as np, partialbayes as pb
        >>> scale = pb.prediction.TargetScale.of(np.array([10.0, 30.0]))
        >>> scale.apply(np.array([40.0]))
        array([2.])
    """

    shift: Any
    scale: Any

    @classmethod
    def of(cls, targets: Any) -> TargetScale:
        """Mean and standard deviation of the training targets, by output; NaN entries are left out.

        A constant target is only shifted.
        """
        num_rows("targets", targets)
        require_numeric("targets", targets)
        array = np.asarray(targets, float)
        if array.ndim == 2 and array.shape[1] == 1:
            array = array[:, 0]
        spread = np.nanstd(array, axis=0)
        return cls(np.nanmean(array, axis=0), np.where(spread > 0, spread, 1.0))

    def apply(self, targets: Any) -> Any:
        """From original units to those of training."""
        return (np.asarray(targets, float) - self.shift) / self.scale

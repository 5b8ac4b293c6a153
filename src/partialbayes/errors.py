"""Every exception and warning of the library, in one place."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from partialbayes.types import Fit

__all__ = [
    "CheckpointError",
    "CollapseWarning",
    "ShortfallWarning",
    "StalledError",
    "TableError",
    "TrainingDivergedError",
]


class TrainingDivergedError(RuntimeError):
    """The loss became NaN or infinite, or every score on the way was.

    Attributes:
        step: The first step at which the loss did, or the last one of training.
        fit: The best posterior before that, and the history up to it; None if there is none.

    Example:
        >>> import partialbayes as pb
        >>> error = pb.errors.TrainingDivergedError(12, None, "Try a smaller learning rate.")
        >>> error.step, error.fit  # except pb.errors.TrainingDivergedError as error: …
        (12, None)
    """

    def __init__(self, step: int, fit: Fit | None, remedy: str, what: str | None = None) -> None:
        super().__init__(step, fit, remedy, what)  # whole, so that it can come from another process
        self.step = step
        self.fit = fit

    def __str__(self) -> str:
        """What happened, what is kept, and what to do."""
        step, fit, remedy, what = self.args
        if what is not None:
            return f"{what} {remedy}"
        kept = (
            f"the best posterior before it, of step {fit.history.best_step}, is in this error's `fit`"
            if fit
            else "it was before the first evaluation, so there is no earlier posterior to keep"
        )
        return f"the loss became NaN or infinite at step {step}; {kept}. {remedy}"


class StalledError(RuntimeError):
    """The tempering did not get to the posterior.

    Attributes:
        temperatures: As far as it came.
        fit: The `Fit` of the stage before, where there was one.

    Example:
        >>> import numpy as np, partialbayes as pb
        >>> error = pb.errors.StalledError(np.array([0.1, 0.2]), "Allow more steps.")
        >>> float(error.temperatures[-1])  # except pb.errors.StalledError as error: …
        0.2
    """

    def __init__(self, temperatures: Float[np.ndarray, " step"], remedy: str, fit: Any = None) -> None:
        super().__init__(temperatures, remedy, fit)  # whole, so that it can come from another process
        self.temperatures = temperatures
        self.fit = fit

    def __str__(self) -> str:
        """How far it came, and what to do."""
        temperatures, remedy, fit = self.args
        reached = temperatures[-1] if temperatures.size else np.nan
        kept = "" if fit is None else " The posterior of the stage before is in this error's `fit`."
        return (
            f"tempering stalled at temperature {reached:.3g} after {temperatures.size} steps; "
            f"{remedy}{kept}"
        )


class ShortfallWarning(UserWarning):
    """The tempering ended at the posterior, but its particles are far from where that is high.

    Example:
        >>> import warnings
        >>> from partialbayes.errors import ShortfallWarning
        >>> warnings.simplefilter("error", ShortfallWarning)  # to stop at one
        >>> warnings.simplefilter("default", ShortfallWarning)
    """


class CollapseWarning(UserWarning):
    """Particles, or moves, that have stopped doing anything."""


class CheckpointError(RuntimeError):
    """A file could not be written or read; the message says why and what to do.

    Example:
        >>> import partialbayes as pb
        >>> try:
        ...     pb.load("nowhere")
        ... except pb.errors.CheckpointError:
        ...     print("there is no such folder")
        there is no such folder
    """


class TableError(ValueError):
    """What is wrong with a table, in one sentence."""

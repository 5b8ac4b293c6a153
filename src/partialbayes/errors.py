"""Define every exception and warning of the library.

Example:
    >>> import warnings, partialbayes as pb
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", pb.errors.MixingWarning)  # raise it instead
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from partialbayes.results import Fit

__all__ = [
    "CheckpointError",
    "CheckpointWarning",
    "CollapseWarning",
    "DepartureWarning",
    "DivergedWarning",
    "FewParticlesWarning",
    "LogWarning",
    "MixingWarning",
    "NoMaximumWarning",
    "ShortfallWarning",
    "StalledError",
    "StalledWarning",
    "SteepPathWarning",
    "TableError",
    "TableWarning",
    "TrainingDivergedError",
    "TrainingInterrupted",
]


class TrainingDivergedError(RuntimeError):
    """Training diverged: the loss, or every validation score, was NaN or infinite.

    Attributes:
        step: The first step with a loss that is not finite, or the last step of training.
        fit: The best posterior before that step and the history up to it; None if there is none.
    """

    def __init__(self, step: int, fit: Fit | None, remedy: str, what: str | None = None) -> None:
        super().__init__(step, fit, remedy, what)  # all arguments, to be picklable
        self.step = step
        self.fit = fit

    def __str__(self) -> str:
        """Describe the failure, what is kept and the remedy."""
        step, fit, remedy, what = self.args
        if what is not None:
            return f"{what} {remedy}"
        kept = (
            f"the best posterior before that, from step {fit.history.best_step}, is in `error.fit`"
            if fit
            else "it was before the first evaluation, so there is no earlier posterior"
        )
        return f"the loss became NaN or infinite at step {step}; {kept}. {remedy}"


class TrainingInterrupted(KeyboardInterrupt):
    """Ctrl-C ended a run, after the current step and the checkpoint were completed.

    It is a `KeyboardInterrupt`, so it also ends a loop over fits.

    Attributes:
        step: The number of steps completed.
        fit: The result of `fit` or `fit_many` up to that step.

    Example:
        >>> import partialbayes as pb
        >>> try:
        ...     raise pb.errors.TrainingInterrupted(12, 100, None)  # as fit does on Ctrl-C
        ... except pb.errors.TrainingInterrupted as error:
        ...     print(error)
        interrupted after 12 of 100 steps; the result so far is in `error.fit`
    """

    def __init__(self, step: int, num_steps: int, fit: Any) -> None:
        super().__init__(step, num_steps, fit)  # all arguments, to be picklable
        self.step = step
        self.fit = fit

    def __str__(self) -> str:
        """Describe how far training came and what is kept."""
        step, num_steps, _ = self.args
        return f"interrupted after {step} of {num_steps} steps; the result so far is in `error.fit`"


class StalledError(RuntimeError):
    """Tempering stopped before it reached the posterior.

    Attributes:
        temperatures: The temperatures reached.
        fit: The `Fit` of the previous stage; None if there was none.
    """

    def __init__(self, temperatures: Float[np.ndarray, " step"], remedy: str, fit: Any = None) -> None:
        super().__init__(temperatures, remedy, fit)  # all arguments, to be picklable
        self.temperatures = temperatures
        self.fit = fit

    def __str__(self) -> str:
        """Describe how far tempering came and the remedy."""
        temperatures, remedy, fit = self.args
        reached = temperatures[-1] if temperatures.size else np.nan
        kept = "" if fit is None else " The posterior of the previous stage is in `error.fit`."
        return (
            f"tempering stalled at temperature {reached:.3g} after {temperatures.size} steps; "
            f"{remedy}{kept}"
        )


class ShortfallWarning(UserWarning):
    """Tempering reached the posterior, but its particles have a low posterior density."""


class CollapseWarning(UserWarning):
    """Particles have lost their diversity, or a kernel no longer moves them."""


class DivergedWarning(UserWarning):
    """A run diverged; the best posterior before that is used."""


class NoMaximumWarning(UserWarning):
    """The objective has no maximum: a point estimate with a learned prior scale."""


class StalledWarning(UserWarning):
    """The second stage of some of the runs did not reach the posterior."""


class CheckpointWarning(UserWarning):
    """A run resumes from a checkpoint, but may not reproduce the same bits."""


class LogWarning(UserWarning):
    """A log could not be written; training continues."""


class DepartureWarning(UserWarning):
    """A pretrained network predicted better before training than after it."""


class FewParticlesWarning(UserWarning):
    """A kernel has too few particles for the number of random weights.

    The spread of the particles is then too small, even if the effective sample size is large.
    """


class MixingWarning(UserWarning):
    """A sampler has not converged, so its draws do not represent the posterior."""


class SteepPathWarning(UserWarning):
    """The steps along a path of targets were too long for the particles to follow."""


class CheckpointError(RuntimeError):
    """A file could not be written or read.

    Example:
        >>> import partialbayes as pb
        >>> try:
        ...     pb.load("nowhere")
        ... except pb.errors.CheckpointError:
        ...     print("there is no such folder")
        there is no such folder
    """


class TableError(ValueError):
    """A table is not valid."""


class TableWarning(UserWarning):
    """A table was changed: columns were left out, or cells had values never seen before."""

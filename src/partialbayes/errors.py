"""Every exception and warning of the library, in one place."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from partialbayes.types import Fit

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


class TrainingInterrupted(KeyboardInterrupt):
    """Ctrl-C ended a run, after the step at hand was finished and the checkpoint, if any, written.

    It is a `KeyboardInterrupt`, so that a loop of fits ends with it.

    Attributes:
        step: The steps done.
        fit: What `fit` (or `fit_many`) would have returned at that point.

    Example:
        >>> import partialbayes as pb
        >>> stopped = pb.errors.TrainingInterrupted(12, 100, None)
        >>> stopped.step  # except pb.errors.TrainingInterrupted as stopped: …
        12
    """

    def __init__(self, step: int, num_steps: int, fit: Any) -> None:
        super().__init__(step, num_steps, fit)  # whole, so that it can come from another process
        self.step = step
        self.fit = fit

    def __str__(self) -> str:
        """How far it came, and what is kept."""
        step, num_steps, _ = self.args
        return f"interrupted after {step} of {num_steps} steps; what was trained is in `fit`"


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


class DivergedWarning(UserWarning):
    """A run diverged, and the best posterior before that is used: of many runs, or of an estimator."""


class NoMaximumWarning(UserWarning):
    """What is to be maximized has no maximum: a point estimate with a learned scale of the prior."""


class StalledWarning(UserWarning):
    """The second stage of some of many runs did not get to the posterior."""


class CheckpointWarning(UserWarning):
    """A run goes on from a checkpoint, but perhaps not to the same bits."""


class LogWarning(UserWarning):
    """A log could not be written; training goes on."""


class DepartureWarning(UserWarning):
    """A pretrained network predicted better as it was than after training.

    Example:
        >>> import warnings
        >>> from partialbayes.errors import DepartureWarning
        >>> warnings.simplefilter("error", DepartureWarning)  # to stop at one
        >>> warnings.simplefilter("default", DepartureWarning)
    """


class FewParticlesWarning(UserWarning):
    """A kernel that needs more particles for so many random weights, or its spread falls short.

    Its effective sample size can look healthy all the same.

    Example:
        >>> import warnings
        >>> from partialbayes.errors import FewParticlesWarning
        >>> warnings.simplefilter("ignore", FewParticlesWarning)  # to go on all the same
        >>> warnings.simplefilter("default", FewParticlesWarning)
    """


class MixingWarning(UserWarning):
    """A sampler whose draws are not to be taken for draws of the posterior, and what to change.

    Example:
        >>> import warnings
        >>> from partialbayes.errors import MixingWarning
        >>> warnings.simplefilter("error", MixingWarning)  # to stop at one
        >>> warnings.simplefilter("default", MixingWarning)
    """


class SteepPathWarning(UserWarning):
    """A path of targets whose steps were too long for the particles to follow.

    Example:
        >>> import warnings
        >>> from partialbayes.errors import SteepPathWarning
        >>> warnings.simplefilter("error", SteepPathWarning)  # to stop at one
        >>> warnings.simplefilter("default", SteepPathWarning)
    """


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


class TableWarning(UserWarning):
    """What was done to a table that its owner should know: columns left out, cells never seen before."""

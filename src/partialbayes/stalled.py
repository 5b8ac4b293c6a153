"""A tempering path that did not get to the posterior: found in a report, and said with a remedy."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from jaxtyping import Float

from partialbayes.types import Report


class StalledError(RuntimeError):
    """The tempering did not get to the posterior.

    Attributes:
        temperatures: As far as it came.
        fit: The `Fit` of the stage before, where there was one.

    Example:
        >>> import numpy as np, partialbayes as pb
        >>> error = pb.StalledError(np.array([0.1, 0.2]), "Allow more steps.")
        >>> float(error.temperatures[-1])  # except pb.StalledError as error: …
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
        >>> from partialbayes.stalled import ShortfallWarning
        >>> warnings.simplefilter("error", ShortfallWarning)  # to stop at one
        >>> warnings.simplefilter("default", ShortfallWarning)
    """


_LARGEST_SHORTFALL = 1.0  # twice what a normal posterior has between its mode and a typical draw


def require_arrival(report: Report, fit: Any = None) -> None:
    """Raise where a tempered sampler (of any member) stopped short, warn where its moves lagged."""
    if "temperatures" not in report:
        return
    evidence = np.asarray(report["log_evidence"]).reshape(-1)
    steps = report["temperatures"].shape[-1]
    paths, ess, acceptance = (
        np.asarray(report[name]).reshape(-1, steps) for name in ("temperatures", "ess", "acceptance")
    )
    for run in np.flatnonzero(~np.isfinite(evidence)):
        taken = int(np.isfinite(paths[run]).sum())
        remedy = _remedy(ess[run, :taken], acceptance[run, :taken], steps)
        raise StalledError(paths[run, :taken], remedy, fit)
    shortfall = float(np.max(np.asarray(report["shortfall"])))
    if shortfall > _LARGEST_SHORTFALL:
        message = (
            f"tempering has not reached the posterior, and its evidence is too low: a particle of the "
            f"stage before has a log-density higher by {shortfall:.3g} for each random weight than the "
            "new ones on average, where a normal posterior has at most about 0.5. Use more particles, "
            "several times as many as there are random weights, or longer moves, such as "
            "kernel=adapted_hamiltonian(32, 12)."
        )
        warnings.warn(message, ShortfallWarning, stacklevel=3)  # the line that called fit or refine


def _remedy(
    ess: Float[np.ndarray, " step"], acceptance: Float[np.ndarray, " step"], max_steps: int
) -> str:
    if not np.isfinite(ess).all():
        return (
            "the log-likelihood became NaN or infinite there. Check the data and ψ, or use a prior "
            "whose draws give finite log-likelihoods."
        )
    if acceptance[:-1].size and np.nanmedian(acceptance[:-1]) < 0.01:
        return (
            "hardly any proposal is accepted. Use a kernel with smaller steps or one that adapts "
            "itself (adapted_metropolis, adapted_hamiltonian)."
        )
    return (
        f"raise max_steps above {max_steps}, lower target_ess, or use more particles. If the steps "
        "have become tiny, the likelihood is far from the prior: give it more noise or the prior "
        "more scale."
    )

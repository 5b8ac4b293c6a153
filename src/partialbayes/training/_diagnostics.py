"""What a run's record says about its health, and what to change."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import numpy as np
from jaxtyping import Array, Float, Int

from partialbayes.errors import CollapseWarning
from partialbayes.types import Particles

_PATIENCE = 50  # steps in a row before a collapse is worth a warning
_SMALLEST_SHARE = 0.01  # of the particles that carry weight
_SMALLEST_ACCEPTANCE = 0.02
_FOR_ESS = (
    "a larger variance of the kernel, smaller batches, more particles, or fewer stochastic weights"
)
_FOR_ACCEPTANCE = (
    "a smaller variance (or step size) of the kernel, or adapted_metropolis(), which finds its own"
)

Record = Mapping[str, Float[np.ndarray, " step"] | Float[Array, " step"]]


def warn_of_collapse(record: Record, num_steps: int, particles: Particles) -> bool:
    """Warn where the effective sample size or the acceptance has stayed collapsed.

    Args:
        record: The infos of all steps, by name.
        num_steps: How many of them have been filled in.
        particles: Of the posterior; only how many they are is asked for.

    Returns:
        Whether there was anything to warn of, so that a run warns once.

    Example:
        >>> import jax.numpy as jnp, numpy as np, partialbayes as pb
        >>> from partialbayes.training._diagnostics import warn_of_collapse
        >>> particles = pb.types.Particles(jnp.zeros((1000, 2)), jnp.zeros(1000))
        >>> warn_of_collapse({"ess": np.full(100, 500.0)}, 100, particles)
        False
    """
    if num_steps < _PATIENCE:
        return False

    def stayed_below(name: str, bound: float) -> bool:
        if name not in record:
            return False
        recent = np.asarray(record[name])[num_steps - _PATIENCE : num_steps]
        return bool(np.all(~(recent >= bound)))

    num_particles = particles.log_weights.shape[-1]
    fewest = max(1.5, _SMALLEST_SHARE * num_particles)
    messages = []
    if num_particles > 1 and stayed_below("ess", fewest):
        messages.append(
            f"the effective sample size has stayed below {fewest:g} of {num_particles} particles for "
            f"{_PATIENCE} steps, so that a few of them carry all the weight: use {_FOR_ESS}."
        )
    if stayed_below("acceptance", _SMALLEST_ACCEPTANCE):
        messages.append(
            f"the kernel's acceptance has stayed below {_SMALLEST_ACCEPTANCE:g} for {_PATIENCE} steps, "
            f"so that the particles hardly move: use {_FOR_ACCEPTANCE}."
        )
    for message in messages:
        warnings.warn(message, CollapseWarning, stacklevel=5)  # the line that called fit
    return bool(messages)


def findings(
    record: Record,
    num_particles: int,
    evaluated: Int[np.ndarray, " evaluation"],
    validation_nlpd: Float[np.ndarray, " score"],
) -> list[str]:
    """What a finished run's record says, in words, and what to try; empty if nothing stands out.

    Args:
        record: The infos of all steps, by name.
        num_particles: J.
        evaluated: The steps, counted from 1, after which validation was scored.
        validation_nlpd: The scores; empty without validation data.

    Example:
        >>> import numpy as np
        >>> from partialbayes.training._diagnostics import findings
        >>> findings({"ess": np.array([90.0, 4.0, 5.0])}, 100, np.zeros(0, int), np.zeros(0))[0][:33]
        'The ESS fell below 10 % at step 2'
    """
    found = []
    ess = np.asarray(record.get("ess", np.zeros(0)))
    below = ~(ess >= 0.1 * num_particles)
    if num_particles > 1 and below.any():
        found.append(
            f"The ESS fell below 10 % at step {int(np.argmax(below)) + 1}, and was below it in "
            f"{100 * below.mean():.0f} % of the steps (lowest {np.nanmin(ess):.1f} of {num_particles}): "
            f"a few particles carry most of the weight. If it is so most of the time, try {_FOR_ESS}."
        )
    acceptance = np.asarray(record.get("acceptance", np.zeros(0)))
    if len(acceptance) and not np.median(acceptance) >= 0.1:
        found.append(
            f"Half of the steps accepted less than {100 * np.median(acceptance):.0f} % of the kernel's "
            f"proposals: the particles hardly move. Try {_FOR_ACCEPTANCE}."
        )
    ancestors = np.asarray(record.get("ancestors", np.zeros(0)))
    if num_particles > 1 and len(ancestors) and not np.median(ancestors) >= 0.1 * num_particles:
        found.append(
            f"Half of the resamplings kept {np.median(ancestors):.0f} of {num_particles} particles or "
            "fewer: the cloud is made of copies of a few. Try when_ess_below(0.5, ...) as the "
            f"resampling, or {_FOR_ESS}."
        )
    scores = np.asarray(validation_nlpd)
    if len(scores) >= 5 and np.isfinite(scores).any():
        best = int(np.nanargmin(scores))
        if best == len(scores) - 1:
            found.append("The validation NLPD was still falling at the end: more epochs may help.")
        elif best < len(scores) // 3 and scores[-1] > scores[best] + 0.05:
            found.append(
                f"The validation NLPD was lowest at step {int(evaluated[best])} and rose by "
                f"{scores[-1] - scores[best]:.2f} after it: later steps fitted noise. The best was "
                "kept; fewer epochs, a smaller learning rate or a learned noise variance may help."
            )
    return found


def remedy(record: Record, step: int) -> str:
    """What to try when the loss of this step (counted from 0) is not finite."""
    if "smallest_factor" in record:
        factor = float(np.asarray(record["smallest_factor"])[step])
        if factor <= 0.0:
            return (
                f"The constant c of the Poisson estimator is too small: (N/M) log p(y_S | φ) + log c "
                f"fell to {factor:.4g}, and weights must be positive. Raise log_c by more than "
                f"{-factor:.4g}, or use ohsmc."
            )
    return (
        "Try a smaller learning rate, standardized inputs and targets, a larger noise variance, or "
        "more particles."
    )

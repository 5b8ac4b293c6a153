"""Judge the health of a run by its record, and suggest what to change."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from jaxtyping import Array, Float, Int

from partialbayes._engine.departure import worse
from partialbayes._engine.sources import Source
from partialbayes._utils.warn import warn
from partialbayes.errors import CollapseWarning, SteepPathWarning
from partialbayes.results import Departure
from partialbayes.types import Algorithm, Particles

_PATIENCE = 50  # steps in a row before a collapse is worth a warning
_SMALLEST_SHARE = 0.01  # of the number of particles
_SMALLEST_ACCEPTANCE = 0.02
_FALLING = 0.02  # nats per row between two quarters of a run
_FAR = 0.1  # total variation, or predictive standard deviations
_FOR_ESS = (
    "a larger variance of the kernel, smaller batches, more particles, or fewer stochastic weights"
)
_FOR_ACCEPTANCE = (
    "a smaller variance (or step size) of the kernel, or adapted_metropolis(), which finds its own"
)

Record = Mapping[str, Float[np.ndarray, " step"] | Float[Array, " step"]]


def warn_of_collapse(record: Record, num_steps: int, particles: Particles) -> bool:
    """Warn if the effective sample size or the acceptance has stayed collapsed.

    Args:
        record: The infos of all steps, by name.
        num_steps: Number of steps that have been recorded.
        particles: The particles of the posterior; only their number is used.

    Returns:
        Whether there was a warning, so that a run warns once.
    """
    num_particles = particles.log_weights.shape[-1]
    if _warn_of_steep_path(record, num_steps, num_particles):
        return True
    if num_steps < _PATIENCE:
        return False

    def stayed_below(name: str, bound: float) -> bool:
        if name not in record:
            return False
        recent = np.asarray(record[name])[num_steps - _PATIENCE : num_steps]
        return bool(np.all(~(recent >= bound)))

    fewest = max(1.5, _SMALLEST_SHARE * num_particles)
    messages = []
    if num_particles > 1 and stayed_below("ess", fewest):
        messages.append(
            f"the effective sample size has stayed below {fewest:g} of {num_particles} particles for "
            f"{_PATIENCE} steps: a few of them have all the weight. Use {_FOR_ESS}."
        )
    if stayed_below("acceptance", _SMALLEST_ACCEPTANCE):
        messages.append(
            f"the kernel's acceptance has stayed below {_SMALLEST_ACCEPTANCE:g} for {_PATIENCE} steps, "
            f"so the particles hardly move. Use {_FOR_ACCEPTANCE}."
        )
    for message in messages:
        warn(message, CollapseWarning)
    return bool(messages)


def require_rows(algorithm: Algorithm, source: Source) -> None:
    """Raise an error for batches if a method needs all rows; warn of one batch if it needs several."""
    if algorithm.finish is not None and source.whole is None:
        raise ValueError("data: a second stage needs all the data at once; pass arrays, not a stream.")
    if algorithm.wants == "all rows" and source.batches > 1:
        raise ValueError(
            "batch_size: this method needs all rows at every step; with batches its posterior would be "
            "that of the last batch only. Leave batch_size at None, or use sgsmc, which is for batches."
        )
    if algorithm.wants == "batches" and source.batches == 1:
        message = (
            "all rows are in one batch, and the kernel forgets as much as a batch adds: each step then "
            "weights draws from the prior, and few of them count. Use batches of a tenth of the rows, "
            "or smc, which is for all rows at once."
        )
        warn(message, CollapseWarning)


_STEEP = 0.05  # of the number of particles, at the steepest part of a path
_FEWEST = 5  # steps before a path is called steep


def _warn_of_steep_path(record: Record, num_steps: int, num_particles: int) -> bool:
    if "min_ess" not in record or num_steps < _FEWEST:
        return False
    recent = np.asarray(record["min_ess"])[max(0, num_steps - _PATIENCE) : num_steps]
    if np.any(recent >= _STEEP * num_particles):
        return False
    message = (
        f"the path from the prior is too steep: somewhere on it the effective sample size fell to "
        f"{np.nanmedian(recent):.3g} of {num_particles} particles in each of the last {len(recent)} "
        "steps, so the posterior consists of few of them and the evidence is noise. Leave schedule "
        "at None, which adds as many targets as needed, or use a finer schedule or more particles."
    )
    warn(message, SteepPathWarning)
    return True


def findings(
    record: Record,
    num_particles: int,
    evaluated: Int[np.ndarray, " evaluation"],
    validation_nlpd: Float[np.ndarray, " score"],
    departure: Departure | None = None,
) -> list[str]:
    """Describe what stands out in the record of a finished run, and what to try.

    Args:
        record: The infos of all steps, by name.
        num_particles: J.
        evaluated: The steps, counted from 1, after which validation was scored.
        validation_nlpd: The scores; empty without validation data.
        departure: The comparison with a pretrained network.

    Returns:
        One message per finding; empty if nothing stands out.
    """
    found = []
    if departure is not None and departure.is_worse:
        message = worse(departure)
        found.append(message[0].upper() + message[1:])
    elif departure is not None and departure.distance > _FAR:
        found.append(
            f"The predictions are far from those of the pretrained network (distance "
            f"{departure.distance:.2f}), though no worse: check whether that is intended."
        )
    scores = np.asarray(validation_nlpd)
    # Where other rows judge the run, a falling loss on its own rows says nothing.
    has_scores = bool(np.isfinite(scores).any())
    if not has_scores and (drop := falling(record.get("loss", np.zeros(0)))) > 0.0:
        found.append(
            f"The loss was still falling at the end, by {drop:.2g} per row from the third to the last "
            "quarter of the run: train for more epochs."
        )
    ess = _end_of(record, "ess")
    if num_particles > 1 and len(ess) and not np.median(ess) >= 0.1 * num_particles:
        before = np.asarray(record["ess"])[: -len(ess)]
        has_fallen = len(before) > len(ess) and np.median(before) >= 0.1 * num_particles
        found.append(
            f"In the last quarter of the run the median ESS was {np.median(ess):.1f} of {num_particles}"
            f"{', and it was higher before' if has_fallen else ''}: a few particles have most of the "
            f"weight. Try {_FOR_ESS}."
        )
    acceptance = _end_of(record, "acceptance")
    if len(acceptance) and not np.median(acceptance) >= 0.1:
        found.append(
            f"Half of the last steps accepted less than {100 * np.median(acceptance):.0f} % of the "
            f"kernel's proposals: the particles hardly move. Try {_FOR_ACCEPTANCE}."
        )
    ancestors = _end_of(record, "ancestors")
    if num_particles > 1 and len(ancestors) and not np.median(ancestors) >= 0.1 * num_particles:
        found.append(
            f"Half of the last resamplings kept {np.median(ancestors):.0f} of {num_particles} particles "
            "or fewer: the cloud consists of copies of a few. Try when_ess_below(0.5, ...) as the "
            f"resampling, or {_FOR_ESS}."
        )
    if len(scores) >= 5 and has_scores:
        best = int(np.nanargmin(scores))
        # A tiny change at every evaluation is no trend.
        if best == len(scores) - 1 and scores[-1 - len(scores) // 4] > scores[-1] + 0.01:
            found.append("The validation NLPD was still falling at the end: more epochs may help.")
        elif best < len(scores) // 3 and scores[-1] > scores[best] + 0.3:
            found.append(
                f"The validation NLPD was lowest at step {int(evaluated[best])} and rose by "
                f"{scores[-1] - scores[best]:.2f} after it: later steps fitted noise. The best was "
                "kept; fewer epochs, a smaller learning rate or a learned noise variance may help."
            )
    return found


def falling(loss: Float[np.ndarray, " step"] | Float[Array, " step"]) -> float:
    """Return the fall of the loss from the third quarter of a run to the last; 0 if it is noise."""
    values = np.asarray(loss, float)
    quarter = len(values) // 4
    if quarter < 5:
        return 0.0
    third, last = values[-2 * quarter : -quarter], values[-quarter:]
    drop = third.mean() - last.mean()
    noise = np.sqrt((third.var() + last.var()) / quarter)
    return float(drop) if drop > max(4.0 * noise, _FALLING) else 0.0


def _end_of(record: Record, name: str) -> Float[np.ndarray, " last"]:
    """Return the last quarter of a curve; the start of a run, from the prior, does not count."""
    values = np.asarray(record.get(name, np.zeros(0)))
    return values[-max(1, len(values) // 4) :] if len(values) else values


def remedy(record: Record, step: int) -> str:
    """Suggest what to try if the loss of this step (counted from 0) is not finite."""
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

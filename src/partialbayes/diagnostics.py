"""What a run's record says about its health, and what to change."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import numpy as np
from jaxtyping import Array, Float

from partialbayes.types import Particles

_PATIENCE = 50  # steps in a row before a collapse is worth a warning
_SMALLEST_SHARE = 0.01  # of the particles that carry weight
_SMALLEST_ACCEPTANCE = 0.02

Record = Mapping[str, Float[np.ndarray, " step"] | Float[Array, " step"]]


class CollapseWarning(UserWarning):
    """Particles, or moves, that have stopped doing anything."""


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
        >>> from partialbayes.diagnostics import warn_of_collapse
        >>> particles = pb.Particles(jnp.zeros((1000, 2)), jnp.zeros(1000))
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
            f"{_PATIENCE} steps, so that a few of them carry all the weight: use a larger variance of "
            "the kernel, smaller batches, more particles, or fewer stochastic weights."
        )
    if stayed_below("acceptance", _SMALLEST_ACCEPTANCE):
        messages.append(
            f"the kernel's acceptance has stayed below {_SMALLEST_ACCEPTANCE:g} for {_PATIENCE} steps, "
            "so that the particles hardly move: use a smaller variance (or step size) of the kernel, "
            "or adapted_metropolis(), which finds its own."
        )
    for message in messages:
        warnings.warn(message, CollapseWarning, stacklevel=5)  # the line that called fit
    return bool(messages)


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
        "Try a smaller learning rate, standardised inputs and targets, a larger noise variance, or "
        "more particles."
    )

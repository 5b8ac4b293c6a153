"""Plot the history of a training run."""

from __future__ import annotations

from typing import Any

import numpy as np

from partialbayes.plots import _style as style
from partialbayes.results import History

_TITLES = {
    "loss": "Loss per example",
    "ess": "Effective sample size",
    "acceptance": "Acceptance of the kernel",
    "ancestors": "Distinct ancestors",
    "log_evidence_increment": "Evidence of each batch (log)",
}


def trace(history: History, name: str, ax: Any = None) -> Any:
    """Plot a recorded value against the step, with a running median if there are many steps.

    Args:
        history: The history of a `Fit`.
        name: Name of the value: ``"loss"``, ``"ess"``, ``"acceptance"``, …
        ax: Matplotlib axes to draw on; a new figure by default.

    Returns:
        The Matplotlib axes.

    Example:
        >>> import numpy as np, partialbayes as pb
        >>> history = pb.results.History({"loss": np.ones(9)}, np.zeros(0, int), np.zeros(0), 9)
        >>> ax = pb.plots.trace(history, "loss")
    """
    if name not in history.metrics:
        recorded = ", ".join(sorted(history.metrics))
        raise ValueError(f"name is {name!r}, but this run recorded only {recorded}; choose among these.")
    ax = style.axes(ax)
    values = np.asarray(history.metrics[name])
    steps = np.arange(1, len(values) + 1)
    width = len(values) // 50
    is_long = width > 1
    color = style.SKY if is_long else style.BLUE
    ax.plot(steps, values, color=color, linewidth=0.8, alpha=0.6 if is_long else 1.0)
    if is_long:
        windows = np.lib.stride_tricks.sliding_window_view(values, width)
        middle = np.arange(len(windows)) + 1 + width // 2
        ax.plot(middle, np.median(windows, axis=1), color=style.BLUE, linewidth=1.6)
    ax.set(xlabel="step", title=_TITLES.get(name, name.replace("_", " ")))
    if name in ("ess", "ancestors", "acceptance"):
        ax.set_ylim(bottom=0.0)
    return ax


def validation(history: History, ax: Any = None) -> Any:
    """Plot the validation NLPD against the step, and mark the step that was kept.

    Args:
        history: The history of a `Fit` with validation data.
        ax: Matplotlib axes to draw on; a new figure by default.

    Returns:
        The Matplotlib axes.

    Example:
        >>> import numpy as np, partialbayes as pb
        >>> scores = np.array([2.0, 1.0, 1.5])
        >>> history = pb.results.History({"loss": np.ones(9)}, np.array([3, 6, 9]), scores, best_step=6)
        >>> ax = pb.plots.validation(history)
    """
    if len(history.validation_nlpd) == 0:
        raise ValueError("history has no validation scores; pass validation= to fit.")
    ax = style.axes(ax)
    scores, steps = np.asarray(history.validation_nlpd), np.asarray(history.eval_steps)
    ax.plot(steps, scores, color=style.BLUE, linewidth=1.4)
    best = steps == history.best_step
    ax.plot(steps[best], scores[best], "o", color=style.RED, label=f"kept, step {history.best_step}")
    ax.set(xlabel="step", title="Validation NLPD")
    # The first scores are often extreme and would compress the rest.
    finite = scores[np.isfinite(scores)]
    if len(finite) > 10:
        low, high = finite.min(), np.quantile(finite[len(finite) // 10 :], 0.98)
        ax.set_ylim(low - 0.08 * (high - low + 1e-6), high + 0.15 * (high - low + 1e-6))
    style.legend(ax)
    return ax


def ancestry(history: History, ax: Any = None) -> Any:
    """Plot the number of distinct ancestors at each step, and the effective sample size.

    Few ancestors mean that the cloud consists of copies of a few particles.

    Args:
        history: The history of a `Fit` by an algorithm that resamples.
        ax: Matplotlib axes to draw on; a new figure by default.

    Returns:
        The Matplotlib axes.

    Example:
        >>> import numpy as np, partialbayes as pb
        >>> steps = {"ancestors": np.full(9, 5.0), "ess": np.full(9, 6.0)}
        >>> ax = pb.plots.ancestry(pb.results.History(steps, np.zeros(0, int), np.zeros(0), 9))
    """
    if "ancestors" not in history.metrics:
        raise ValueError(
            "history has no ancestors, because the algorithm does not resample; plot trace instead."
        )
    ax = style.axes(ax)
    labels = {"ess": "effective sample size", "ancestors": "distinct ancestors"}
    for (name, label), color in zip(labels.items(), (style.SKY, style.BLUE), strict=True):
        if name in history.metrics:
            values = history.metrics[name]
            ax.plot(np.arange(1, len(values) + 1), values, color=color, linewidth=1.1, label=label)
    ax.set(xlabel="step", title="Ancestry")
    ax.set_ylim(bottom=0.0)
    style.legend(ax)
    return ax


def curves(history: History) -> list[str]:
    """Return the names of the recorded values to plot first."""
    names: list[str] = [name for name in ("loss", "ess", "acceptance") if name in history.metrics]
    if "acceptance" in names and np.all(history.metrics["acceptance"] == 1.0):
        names.remove("acceptance")  # the kernel rejects nothing
    return names


def training(history: History, ax: Any = None) -> list[Any]:
    """Plot the main curves of a run: loss, validation NLPD, effective sample size, acceptance.

    Args:
        history: The history of a `Fit`; values it lacks are left out.
        ax: Matplotlib axes, one per curve; a new figure by default.

    Returns:
        The axes, one per curve.

    Example:
        >>> import numpy as np, partialbayes as pb
        >>> history = pb.results.History({"loss": np.ones(9)}, np.zeros(0, int), np.zeros(0), 9)
        >>> len(pb.plots.training(history))
        1
    """
    has_validation = len(history.validation_nlpd) > 0
    names = curves(history)
    places = style.panels(ax, len(names) + has_validation)
    for name, place in zip(names, places, strict=False):
        trace(history, name, place)
    if has_validation:
        validation(history, places[-1])
    return places

"""Plot the calibration of predictions."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from partialbayes import metrics
from partialbayes.plots import _style as style
from partialbayes.prediction._predictive import Predictive


def reliability(probabilities: Any, labels: Any, bins: int = 15, ax: Any = None) -> Any:
    """Plot a reliability diagram: the accuracy of predictions of each confidence.

    Args:
        probabilities: Probabilities of class one, or of each class.
        labels: Integer class labels from 0.
        bins: Number of bins of equal width in [0, 1].
        ax: Matplotlib axes to draw on; a new figure by default.

    Returns:
        The Matplotlib axes.

    Example:
        >>> import numpy as np, partialbayes as pb
        >>> ax = pb.plots.reliability(np.array([0.9, 0.8, 0.3]), np.array([1, 0, 0]))
    """
    probabilities, labels = np.asarray(probabilities), np.asarray(labels)
    table = metrics.reliability(probabilities, labels, bins)
    error = metrics.expected_calibration_error(probabilities, labels, bins)
    ax = style.axes(ax, size=(4.0, 3.8))
    _diagonal(ax)
    confidence, accuracy, share = (np.asarray(part) for part in table)
    used = share > 0
    edges = np.arange(bins) / bins
    ax.bar(edges[used], accuracy[used], 1 / bins, align="edge", color=style.SKY, alpha=0.5, linewidth=0)
    area = 12.0 + 120.0 * share[used]
    ax.scatter(confidence[used], accuracy[used], s=area, color=style.BLUE, zorder=3)
    lowest = 0.95 * min(confidence[used].min(), 1 - 1 / bins)
    ax.set(xlabel="confidence; area: share of examples", ylabel="accuracy")
    ax.set(xlim=(lowest, 1.02), ylim=(0, 1.02), title=f"Reliability, ECE {float(error):.3f}")
    return ax


def risk_coverage(uncertainty: Any, losses: Any, risk: float | None = None, ax: Any = None) -> Any:
    """Plot the risk of the answers against the fraction of inputs that are answered.

    Args:
        uncertainty: One number per input.
        losses: Loss of each answer: 1 for a wrong class, or a squared error, for example.
        risk: A target risk, at which to mark the fraction that can be answered.
        ax: Matplotlib axes to draw on; a new figure by default.

    Returns:
        The Matplotlib axes.

    Example:
        >>> import numpy as np, partialbayes as pb
        >>> wrong = np.array([0.0, 1.0, 0.0, 0.0])
        >>> ax = pb.plots.risk_coverage(np.array([0.1, 0.9, 0.2, 0.3]), wrong, risk=0.1)
    """
    curve = metrics.risk_coverage(np.asarray(uncertainty), np.asarray(losses))
    area = metrics.aurc(np.asarray(uncertainty), np.asarray(losses))
    ax = style.axes(ax, size=(4.6, 3.4))
    ax.plot(curve.coverage, curve.risk, color=style.BLUE)
    if risk is not None:
        rule = metrics.selective(np.asarray(uncertainty), np.asarray(losses), risk)
        ax.axhline(risk, color=style.SKY, linewidth=1.0)
        ax.plot([rule.coverage], [rule.risk], "o", color=style.BLUE)
        label = f"answers {100 * rule.coverage:.0f} %"
        ax.annotate(label, (rule.coverage, rule.risk), ha="right", va="bottom")
    ax.set(xlabel="share answered", ylabel="risk", xlim=(0, 1.02))
    ax.set_title(f"Risk and coverage, AURC {float(area):.3g}")
    return ax


def coverage(predictive: Predictive, targets: Any, ax: Any = None) -> Any:
    """Plot the fraction of targets inside central intervals against the nominal coverage.

    Intervals of counts cannot have every coverage, so a count at the end of an interval counts by the
    part of its probability inside.

    Args:
        predictive: The result of `predict`, for numeric targets.
        targets: Observed targets.
        ax: Matplotlib axes to draw on; a new figure by default.

    Returns:
        The Matplotlib axes.

    Example:
        >>> import partialbayes as pb  # predictive and x as in the example of predict
        >>> ax = pb.plots.coverage(predictive, x)
    """
    low, high = _ranks(predictive, targets)
    nominal = np.linspace(0.0, 1.0, 101)
    observed = np.array([_share_within(low, high, 0.5 - c / 2, 0.5 + c / 2).mean() for c in nominal])
    spread = 1.96 * np.sqrt(nominal * (1.0 - nominal) / len(low))
    ax = style.axes(ax, size=(4.0, 3.8))
    band = {"color": style.SOFT, "alpha": 0.3, "linewidth": 0, "label": "95 % range if calibrated"}
    ax.fill_between(nominal, nominal - spread, nominal + spread, **band)
    _diagonal(ax)
    ax.plot(nominal, observed, color=style.BLUE, linewidth=1.6, label="observed")
    ax.set(xlabel="nominal coverage", ylabel="observed coverage", xlim=(0, 1), ylim=(0, 1.02))
    ax.set_title("Coverage of central intervals")
    style.legend(ax, loc="upper left")
    return ax


def pit(predictive: Predictive, targets: Any, bins: int = 10, ax: Any = None) -> Any:
    """Plot a histogram of F(y): flat if calibrated, a hump if too wide, a bowl if too narrow.

    A count is spread evenly from F(y − 1) to F(y) (Czado, Gneiting and Held 2009).

    Args:
        predictive: The result of `predict`, for numeric targets.
        targets: Observed targets.
        bins: Number of bins of the histogram.
        ax: Matplotlib axes to draw on; a new figure by default.

    Returns:
        The Matplotlib axes.

    Example:
        >>> import partialbayes as pb  # predictive and x as in the example of predict
        >>> ax = pb.plots.pit(predictive, x)
    """
    low, high = _ranks(predictive, targets)
    ax = style.axes(ax)
    expected = len(low) / bins
    edges = np.linspace(0, 1, bins + 1)
    if predictive.model.likelihood.kind == "count":
        parts = [_share_within(low, high, *ends).sum() for ends in itertools.pairwise(edges)]
        values, weights = edges[:-1], np.array(parts)
    else:
        values, weights = high, np.ones_like(high)
    ax.hist(values, edges, weights=weights, color=style.SKY, edgecolor="white", linewidth=1.0)
    ax.axhline(expected, color=style.INK, linewidth=1.0, linestyle="--")
    ax.set(xlabel="F(y); dashed: if calibrated", ylabel="examples", xlim=(0, 1))
    ax.set_title("Probability integral transform")
    return ax


def _ranks(predictive: Predictive, targets: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return F just below and at each target; the two differ only for counts."""
    targets = np.asarray(targets)
    high = np.ravel(predictive.cdf(targets))
    if predictive.model.likelihood.kind != "count":
        return high, high
    return np.ravel(predictive.cdf(targets - 1)), high


def _share_within(low: np.ndarray, high: np.ndarray, begin: float, end: float) -> np.ndarray:
    """Compute the fraction of each interval from ``low`` to ``high`` between ``begin`` and ``end``."""
    part = np.clip(np.minimum(high, end) - np.maximum(low, begin), 0.0, None)
    within = (begin <= high) & (high <= end)
    return np.where(high > low, part / np.where(high > low, high - low, 1.0), within)


def _diagonal(ax: Any) -> None:
    ax.plot([0, 1], [0, 1], color=style.INK, linewidth=0.9, linestyle="--")

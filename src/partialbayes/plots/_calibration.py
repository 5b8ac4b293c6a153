"""Whether predictions can be taken at their word."""

from __future__ import annotations

from typing import Any

import numpy as np

from partialbayes import metrics
from partialbayes.plots import _style as style
from partialbayes.prediction._predictive import Predictive


def reliability(probabilities: Any, labels: Any, bins: int = 15, ax: Any = None) -> Any:
    """Reliability diagram: how often predictions of each confidence were right.

    Args:
        probabilities: Of class one, or of each class.
        labels: Whole numbers from 0.
        bins: How many equal parts [0, 1] is cut into.
        ax: Matplotlib axes to draw on.

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


def coverage(predictive: Predictive, targets: Any, ax: Any = None) -> Any:
    """Share of targets inside central intervals, against the share that should be.

    Args:
        predictive: From `predict`, of numbers.
        targets: What was observed.
        ax: Matplotlib axes to draw on.

    Example:
        >>> import jax, jax.numpy as jnp, partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 5, 1]), "layers/0/*", pb.gaussian())
        >>> x = jnp.linspace(-1.0, 1.0, 8)[:, None]
        >>> algorithm = pb.ohsmc(model, num_particles=10)
        >>> posterior = algorithm.posterior(algorithm.init(jax.random.key(0)))  # before training
        >>> ax = pb.plots.coverage(pb.predict(model, posterior, x), x)
    """
    values = np.ravel(metrics.pit(predictive, np.asarray(targets)))
    # A target is inside the central interval of coverage c just where |2 F(y) − 1| ≤ c.
    inside = np.sort(np.abs(2.0 * values - 1.0))
    nominal = np.linspace(0.0, 1.0, 101)
    observed = np.searchsorted(inside, nominal, side="right") / len(inside)
    spread = 1.96 * np.sqrt(nominal * (1.0 - nominal) / len(inside))
    ax = style.axes(ax, size=(4.0, 3.8))
    ax.fill_between(
        nominal,
        nominal - spread,
        nominal + spread,
        color=style.SOFT,
        alpha=0.3,
        linewidth=0,
        label="where chance alone would put it",
    )
    _diagonal(ax)
    ax.plot(nominal, observed, color=style.BLUE, linewidth=1.6, label="observed")
    ax.set(xlabel="nominal coverage", ylabel="observed coverage", xlim=(0, 1), ylim=(0, 1.02))
    ax.set_title("Coverage of central intervals")
    style.legend(ax, loc="upper left")
    return ax


def pit(predictive: Predictive, targets: Any, bins: int = 10, ax: Any = None) -> Any:
    """Histogram of F(y): flat if calibrated, a hump if too wide, a bowl if too narrow.

    Args:
        predictive: From `predict`, of numbers.
        targets: What was observed.
        bins: Of the histogram.
        ax: Matplotlib axes to draw on.

    Example:
        >>> import jax, jax.numpy as jnp, partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 5, 1]), "layers/0/*", pb.gaussian())
        >>> x = jnp.linspace(-1.0, 1.0, 8)[:, None]
        >>> algorithm = pb.ohsmc(model, num_particles=10)
        >>> posterior = algorithm.posterior(algorithm.init(jax.random.key(0)))  # before training
        >>> ax = pb.plots.pit(pb.predict(model, posterior, x), x)
    """
    values = np.ravel(metrics.pit(predictive, np.asarray(targets)))
    ax = style.axes(ax)
    expected = len(values) / bins
    ax.hist(values, np.linspace(0, 1, bins + 1), color=style.SKY, edgecolor="white", linewidth=1.0)
    ax.axhline(expected, color=style.INK, linewidth=1.0, linestyle="--")
    ax.set(xlabel="F(y); dashed: if calibrated", ylabel="examples", xlim=(0, 1))
    ax.set_title("Probability integral transform")
    return ax


def _diagonal(ax: Any) -> None:
    ax.plot([0, 1], [0, 1], color=style.INK, linewidth=0.9, linestyle="--")

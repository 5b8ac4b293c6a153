"""Plot the comparison of random subsets."""

from __future__ import annotations

from typing import Any

from partialbayes.analysis._advise import SubsetComparison
from partialbayes.plots import _style as style


def advice(found: SubsetComparison, ax: Any = None) -> Any:
    """Plot the validation NLPD of every candidate with its standard error, best first.

    Args:
        found: The result of `advise`.
        ax: Matplotlib axes to draw on; a new figure by default.

    Returns:
        The Matplotlib axes.

    Example:
        >>> import partialbayes as pb
        >>> nan, biases = float("nan"), pb.subsets.biases()
        >>> rows = [
        ...     pb.analysis.Candidate("biases", biases, 31, 1.2, 0.1, 0.0, 0.0, -99.0, 0.5, 3.0),
        ...     pb.analysis.Candidate("none (MAP)", None, 0, 1.4, 0.1, 0.2, 0.05, nan, nan, 1.0),
        ... ]
        >>> ax = pb.plots.advice(pb.analysis.SubsetComparison(tuple(rows), rows[0]))
    """
    ax = style.axes(ax, size=(5.6, 1.3 + 0.36 * len(found.rows)))
    for place, row in enumerate(found.rows):
        if row.name == found.recommended.name:
            color = style.RED
        else:
            color = style.SOFT if row.subset is None else style.BLUE
        bar = {"color": color, "fmt": "o", "markersize": 6, "elinewidth": 1.8}
        ax.errorbar(row.nlpd, place, xerr=row.standard_error, **bar)
    best = next(row for row in found.rows if row.subset is not None)
    ax.axvline(best.nlpd, color=style.SOFT, linewidth=1.0, linestyle="--", zorder=0)
    ax.set_yticks(range(len(found.rows)), [f"{row.name}, d = {row.dim}" for row in found.rows])
    ax.set_ylim(len(found.rows) - 0.5, -0.5)
    ax.grid(visible=False, axis="y")
    ax.set(xlabel="held-out NLPD ± standard error", title=f"Recommended: {found.recommended.name}")
    ax.title.set_color(style.RED)
    return ax

"""Define the common style of plots."""

from __future__ import annotations

from typing import Any

import numpy as np

# Okabe and Ito's palette without its yellow, which is too faint on white.
BLUE, ORANGE, GREEN = "#0072B2", "#E69F00", "#009E73"
RED, PURPLE, SKY = "#D55E00", "#CC79A7", "#56B4E9"
COLORS = (BLUE, ORANGE, GREEN, PURPLE, RED, SKY)
INK, SOFT = "#22303c", "#9aa5ad"
MARKERS = "o^sDvP"  # classes differ by more than color


def evenly(total: int, most: int) -> np.ndarray:
    """Choose at most ``most`` of the indices below ``total``, evenly spaced."""
    return np.unique(np.linspace(0, total - 1, min(most, total)).round().astype(int))


def axes(ax: Any, rows: int = 1, columns: int = 1, size: tuple[float, float] = (4.6, 3.4)) -> Any:
    """Return styled axes, those given or of a new figure; an array if there are several."""
    if ax is None:
        from matplotlib import pyplot

        figure_size = (size[0] * columns, size[1] * rows)
        _, ax = pyplot.subplots(rows, columns, figsize=figure_size, layout="constrained", squeeze=False)
        ax = ax[0, 0] if rows == columns == 1 else ax
    for one in np.ravel(np.asarray(ax, dtype=object)):
        style_axes(one)
    return ax


def style_axes(ax: Any) -> Any:
    """Apply the common style to axes."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(SOFT)
    ax.grid(color="#e6eaed", linewidth=0.7)
    ax.set_axisbelow(True)
    ax.tick_params(colors=INK, labelsize=9, length=3, color=SOFT)
    for text in (ax.xaxis.label, ax.yaxis.label, ax.title):
        text.set(color=INK, fontsize=10)
    return ax


def legend(ax: Any, **settings: Any) -> None:
    """Add a legend without a frame, if there is anything to label."""
    handles, _ = ax.get_legend_handles_labels()
    if handles:
        ax.legend(frameon=False, fontsize=8.5, labelcolor=INK, **settings)


def panels(ax: Any, number: int, size: tuple[float, float] = (3.6, 3.0)) -> list[Any]:
    """Return ``number`` styled axes, up to five in a row."""
    if ax is not None:
        given = list(np.ravel(np.asarray(ax, dtype=object)))
        if len(given) != number:
            raise ValueError(f"ax holds {len(given)} axes; this picture needs {number}.")
        return [style_axes(one) for one in given]
    columns = number if number <= 5 else 4
    rows = -(-number // columns)
    made = np.ravel(np.asarray(axes(None, rows, columns, size), dtype=object))
    for unused in made[number:]:
        unused.set_visible(False)
    return list(made[:number])

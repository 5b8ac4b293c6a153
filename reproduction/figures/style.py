"""One color and one marker a method, the same in every figure; and figures in the common style."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from partialbayes.plots import _style as style


class Look(NamedTuple):
    """How a method is drawn."""

    color: str
    marker: str


# A family has a color, its members differ by shade and marker.
_LOOKS = {
    "OHSMC": Look(style.BLUE, "o"),
    "OHSMC-refine": Look("#003f63", "^"),
    "OHSMC-ensemble": Look(style.SKY, "D"),
    "MAP-HMC": Look(style.ORANGE, "o"),
    "MAP": Look("#8a5f00", "s"),
    "MAP-Laplace": Look("#f2c14e", "^"),
    "Deep ensemble": Look("#5a3d00", "D"),
    "SGSMC-HMC": Look(style.GREEN, "o"),
    "SGSMC": Look(style.GREEN, "s"),
    "SWAG": Look(style.PURPLE, "o"),
    "VB": Look(style.RED, "o"),
    "OHSMC-forgetting": Look("#5b7fd4", "s"),
    "SMC": Look("#5f7f1f", "^"),
    "MC": Look("#6a3d9a", "s"),
    "MC-evidence": Look("#a98fd0", "D"),
}


def look(method: str) -> Look:
    """Of a method; gray where it has none of its own."""
    return _LOOKS.get(method, Look(style.SOFT, "o"))


def grid(rows: int, columns: int, size: tuple[float, float], **shared: Any) -> tuple[Any, Any]:
    """A figure and its axes as an array, styled; unknown to pyplot, so that none needs closing."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(size[0] * columns, size[1] * rows), layout="constrained")
    return figure, style.axes(figure.subplots(rows, columns, squeeze=False, **shared))


def panels(number: int, size: tuple[float, float], **shared: Any) -> tuple[Any, list[Any]]:
    """A figure with so many panels, up to five in a row; the unused are hidden."""
    columns = number if number <= 5 else -(-number // -(-number // 4))
    figure, places = grid(-(-number // columns), columns, size, **shared)
    flat = list(np.ravel(places))
    for unused in flat[number:]:
        unused.set_visible(False)
    return figure, flat[:number]


def label_outer(places: Any, across: str, up: str) -> None:
    """Names on the left column and at the bottom of each column alone."""
    flat = list(np.ravel(np.asarray(places, dtype=object)))
    lowest = {place.get_subplotspec().colspan.start: place for place in flat}  # the last there is
    for place in lowest.values():
        place.set_xlabel(across)
        place.tick_params(labelbottom=True)
    for place in flat:
        if place.get_subplotspec().is_first_col():
            place.set_ylabel(up)


def title(place: Any, method: str) -> None:
    """The name of a method, in its color."""
    place.set_title(method, color=look(method).color, fontsize=10, fontweight="bold")


def legend_below(figure: Any, handles: Any, labels: Any) -> None:
    """One legend for all panels, below them."""
    text = {"fontsize": 8.5, "labelcolor": style.INK}
    most = max(1, min(6, int(figure.get_figwidth() / 1.4)))
    columns = -(-len(labels) // -(-len(labels) // most))  # rows as long as the figure, equally so
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False, **text)

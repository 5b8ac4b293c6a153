"""One color and one marker per method, the same in every figure; panels, titles and legends."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from partialbayes.plots import _style as style


class MethodStyle(NamedTuple):
    """How a method is drawn."""

    color: str
    marker: str


# A family has a color, its members differ by shade and marker.
_STYLES = {
    "OHSMC": MethodStyle(style.BLUE, "o"),
    "OHSMC-refine": MethodStyle("#003f63", "^"),
    "OHSMC-ensemble": MethodStyle(style.SKY, "D"),
    "MAP-HMC": MethodStyle(style.ORANGE, "o"),
    "MAP": MethodStyle("#8a5f00", "s"),
    "MAP-Laplace": MethodStyle("#f2c14e", "^"),
    "Deep ensemble": MethodStyle("#5a3d00", "D"),
    "SGSMC-HMC": MethodStyle(style.GREEN, "o"),
    "SGSMC": MethodStyle(style.GREEN, "s"),
    "SGSMC-blocks-HMC": MethodStyle("#00573f", "o"),
    "SGSMC-blocks": MethodStyle("#00573f", "s"),
    "SWAG": MethodStyle(style.PURPLE, "o"),
    "VB": MethodStyle(style.RED, "o"),
    "OHSMC-forgetting": MethodStyle("#5b7fd4", "s"),
    "SMC": MethodStyle("#5f7f1f", "^"),
    "MC": MethodStyle("#6a3d9a", "s"),
    "MC-evidence": MethodStyle("#a98fd0", "D"),
}


def method_style(method: str) -> MethodStyle:
    """Return the color and marker of a method; gray where it has none of its own."""
    return _STYLES.get(method, MethodStyle(style.SOFT, "o"))


def make_grid(rows: int, columns: int, size: tuple[float, float], **shared: Any) -> tuple[Any, Any]:
    """Make a figure and its axes as an array, styled; unknown to pyplot, so that none needs closing."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(size[0] * columns, size[1] * rows), layout="constrained")
    return figure, style.axes(figure.subplots(rows, columns, squeeze=False, **shared))


def make_panels(number: int, size: tuple[float, float], **shared: Any) -> tuple[Any, list[Any]]:
    """Make a figure with so many panels, up to five in a row; the unused are hidden."""
    columns = number if number <= 5 else -(-number // -(-number // 4))
    figure, places = make_grid(-(-number // columns), columns, size, **shared)
    flat = list(np.ravel(places))
    for unused in flat[number:]:
        unused.set_visible(False)
    return figure, flat[:number]


def label_outer(places: Any, across: str, up: str) -> None:
    """Put names on the left column and at the bottom of each column alone."""
    flat = list(np.ravel(np.asarray(places, dtype=object)))
    lowest = {place.get_subplotspec().colspan.start: place for place in flat}  # the last there is
    for place in lowest.values():
        place.set_xlabel(across)
        place.tick_params(labelbottom=True)
    for place in flat:
        if place.get_subplotspec().is_first_col():
            place.set_ylabel(up)


def title_panel(place: Any, method: str) -> None:
    """Put the name of a method above, in its color."""
    place.set_title(method, color=method_style(method).color, fontsize=10, fontweight="bold")


def legend_below(figure: Any, handles: Any, labels: Any) -> None:
    """Put one legend for all panels below them."""
    text = {"fontsize": 8.5, "labelcolor": style.INK}
    most = max(1, min(6, int(figure.get_figwidth() / 1.4)))
    columns = -(-len(labels) // -(-len(labels) // most))  # rows as long as the figure, equally so
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False, **text)

"""What "crossfit" trains on a table, and for how long, by the size of the table."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from partialbayes.model._batch import padded_size

_SMALL, _LARGE = 1000, 3000  # rows
_FEWEST_ROWS, _MOST_ROWS, _MOST_CELLS = 40, 2000, 200_000  # of a table with kernel machines
EFFORTS = {"fast": 0.3, "default": 1.0, "best": 3.0}  # times the steps
MOST_WAVES = 480  # periodic features of all columns together; wide tables get fewer each


class Recipe(NamedTuple):
    """All that decides the program of a table, besides its rows.

    Attributes:
        sizes: Columns, hidden widths, outputs (classes, or twice the targets).
        is_classifier: Whether targets are classes.
        numeric: The columns with periodic features, and bins.
        num_bins: Of each of them, in a view of their own; 0 for no such view.
        num_centers: Of the kernel machines, the last view; 0 for no such view.
        num_particles: M, members of a group.
        num_folds: K.
        learning_rate: Highest rate of Adam.
        weight_decay: Decoupled decay of kernels, as a share of the rate.
    """

    sizes: tuple[int, ...]
    is_classifier: bool
    numeric: tuple[int, ...]
    num_bins: int
    num_centers: int
    num_particles: int
    num_folds: int
    learning_rate: float
    weight_decay: float

    @property
    def num_trained_views(self) -> int:
        """One, or two where there are bins: the views that are networks."""
        return 2 if self.num_bins else 1

    @property
    def num_views(self) -> int:
        """The views that are networks, and the kernel machines if there are any."""
        return self.num_trained_views + bool(self.num_centers)

    @property
    def num_groups(self) -> int:
        """Every view of every fold: group g has fold g mod K and view g div K."""
        return self.num_folds * self.num_views


class Schedule(NamedTuple):
    """How long to train.

    Attributes:
        num_steps: Steps; None where the seconds decide.
        batch_size: Rows of each member in a step.
        seconds: To spend at most on steps; None for no bound.
    """

    num_steps: int | None
    batch_size: int
    seconds: float | None

    def times(self, share: float) -> Schedule:
        """The schedule with this share of the steps, or of the seconds."""
        if self.num_steps is None:
            assert self.seconds is not None
            return self._replace(seconds=share * self.seconds)
        return self._replace(num_steps=max(int(share * self.num_steps), 1))


def schedule_for(rows: int, effort: str | float, is_classifier: bool) -> Schedule:
    """Steps and batches by the size of the table."""
    if rows < 250:
        steps, batch = 1500, 16
    elif rows < _SMALL:
        steps, batch = 2500, 16
    elif rows < _LARGE:
        steps, batch = 4000, 16
    else:
        # About as many passes through the rows, up to what a few minutes allow.
        steps, batch = int(min(5000 + rows / 3, 16000)), 32
    if is_classifier:
        steps = steps // (3 if rows < _LARGE else 2)
    if isinstance(effort, str):
        return Schedule(max(int(steps * EFFORTS[effort]), 100), batch, None)
    return Schedule(None, batch, float(effort))


def numeric_columns(inputs: Any) -> tuple[int, ...]:
    """The columns with more than two values; none if there are so many that each would get too few."""
    chosen = [column for column in range(inputs.shape[1]) if len(np.unique(inputs[:, column])) > 2]
    return tuple(chosen) if 4 * len(chosen) <= MOST_WAVES else ()


def folds_for(rows: int, effort: str | float) -> int:
    """Folds by the size of the table: where rows are few, each group should miss few of them."""
    return 16 if effort == "best" or (rows < _SMALL and effort != "fast") else 8


def bins_for(rows: int, columns: int, is_classifier: bool) -> int:
    """Bins of each column by the size of the table; 0 where they would learn rows by heart."""
    most, of_all = (64, 384) if rows >= _LARGE else (16, 192)
    bins = min(most, rows // (20 if is_classifier else 60), of_all // columns) if columns else 0
    return bins if bins > 2 else 0


def centers_for(rows: int, columns: int, effort: str | float) -> int:
    """Centers of the kernel machines, one for each row of a small table, padded; 0 for a large one."""
    is_small = _FEWEST_ROWS <= rows < _MOST_ROWS and rows * columns <= _MOST_CELLS
    return padded_size(rows) if is_small and effort != "fast" else 0


def members_for(rows: int, num_bins: int, is_classifier: bool) -> int:
    """Members of each group: four where there is one view, and for classes of a small table."""
    return 4 if num_bins == 0 or (is_classifier and rows < _LARGE) else 2

"""Downloads from OpenML by scikit-learn, and their tables turned into ours."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from tqdm.auto import tqdm

from reproduction.data.locate import DamagedDataError, MissingDataError, explain_missing

TABLES: dict[str, dict[str, Any]] = {
    "australian": {"data_id": 40981},
    "boston": {"data_id": 531},
    "breast_cancer": {"data_id": 1510},
    "concrete": {"data_id": 44959},
    "energy": {"data_id": 44960},
    "glass": {"data_id": 41},
    "ionosphere": {"data_id": 59},
    "kin8nm": {"data_id": 189},
    "naval": {"data_id": 44969},
    "satellite": {"data_id": 294},
    "yacht": {"name": "yacht_hydrodynamics", "version": 1},
}
"""Which table to ask for: arguments of scikit-learn's ``fetch_openml``.

None is known for power, wine_red and protein.
"""

IMAGES: dict[str, dict[str, Any]] = {"mnist": {"data_id": 554}, "fashion_mnist": {"data_id": 40996}}

# Second targets, and numbers of rows, that are no inputs.
_NO_INPUTS = {"cooling_load", "gt_turbine_decay_state_coefficient", "id"}


class Fetched(NamedTuple):
    """A table as it comes: columns of numbers or texts by name, in order, and the target."""

    columns: Mapping[str, np.ndarray]
    target: np.ndarray


def fetch(table: Mapping[str, Any]) -> Fetched:
    """Download a table; texts stay texts."""
    from sklearn.datasets import fetch_openml

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "A network error occurred", UserWarning)  # said once, below
        found = fetch_openml(**table, as_frame=True, parser="auto", cache=False)
    frame = found.frame
    target = (found.target_names or [frame.columns[-1]])[0]
    columns = {name: frame[name].to_numpy() for name in frame.columns}
    return Fetched({name: column for name, column in columns.items() if name != target}, columns[target])


@contextmanager
def show_download(
    name: str, file: str, folder: str | Path | None, progress: bool
) -> Iterator[Callable[[str], None]]:
    """Show a bar over the steps of a download; raise what fails to come as a missing data set."""
    silent = None if progress else True  # None: silent where there is no terminal
    with tqdm(total=3, desc=f"{name}: downloading", disable=silent, leave=False) as bar:

        def advance(doing: str) -> None:
            bar.update()
            bar.set_description(f"{name}: {doing}")

        try:
            yield advance
        except (MissingDataError, DamagedDataError):
            raise
        except (ImportError, OSError, ValueError) as error:
            reason = f"could not be downloaded ({error!s:.150})"
            raise MissingDataError(explain_missing(name, file, reason, folder)) from error


def to_numbers(column: np.ndarray, source: str) -> Float[np.ndarray, " rows"]:
    """A column as numbers, whether they come as such or as texts."""
    try:
        numbers = np.array([float(value) for value in column.tolist()])
    except (TypeError, ValueError) as error:
        raise DamagedDataError(f"{source} has a column that is not of numbers.") from error
    if not np.isfinite(numbers).all():
        raise DamagedDataError(f"{source} has missing values.")
    return numbers


def stack_inputs(
    fetched: Fetched, source: str, *, keep_constant: bool = False
) -> Float[np.ndarray, "rows features"]:
    """The input columns in order, without second targets and, unless kept, without constant ones."""
    columns = [
        to_numbers(column, source)
        for name, column in fetched.columns.items()
        if name.lower() not in _NO_INPUTS
    ]
    if not keep_constant:
        columns = [column for column in columns if np.ptp(column) > 0]
    return np.column_stack(columns)


def encode_by_count(
    labels: np.ndarray, counts: tuple[int | float, ...], source: str
) -> Int[np.ndarray, " rows"]:
    """Labels 0, 1, …, told by how many rows each class has: no two of a set have equally many.

    So it does not matter how the classes are spelled.
    """
    texts, classes, found = np.unique(
        [str(label) for label in labels.tolist()], return_inverse=True, return_counts=True
    )
    if sorted(found.tolist()) != sorted(counts):
        raise DamagedDataError(
            f"{source} has other classes: {dict(zip(texts.tolist(), found.tolist(), strict=True))} rows."
        )
    order = np.array([counts.index(count) for count in found.tolist()])
    return order[classes]

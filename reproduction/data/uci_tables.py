"""The UCI tables of the paper, two more, and the standard splits others report on."""

from __future__ import annotations

import gzip
import io
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, Shaped

from partialbayes._utils.atomic import write_atomically
from reproduction.data import openml
from reproduction.data.checksums import UCI, Facts, standard_splits
from reproduction.data.locate import (
    DamagedDataError,
    MissingDataError,
    cache_folder,
    explain_missing,
    find_file,
    read_gzip,
)


class Table(NamedTuple):
    """A data set of numbers: nothing scaled, shuffled or split.

    Attributes:
        name: Of the set.
        inputs: One row an example.
        targets: Numbers of a regression, labels from 0 of a classification.
        classes: How many, or ``None`` for a regression.

    Example:
        >>> import numpy as np
        >>> from reproduction import data
        >>> table = data.Table("ours", np.zeros((5, 2)), np.zeros(5), None)
        >>> table.inputs.shape
        (5, 2)
    """

    name: str
    inputs: Float[np.ndarray, "rows features"]
    targets: Shaped[np.ndarray, " rows"]
    classes: int | None


def uci(name: str, folder: str | Path | None = None, *, progress: bool = True) -> Table:
    """One of the UCI tables, by its name in `data.UCI`.

    Looked for as ``uci/<name>.csv.gz`` in the folder given, or else in that of the environment
    variable ``PARTIALBAYES_DATA``, then in the user's cache (see `cache_folder`), then downloaded
    from OpenML by scikit-learn, checked, and kept in the cache; all but power, wine_red and protein,
    which are not known to be there. The rows of a download may come in another order.

    Args:
        name: Of the set.
        folder: To look in.
        progress: Whether a download shows a bar.

    Raises:
        MissingDataError: If it is nowhere; the message says where to put which file.
        DamagedDataError: If a file or a download is not the data set it should be.

    Example:
        >>> from reproduction import data
        >>> sorted(data.UCI)[:3], data.UCI["boston"].rows
        (['australian', 'boston', 'breast_cancer'], 506)
        >>> table = data.uci("boston", "data")  # doctest: +SKIP
    """
    facts = _require_known(name)
    file = f"uci/{name}.csv.gz"
    if path := find_file(file, folder):
        return _read(name, path, read_gzip(path, facts.sha256))
    path = cache_folder() / file
    if not path.is_file():
        _download(name, path, folder, progress)
    return _verify(_read(name, path, read_gzip(path)), facts, str(path))


def uci_splits(name: str, folder: str | Path | None = None) -> list[Int[np.ndarray, " test"]]:
    """The test rows of the standard splits of a regression table; all other rows are for training.

    The splits are those of Hernández-Lobato and Adams (2015). They are looked for as
    ``uci_splits/<name>.txt.gz`` where `uci` looks, and cannot be downloaded: a line a split, of the
    numbers of its test rows, from 0. A table that was downloaded may have its rows in another order
    than they count; it is then refused.

    Args:
        name: Of the set.
        folder: To look in.

    Returns:
        One array of row numbers a split.

    Raises:
        MissingDataError: If the list is nowhere; the message says where to put which file.
        DamagedDataError: If it is not one, or does not fit the table that `uci` gives.

    Example:
        >>> from reproduction import data
        >>> data.uci_splits("glass")
        Traceback (most recent call last):
        ValueError: glass has no standard splits: only the regression tables have.
    """
    facts = _require_known(name)
    if facts.task != "regression":
        raise ValueError(f"{name} has no standard splits: only the regression tables have.")
    file = f"uci_splits/{name}.txt.gz"
    path = find_file(file, folder) or cache_folder() / file
    if not path.is_file():
        what = f"the list of splits of {name}"
        raise MissingDataError(explain_missing(what, file, "cannot be downloaded", folder))
    try:
        splits = [np.array(line.split(), np.int64) for line in read_gzip(path).decode().splitlines()]
    except ValueError as error:
        raise DamagedDataError(f"{path} is damaged: its lines must be row numbers.") from error
    whole = all(
        len(np.unique(rows)) == len(rows) > 0 and rows.min() >= 0 and rows.max() < facts.rows
        for rows in splits
    )
    expected = standard_splits(name)
    if len(splits) != expected or not whole:
        raise DamagedDataError(
            f"{path} is damaged: it must have {expected} lines of row numbers below {facts.rows}."
        )
    table = f"uci/{name}.csv.gz"
    kept = cache_folder() / table
    if find_file(table, folder) is None and kept.is_file():  # one that is published is in order
        _require_order(uci(name, folder), facts, kept)
    return splits


def _require_order(table: Table, facts: Facts, path: Path) -> None:
    """Refuse a table whose rows are not in the order that the splits count."""
    if facts.row_order is None or abs(_row_order(table) - facts.row_order) > 1e-4:
        raise DamagedDataError(
            f"the rows of {path} are in another order than the standard splits of {table.name} count "
            "them: replace it by the table whose rows they are."
        )


def _require_known(name: str) -> Facts:
    if name not in UCI:
        raise ValueError(f"there is no table {name!r}; the tables are {', '.join(sorted(UCI))}.")
    return UCI[name]


def _read(name: str, path: Path, content: bytes) -> Table:
    facts = UCI[name]
    if len(content.splitlines()) < 2:
        raise DamagedDataError(f"{path} is damaged: it has no rows.")
    try:
        numbers = np.loadtxt(io.BytesIO(content), delimiter=",", skiprows=1, ndmin=2)
    except ValueError as error:
        raise DamagedDataError(f"{path} is damaged: it is no table of numbers.") from error
    targets = numbers[:, -1] if facts.classes is None else numbers[:, -1].astype(np.int64)
    return Table(name, numbers[:, :-1], targets, facts.classes)


def _download(name: str, path: Path, folder: str | Path | None, progress: bool) -> None:
    """Fetch, check and keep a table, in our format."""
    facts, source, file = UCI[name], f"the download of {name}", f"uci/{name}.csv.gz"
    if name not in openml.TABLES:
        raise MissingDataError(explain_missing(name, file, "cannot be downloaded", folder))
    with openml.show_download(name, file, folder, progress) as advance:
        fetched = openml.fetch(openml.TABLES[name])
        advance("checking")
        numbers = openml.stack_inputs(fetched, source)
        targets = fetched.target
        if facts.classes is None:
            targets = openml.to_numbers(targets, source)
        else:
            targets = openml.encode_by_count(targets, facts.target_facts, source)
        table = _verify(Table(name, numbers, targets, facts.classes), facts, source)
        advance("writing")
        write_atomically(path, gzip.compress(_encode(table), mtime=0), mode=0o644)


def _encode(table: Table) -> bytes:
    """The table in our format; the numbers read back to the same doubles."""
    header = [f"x{column}" for column in range(table.inputs.shape[1])] + ["y"]
    rows = np.column_stack([table.inputs, table.targets]).tolist()
    lines = [",".join(f"{value:.17g}" for value in row) for row in rows]
    return ("\n".join([",".join(header), *lines]) + "\n").encode()


def _verify(table: Table, facts: Facts, source: str) -> Table:
    """The table, if it is the one meant."""
    shape, targets = table.inputs.shape, table.targets
    if shape != (facts.rows, facts.features):
        raise DamagedDataError(
            f"{source} is not {table.name}: it has {shape[0]} rows and {shape[1]} features "
            f"instead of {facts.rows} and {facts.features}."
        )
    if facts.classes is None:
        found = np.array([targets.mean(), targets.min(), targets.max()])
        # The facts are rounded to some five figures.
        right = np.allclose(found, facts.target_facts, rtol=1e-3, atol=1e-4)
    else:
        classes, found = np.unique(targets, return_counts=True)
        right = tuple(found) == facts.target_facts and classes.tolist() == list(range(facts.classes))
    if not right:
        kind = "class counts" if facts.classes else "mean, smallest and largest target"
        raise DamagedDataError(
            f"{source} is not {table.name}: {kind} are {found.tolist()} "
            f"instead of {list(facts.target_facts)}."
        )
    if not abs(_fingerprint(table) - facts.fingerprint) < 1e-3 * max(1.0, abs(facts.fingerprint)):
        raise DamagedDataError(
            f"{source} is not {table.name} as meant: its columns differ in order, unit or content."
        )
    return table


def _fingerprint(table: Table) -> float:
    """See `Facts`; not a number for a constant column."""
    inputs, targets = table.inputs, table.targets - table.targets.mean()
    deviations = inputs.std(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        correlations = (inputs - inputs.mean(0)).T @ targets / (len(inputs) * deviations * targets.std())
        return float(np.arange(1, inputs.shape[1] + 1) @ (np.log(deviations) + correlations))


def _row_order(table: Table) -> float:
    """See `Facts`."""
    columns = np.column_stack([table.inputs, table.targets])
    place = np.arange(len(columns)) - (len(columns) - 1) / 2
    spread = len(columns) * columns.std(0) * place.std()
    return float(np.arange(1, columns.shape[1] + 1) @ ((columns - columns.mean(0)).T @ place / spread))

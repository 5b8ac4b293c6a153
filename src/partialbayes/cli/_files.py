"""What the commands read: models that "fit" wrote, and rows of a table as such a model takes them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from partialbayes._utils import atomic
from partialbayes.cli._terminal import status, tell
from partialbayes.errors import CheckpointError, TableError

FEWEST_HELD_OUT = 10  # rows worth a score by themselves


class Loaded(NamedTuple):
    """A model that "fit" wrote.

    Attributes:
        estimator: Ready to predict.
        target: What it predicts.
        notes: What is known about its training.
    """

    estimator: Any
    target: Any
    notes: dict[str, Any]


class Rows(NamedTuple):
    """Rows of a table, ready for the model.

    Attributes:
        frame: The rows that are used.
        encoded: Their inputs.
        targets: Their targets, numbers or numbered classes; None if they were not asked for.
        are: "new"; of the training table "held out" where the model has not seen them, "out of fold"
            where each is predicted by members that have not seen it, and else "training".
        predict: ``(inputs, rows) -> Predictive``, from encoded inputs and their places among the rows.
        notes: What was met, in sentences.
    """

    frame: Any
    encoded: Any
    targets: Any
    are: str
    notes: tuple[str, ...]
    predict: Callable[[Any, Any], Any]

    def predictive(self) -> Any:
        """The predictive at all the rows."""
        return self.predict(self.encoded.values, np.arange(len(self.frame)))


def load(folder: Path) -> Loaded:
    """The estimator in a folder, what it predicts, and what is known about it."""
    from partialbayes.estimators import _estimators as estimators
    from partialbayes.estimators._target import Target
    from partialbayes.io._model_folder import read_description

    metadata = read_description(folder)["metadata"]
    kind = {
        "PartialBNNRegressor": estimators.PartialBNNRegressor,
        "PartialBNNClassifier": estimators.PartialBNNClassifier,
    }.get(metadata.get("estimator"))
    notes = metadata.get("notes")
    if kind is None or not isinstance(notes, dict) or "target" not in notes:
        raise CheckpointError(f"{folder} was not written by the command line: it has no table.")
    try:
        target = Target(**notes["target"])
    except TypeError as error:
        raise CheckpointError(f"{folder} has a target that is not that of this version.") from error
    with status(f"loading {folder}"):
        return Loaded(kind.load(folder), target, notes)


def rows_of(command: Any, loaded: Loaded, path: Path, *, with_targets: bool = False) -> Rows:
    """The rows of a table for a model; with targets, those that have one.

    Of the training table those that were held out, where there are enough of them.
    """
    from partialbayes.estimators._encode import encode
    from partialbayes.estimators._target import targets_of

    estimator = loaded.estimator
    table = read(command, path)
    frame, targets, are, notes = table.frame, None, "new", list(table.notes)
    if with_targets:
        chosen, targets = targets_of(frame, loaded.target, table.decimal)
        notes += without_target(frame, chosen, loaded.target)
        if digest(path) == loaded.notes["digest"]:
            are = "training"
            held_out = np.isin(chosen, loaded.notes["held_out"])
            if held_out.sum() >= FEWEST_HELD_OUT:
                chosen, targets, are = chosen[held_out], targets[held_out], "held out"
        frame = frame.iloc[chosen]
        if loaded.target.task == "classification":
            targets = number_labels(targets, estimator.classes_, loaded.target)
        elif bool(estimator.target_scale_.log) and np.min(targets) <= 0:
            raise TableError(
                f"{loaded.target.name} is not positive in every row, but the model has learned its "
                "logarithm."
            )
    encoded = encode(
        frame, estimator.schema_, one_hot=True, strict=command.strict, decimal=table.decimal
    )
    if are == "training" and estimator._knows_folds(len(frame)):
        are = "out of fold"

    def predict(inputs: Any, places: Any) -> Any:
        if are == "out of fold":
            return estimator._out_of_fold(inputs, places)
        return estimator.predictive(encoded._replace(values=inputs))

    return Rows(frame, encoded, targets, are, (*notes, *encoded.notes), predict)


def read(command: Any, path: Path) -> Any:
    """The table in a file, as the options say."""
    from partialbayes.estimators._reader import Format, read_table

    with status(f"reading {path}"):
        return read_table(path, Format(command.sep, command.decimal, command.encoding))


def require_writable(path: Path) -> None:
    """Refuse a place that cannot be written to, before any work is done for it."""
    try:
        atomic.require_writable(path)
    except OSError as error:
        raise TableError(f"--out {path} cannot be written ({error.strerror or error}).") from None


def without_target(frame: Any, rows: Any, target: Any) -> list[str]:
    """The note on rows that have no target, if there are any."""
    without = len(frame) - len(rows)
    are = "row is" if without == 1 else "rows are"
    return [f"{without} {are} left out: no {target.name}"] if without else []


def note(sentence: str) -> None:
    """Tell a sentence, if there is one."""
    if sentence:
        tell(f"{sentence}.")


def digest(path: Path) -> str:
    """The checksum by which a table is known again."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def number_labels(labels: Any, classes: Any, target: Any) -> Any:
    """Labels by their place among the classes."""
    places = {str(label): place for place, label in enumerate(classes)}
    for label in labels:
        if str(label) not in places:
            known = ", ".join(map(repr, list(places)[:8])) + (", …" if len(places) > 8 else "")
            raise TableError(
                f"the target {target.name!r} holds {str(label)!r}, which was not there in training "
                f"(known: {known})."
            )
    return np.asarray([places[str(label)] for label in labels], np.int32)

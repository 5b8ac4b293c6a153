"""Read the models that "fit" wrote, and tables in the form that such a model takes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from partialbayes._utils import atomic
from partialbayes.cli._terminal import status, tell
from partialbayes.errors import CheckpointError, TableError

_BASELINE = ("mean", "std", "quantiles", "counts", "log_mean", "log_std")
FEWEST_HELD_OUT = 10  # fewer rows are not scored


class Loaded(NamedTuple):
    """A model that "fit" wrote.

    Attributes:
        estimator: The estimator, ready to predict.
        target: The column that it predicts.
        notes: Facts about its training.
    """

    estimator: Any
    target: Any
    notes: dict[str, Any]


class Rows(NamedTuple):
    """Rows of a table, ready for the model.

    Attributes:
        frame: The rows that are used.
        encoded: Their encoded inputs.
        targets: Their targets, numbers or class indices; None if targets were not requested.
        are: "new" for another table. For the training table: "held out" if the model has not seen these
            rows, "out of fold" if each is predicted by members that have not seen it, else "training".
        notes: Remarks on the table, one sentence each.
        predict: ``(inputs, rows) -> Predictive``, from encoded inputs and the indices of their rows.
    """

    frame: Any
    encoded: Any
    targets: Any
    are: str
    notes: tuple[str, ...]
    predict: Callable[[Any, Any], Any]

    def predictive(self) -> Any:
        """Return the predictive of all rows."""
        return self.predict(self.encoded.values, np.arange(len(self.frame)))


def load(folder: Path) -> Loaded:
    """Load the estimator in a folder, its target, and the facts about its training."""
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
        raise CheckpointError(f"{folder} was not written by the command line.")
    try:
        target = Target(**notes["target"])
        _require_facts(notes)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise CheckpointError(f"{folder} was written by another version of partialbayes.") from error
    with status(f"loading {folder}"):
        return Loaded(kind.load(folder), target, notes)


def _require_facts(notes: dict[str, Any]) -> None:
    """Refuse facts about the training that are missing or of another kind."""
    facts = {"data": str, "digest": str, "when": str, "rows": int, "held_out": list, "baseline": dict}
    if not all(isinstance(notes[name], kind) for name, kind in facts.items()):
        raise TypeError
    baseline = notes["baseline"]
    if set(baseline) != set(_BASELINE):
        raise ValueError
    numbers = [baseline["mean"], baseline["std"], *baseline["quantiles"], *baseline["counts"]]
    numbers += [baseline[name] for name in ("log_mean", "log_std") if baseline[name] is not None]
    kinds = (np.asarray(part).dtype.kind for part in (numbers, notes["held_out"] or [0]))
    if not all(kind in "iuf" for kind in kinds) or not np.isfinite(numbers).all():
        raise ValueError
    if not baseline["quantiles"] and not baseline["counts"]:
        raise ValueError
    if "seed" not in notes:
        raise KeyError("seed")


def rows_of(command: Any, loaded: Loaded, path: Path, *, with_targets: bool = False) -> Rows:
    """Read the rows of a table for a model.

    With targets, rows without one are left out. If the table is the one that the model was trained on,
    only its held-out rows are used, if there are enough of them.
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
                f"{loaded.target.name} is not positive in every row, but the model was trained on its "
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
    """Read the table in a file, as the options of the command specify."""
    from partialbayes.estimators._reader import Format, read_table

    with status(f"reading {path}"):
        return read_table(path, Format(command.sep, command.decimal, command.encoding))


def require_writable(path: Path) -> None:
    """Refuse a path that cannot be written, before any work is done."""
    try:
        atomic.require_writable(path)
    except OSError as error:
        raise TableError(f"--out {path} cannot be written ({error.strerror or error}).") from None


def without_target(frame: Any, rows: Any, target: Any) -> list[str]:
    """Return a note on the rows that have no target, if there are any."""
    without = len(frame) - len(rows)
    are = "row is" if without == 1 else "rows are"
    return [f"{without} {are} left out: no {target.name}"] if without else []


def note(sentence: str) -> None:
    """Print a sentence, unless it is empty."""
    if sentence:
        tell(f"{sentence}.")


def digest(path: Path) -> str:
    """Return the checksum by which a table is recognized."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def number_labels(labels: Any, classes: Any, target: Any) -> Any:
    """Replace labels by their indices among the classes."""
    places = {str(label): place for place, label in enumerate(classes)}
    for label in labels:
        if str(label) not in places:
            known = ", ".join(map(repr, list(places)[:8])) + (", …" if len(places) > 8 else "")
            raise TableError(
                f"the target {target.name!r} holds {str(label)!r}, which was not there in training "
                f"(known: {known})."
            )
    return np.asarray([places[str(label)] for label in labels], np.int32)

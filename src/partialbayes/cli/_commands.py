"""What the commands of the command line do, each with its parsed arguments; they return exit codes."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from partialbayes.cli._terminal import clear_status, on_terminal, pieces, status, tell
from partialbayes.errors import CheckpointError, TableError

_ROWS_AT_A_TIME = 8192
_FEWEST_HELD_OUT = 10  # rows worth a score by themselves


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
        are: "held out", "training" or "new".
        notes: What was met, in sentences.
    """

    frame: Any
    encoded: Any
    targets: Any
    are: str
    notes: tuple[str, ...]


def fit(command: Any) -> int:
    """Train on a table and save the model."""
    from partialbayes.estimators import _schema as schemas
    from partialbayes.estimators._methods import CROSSFIT, require_method
    from partialbayes.io._model_folder import require_free

    require_method(command.method)
    if command.resume and command.method == CROSSFIT:
        raise CheckpointError(
            f"--resume: {CROSSFIT} writes no checkpoint, so that there is nothing to resume; train anew."
        )
    checkpoint = command.out.with_name(command.out.name + ".checkpoint")
    goes_on = command.resume and checkpoint.exists()  # what Ctrl-C wrote may be replaced
    require_free(command.out, overwrite=command.overwrite or goes_on, remedy="--overwrite")
    _require_writable(command.out)
    if checkpoint.exists() and not command.resume:
        raise CheckpointError(
            f"there is an unfinished run at {checkpoint}: go on with it by --resume, or remove it."
        )
    table = _read(command, command.table)
    decimal = table.decimal
    with status("looking at the columns"):
        target = schemas.learn_target(table.frame, command.target, command.task, decimal)
        rows, targets = schemas.targets_of(table.frame, target, decimal)
        frame = table.frame.iloc[rows]
        schema = schemas.learn(
            frame,
            skip=[target.name],
            categorical=command.categorical,
            columns=command.columns or None,
            drop=command.drop,
            decimal=decimal,
        )
    log_targets, why_log = _wants_log(command, target, targets)
    for note in (*table.notes, *_about_rows(table.frame, rows, target), *target.notes, *schema.notes):
        _note(note)
    _note(f"{target.task}, because {target.why}; --task says otherwise" if target.why else "")
    _note(why_log)
    estimator = _estimator(command, target, log_targets)
    used = len(schema.used)
    tell(
        f"{len(rows)} rows, {used} column{'s' * (used != 1)} ({len(schema.features(one_hot=True))} "
        f"inputs after encoding); training by {command.method}."
    )
    _train(estimator, frame, targets, schema, checkpoint, command.resume)
    stopped = estimator.interrupted_
    if stopped and estimator.history_.best_step == 0:
        sys.stderr.write(
            "partialbayes: stopped before there was a model"
            + ("" if command.method == CROSSFIT else f"; go on by --resume ({checkpoint} has it all)")
            + "\n"
        )
        return 130
    notes = _notes_of(command, estimator, target, rows, targets, log_targets)
    estimator.save(command.out, overwrite=command.overwrite or goes_on, notes=notes)
    if stopped:
        more = "" if command.method == CROSSFIT else " --resume goes on from where it stopped."
        sys.stderr.write(
            f"partialbayes: stopped; the best model so far, of step {estimator.history_.best_step}, is "
            f"in {command.out}.{more}\n"
        )
        return 130
    checkpoint.unlink(missing_ok=True)
    _tell_of_training(estimator, command.out, frame, targets, notes)
    return 0


def predict(command: Any) -> int:
    """Predict the rows of a table."""
    import pandas as pd

    from partialbayes.estimators._reader import write_table
    from partialbayes.estimators._schema import as_columns, require_columns

    loaded = _load(command.model)
    _require_writable(command.out)
    if not 0.0 < command.coverage < 1.0:
        raise TableError(f"--coverage must lie between 0 and 1, not {command.coverage}.")
    rows = _rows(command, loaded, command.table)
    named = as_columns(rows.frame)
    require_columns(named, command.keep, "--keep: there is no column")
    ids = [name for name in loaded.estimator.schema_.ids if name in named]
    kept = list(dict.fromkeys([*ids, *command.keep]))
    columns: dict[str, Any] = {name: named[name] for name in kept}
    if not kept:
        columns["row"] = np.arange(1, len(rows.frame) + 1)
    found: list[dict[str, Any]] = []
    for piece in pieces(len(rows.frame), _ROWS_AT_A_TIME, "predicting"):
        part = rows.encoded._replace(values=rows.encoded.values[piece])
        found.append(_predictions(loaded, part, command.coverage))
    predicted = {name: np.concatenate([part[name] for part in found]) for name in found[0]}
    if command.out.suffix.lower() not in (".parquet", ".pq"):
        predicted = _readable(predicted, loaded.target.task)
    frame = pd.DataFrame(columns | {_free(name, columns): value for name, value in predicted.items()})
    write_table(command.out, frame)
    for note in rows.notes:
        _note(note)
    tell(f"{len(frame)} predictions of {loaded.target.name} are in {command.out}.")
    return 0


def evaluate(command: Any) -> int:
    """Print the scores of a model on a table."""
    from partialbayes import metrics
    from partialbayes.metrics._registry import SCORES
    from partialbayes.reporting._baseline import Baseline
    from partialbayes.reporting._html import short

    loaded = _load(command.model)
    rows = _rows(command, loaded, command.table, with_targets=True)
    with status(f"predicting {len(rows.frame)} rows"):
        scores = metrics.evaluate(loaded.estimator.predictive(rows.encoded), rows.targets)
        baseline = Baseline(**loaded.notes["baseline"]).scores(rows.targets)
    if command.json:
        answer = {
            "model": str(command.model),
            "table": str(command.table),
            "rows": len(rows.frame),
            "rows_are": rows.are,
            "target": loaded.target.name,
            "task": loaded.target.task,
            "scores": {name: _finite(value) for name, value in scores.items()},
            "baseline": {name: _finite(value) for name, value in baseline.items()},
            "notes": list(rows.notes),
        }
        tell(json.dumps(answer, indent=1, ensure_ascii=False))
        return 0
    for note in rows.notes:
        _note(note)
    tell(
        f"{loaded.target.task} of {loaded.target.name} on {len(rows.frame)} rows of "
        f"{command.table}{_which(rows.are)}"
    )
    tell()
    tell(f"{'':<27} {'model':>10} {'baseline':>10}")
    for name, value in scores.items():
        if name.endswith("_over_particles"):
            continue
        beside = short(baseline[name]) if name in baseline else ""
        tell(f"{SCORES[name].title:<27} {short(value):>10} {beside:>10}  {SCORES[name].meaning}")
    what = (
        "the training targets' own spread"
        if loaded.target.task == "regression"
        else "the classes' shares"
    )
    tell()
    tell(f"The baseline looks at no column: it predicts {what}.")
    return 0


def report(command: Any) -> int:
    """Write the page on a model."""
    import partialbayes
    from partialbayes.reporting._report import About

    loaded = _load(command.model)
    _require_writable(command.out)
    path = command.table or Path(loaded.notes["data"])
    if command.table is None and not path.is_file():
        raise TableError(f"the training table {path} is not there any more; name a table to score on.")
    rows = _rows(command, loaded, path, with_targets=True, only_held_out=command.table is None)
    estimator, schema = loaded.estimator, loaded.estimator.schema_
    from partialbayes.reporting._baseline import Baseline

    about = About(
        target=loaded.target.name,
        facts=_facts(command, loaded, path),
        columns=[_in_words(column) for column in schema.columns],
        notes=rows.notes,
        classes=[str(label) for label in getattr(estimator, "classes_", ())],
        rows=rows.are,
        names=_names_of(rows.frame, schema.ids),
        groups=_groups(schema),
        baseline=Baseline(**loaded.notes["baseline"]),
    )
    with status("writing the report"):
        partialbayes.report(
            estimator.model_,
            estimator.posterior_,
            (estimator._standardize(rows.encoded.values), rows.targets),
            command.out,
            history=getattr(estimator, "history_", None),
            target_scale=estimator.target_scale_,
            title=f"{loaded.target.name}, by {estimator.method}",
            about=about,
        )
    tell(f"the report is in {command.out}.")
    return 0


def methods(command: Any) -> int:
    """Print the training methods."""
    from partialbayes.estimators._methods import describe

    tell(describe())
    return 0


def demo(command: Any) -> int:
    """Two moons, by random weights and by a single point."""
    from sklearn.datasets import make_moons

    from partialbayes.estimators._estimators import PartialBNNClassifier

    x, y = make_moons(400, noise=0.3, random_state=command.seed)
    tell("Two moons: 200 points to train on, 200 to test. Half a minute.")
    tell()
    tell("                 NLPD  accuracy   p far away   disagreement far away (nats)")
    for method, name in (("ohsmc", "random weights"), ("map_estimate", "one point")):
        settings = {"method": method, "stochastic": "layers/1/**", "random_state": command.seed}
        with status(f"training {name}"):
            model = PartialBNNClassifier((50, 20, 5), **settings).fit(x[:200], y[:200])
        own = model.predict_proba(x[200:])[np.arange(200), y[200:]]
        far = model.predictive(np.array([[-6.0, 6.0], [6.0, -6.0], [6.0, 6.0]]))
        sure = np.asarray(far.probabilities).max(axis=1).mean()
        split = np.asarray(far.mutual_information).mean()
        score = model.score(x[200:], y[200:])
        tell(f"{name:<14} {-np.mean(np.log(own)):6.3f}  {score:8.3f}   {sure:10.3f}   {split:12.3f}")
    tell()
    tell("Next: partialbayes fit your.csv --target column --out model")
    return 0


def _note(note: str) -> None:
    if note:
        tell(f"{note}.")


def _read(command: Any, path: Path) -> Any:
    from partialbayes.estimators._reader import Format, read_table

    with status(f"reading {path}"):
        return read_table(path, Format(command.sep, command.decimal, command.encoding))


def _require_writable(path: Path) -> None:
    """Refuse a place that cannot be written to, before any work is done for it."""
    place = path.absolute().parent
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        os.rmdir(tempfile.mkdtemp(dir=place, prefix=".partialbayes."))
    except OSError as error:
        raise TableError(f"--out {path} cannot be written ({error.strerror or error}).") from None


def _about_rows(frame: Any, rows: Any, target: Any) -> list[str]:
    without = len(frame) - len(rows)
    return [f"{without} rows without {target.name} are left out"] if without else []


def _wants_log(command: Any, target: Any, targets: Any) -> tuple[bool, str]:
    """Whether to train on logarithms, and the sentence about it."""
    if target.task == "classification":
        return False, ""
    if command.log_targets is not None:
        if command.log_targets and np.min(targets) <= 0:
            raise TableError(f"--log-targets: {target.name} is not positive in every row.")
        return command.log_targets, ""
    if np.min(targets) <= 0 or _skewness(targets) < 1.0:
        return False, ""
    if abs(_skewness(np.log(targets))) > 0.5 * _skewness(targets):
        return False, ""
    return True, (
        f"{target.name} is positive and has a long tail, so that its logarithm is learned and no "
        "interval reaches below zero; --log-targets False says otherwise"
    )


def _skewness(values: Any) -> float:
    centered = values - np.mean(values)
    spread = np.std(values)
    return float(np.mean(centered**3) / spread**3) if spread > 0 else 0.0


def _estimator(command: Any, target: Any, log_targets: bool) -> Any:
    from partialbayes.cli._options import estimator_options
    from partialbayes.estimators import _estimators as estimators

    kind = (
        estimators.PartialBNNRegressor
        if target.task == "regression"
        else estimators.PartialBNNClassifier
    )
    settings = {name: getattr(command, name) for name in estimator_options()}
    settings["log_targets"] = log_targets
    return kind(**settings, random_state=command.seed, verbose=on_terminal())


def _train(
    estimator: Any, frame: Any, targets: Any, schema: Any, checkpoint: Path, resume: bool
) -> None:
    from partialbayes._engine.settings import Run

    names = [column.name for column in schema.used]
    doing = "compiling the training program, which takes some seconds at the first time"
    if not on_terminal():
        tell(f"{doing}.")
    with status(doing):
        run = Run(
            checkpoint=checkpoint,
            resume=resume,
            callbacks=[_first_look()] if on_terminal() else [_lines()],
            on_interrupt="return",
        )
        estimator.fit(frame[names], targets, schema=schema, run=run)


def _first_look() -> Callable[[Any], None]:
    """A callback that takes the status away once there is a bar."""
    seen = False

    def callback(progress: Any) -> None:
        nonlocal seen
        if not seen:
            seen = True
            clear_status()

    return callback


def _lines() -> Callable[[Any], None]:
    """A callback that says now and then how far training is."""
    told = 0.0

    def callback(progress: Any) -> None:
        nonlocal told
        done = progress.begin + len(next(iter(progress.infos.values())))
        if done / progress.num_steps >= told + 0.25 or done == progress.num_steps:
            told = done / progress.num_steps
            tell(f"step {done} of {progress.num_steps}")

    return callback


def _notes_of(
    command: Any, estimator: Any, target: Any, rows: Any, targets: Any, log_targets: bool
) -> dict[str, Any]:
    """What is to be known about the training, as JSON can hold it."""
    from partialbayes.reporting._baseline import Baseline

    numbered = targets if target.task == "regression" else _number(targets, estimator.classes_, target)
    baseline = (
        Baseline.of_numbers(targets, log_targets)
        if target.task == "regression"
        else Baseline.of_classes(numbered, len(estimator.classes_))
    )
    held_out = _held_out(estimator, numbered)
    return {
        "target": target._asdict(),
        "data": str(command.table.resolve()),
        "digest": _digest(command.table),
        "rows": len(rows),
        "held_out": [] if held_out is None else rows[held_out].tolist(),
        "baseline": baseline._asdict(),
        "seed": command.seed,
        "when": datetime.now().astimezone().isoformat(timespec="seconds"),
    }


def _held_out(estimator: Any, targets: Any) -> Any:
    """Rows that the whole model has not seen; None if there are none, as where it is cross-fitted."""
    return None if estimator._is_crossfit() else estimator._divide(targets, estimator._seed)[1]


def _tell_of_training(
    estimator: Any, out: Path, frame: Any, targets: Any, notes: Mapping[str, Any]
) -> None:
    from partialbayes import metrics
    from partialbayes.reporting._html import short

    split = estimator.model_.split
    total = sum(leaf.size for leaf in split.leaves)
    tell(f"{split.dim} of {total} weights are random.")
    history = estimator.history_
    if len(history.validation_nlpd) and not estimator._is_crossfit():
        steps = len(history.metrics["loss"])
        tell(f"{steps} steps; the best posterior was that after step {history.best_step}.")
    is_classifier = hasattr(estimator, "classes_")
    numbered = _number(targets, estimator.classes_, None) if is_classifier else targets
    held_out = _held_out(estimator, numbered)
    if estimator._is_crossfit() and estimator.oof_predictive_ is not None:
        what = "accuracy" if is_classifier else "R²"
        tell(f"on all rows, each by members that have not seen it: {what} {estimator.oof_score_:.3f}.")
    if held_out is not None and len(held_out) >= _FEWEST_HELD_OUT:
        with status("scoring the rows held out"):
            scores = metrics.evaluate(
                estimator.predictive(frame[list(estimator.feature_names_in_)].iloc[held_out]),
                numbered[held_out],
            )
        told = (
            f"accuracy {scores['accuracy']:.3f}, NLPD {short(scores['nlpd'])}"
            if is_classifier
            else f"R² {scores['r2']:.3f}, RMSE {short(scores['rmse'])}, CRPS {short(scores['crps'])}, "
            f"NLPD {short(scores['nlpd'])}, {100 * scores['coverage']:.0f} % inside their 90 % "
            "intervals"
        )
        tell(f"on the {len(held_out)} rows held out to choose it: {told}.")
    tell(f"the model is in {out}.")


def _load(folder: Path) -> Loaded:
    """The estimator in a folder, what it predicts, and what is known about it."""
    from partialbayes.estimators import _estimators as estimators
    from partialbayes.estimators._schema import Target
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


def _rows(
    command: Any,
    loaded: Loaded,
    path: Path,
    *,
    with_targets: bool = False,
    only_held_out: bool = False,
) -> Rows:
    """The rows of a table for a model; with targets, those that have one."""
    from partialbayes.estimators import _schema as schemas

    table = _read(command, path)
    frame, targets, are, notes = table.frame, None, "new", list(table.notes)
    if with_targets:
        chosen, targets = schemas.targets_of(frame, loaded.target, table.decimal)
        notes += _about_rows(frame, chosen, loaded.target)
        if _digest(path) == loaded.notes["digest"]:
            are = "training"
            held_out = np.isin(chosen, loaded.notes["held_out"])
            if only_held_out and held_out.sum() >= _FEWEST_HELD_OUT:
                chosen, targets, are = chosen[held_out], targets[held_out], "held out"
        frame = frame.iloc[chosen]
        if loaded.target.task == "classification":
            targets = _number(targets, loaded.estimator.classes_, loaded.target)
        elif bool(loaded.estimator.target_scale_.log) and np.min(targets) <= 0:
            raise TableError(
                f"{loaded.target.name} is not positive in every row, but the model has learned its "
                "logarithm."
            )
    encoded = schemas.encode(
        frame, loaded.estimator.schema_, one_hot=True, strict=command.strict, decimal=table.decimal
    )
    return Rows(frame, encoded, targets, are, (*notes, *encoded.notes))


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _number(labels: Any, classes: Any, target: Any) -> Any:
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


def _predictions(loaded: Loaded, encoded: Any, coverage: float) -> dict[str, Any]:
    predictive = loaded.estimator.predictive(encoded)
    if loaded.target.task == "regression":
        low, median, high = predictive.quantile([0.5 - 0.5 * coverage, 0.5, 0.5 + 0.5 * coverage])
        found = {
            "mean": predictive.mean,
            "median": median,
            "std": predictive.std,
            "low": low,
            "high": high,
            "epistemic_std": np.sqrt(np.asarray(predictive.epistemic_variance)),
        }
    else:
        probabilities = np.asarray(predictive.probabilities)
        found = {"prediction": loaded.estimator.classes_[probabilities.argmax(axis=1)]}
        for label, column in zip(loaded.estimator.classes_, probabilities.T, strict=True):
            found[f"probability_{label}"] = column
        found |= {"entropy": predictive.entropy, "epistemic": predictive.mutual_information}
    return {name: np.asarray(values) for name, values in found.items()}


def _readable(columns: Mapping[str, Any], task: str) -> dict[str, Any]:
    """Numbers as a person writes them: as many digits as the uncertainty is worth, no exponents."""
    decimals = 5
    if task == "regression":
        spread = float(np.median(columns["std"]))
        decimals = int(np.clip(2 - np.floor(np.log10(spread)), 0, 12)) if spread > 0 else 6

    def text(values: Any) -> Any:
        if values.dtype.kind != "f":
            return values
        return np.asarray([f"{float(value):.{decimals}f}" for value in values], object)

    return {name: text(values) for name, values in columns.items()}


def _free(name: str, taken: Mapping[str, Any]) -> str:
    """The name of a column of predictions, unless the table has one that is called so."""
    return f"predicted_{name}" if name in taken else name


def _which(are: str) -> str:
    if are == "training":
        return " — the rows it was trained on, so that the scores are better than on new rows"
    return ""


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _facts(command: Any, loaded: Loaded, path: Path) -> dict[str, str]:
    notes, estimator = loaded.notes, loaded.estimator
    facts = {
        "trained on": f"{notes['rows']} rows of {Path(notes['data']).name}",
        "trained at": notes["when"].replace("T", " "),
        "version": f"partialbayes {version('partialbayes')}",
        "seed": str(notes["seed"]),
        "method": str(estimator.method),
        "scored on": path.name,
    }
    with contextlib.suppress(AttributeError):
        if bool(estimator.target_scale_.log):
            facts["target"] = (
                f"the logarithm of {loaded.target.name} was learned; all here is in its own units"
            )
    return facts


def _in_words(column: Any) -> tuple[str, str, str]:
    """A column's name, what it is, and what else is to be said of it."""
    if column.kind == "dropped":
        return column.name, "left out", column.why
    said = []
    if column.kind == "category":
        said.append(f"{len(column.levels)} levels")
        said += ["and rare ones"] if column.has_rare else []
    if column.units:
        said.append(f"in {column.units[0]}")
    if column.kind == "date":
        said.append(", ".join(column.parts))
    if column.has_gaps:
        said.append("with gaps")
    return column.name, column.kind, "; ".join(said)


def _groups(schema: Any) -> dict[str, list[int]]:
    """From each column of the table to its inputs."""
    found: dict[str, list[int]] = {}
    for place, feature in enumerate(schema.features(one_hot=True)):
        found.setdefault(feature.source, []).append(place)
    return found


def _names_of(frame: Any, ids: Any) -> list[str]:
    """What each row is called: its identifier, or its number in the file."""
    there = [name for name in ids if name in frame.columns]
    if there:
        return [str(value) for value in frame[there[-1]]]
    return [f"row {int(place) + 1}" for place in frame.index]

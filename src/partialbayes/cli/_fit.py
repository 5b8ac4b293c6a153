"""Implement the command fit, which trains on a table."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from partialbayes.cli._files import (
    FEWEST_HELD_OUT,
    digest,
    note,
    number_labels,
    read,
    require_writable,
    without_target,
)
from partialbayes.cli._terminal import clear_status, on_terminal, status, tell
from partialbayes.errors import CheckpointError, TableError

_FEW_ROWS = 20


def fit(command: Any) -> int:
    """Train on a table and save the model."""
    from partialbayes.estimators._learn import learn
    from partialbayes.estimators._methods import CROSSFIT, require_method
    from partialbayes.estimators._target import learn_target, targets_of
    from partialbayes.io._model_folder import require_free

    require_method(command.method)
    if command.resume and command.method == CROSSFIT:
        raise CheckpointError(
            f"--resume: {CROSSFIT} writes no checkpoint, so there is nothing to resume; train again."
        )
    checkpoint = command.out.with_name(command.out.name + ".checkpoint")
    resumes = command.resume and checkpoint.exists()  # the model that Ctrl-C wrote may be replaced
    require_free(command.out, overwrite=command.overwrite or resumes, remedy="--overwrite")
    require_writable(command.out)
    if checkpoint.exists() and not command.resume:
        raise CheckpointError(
            f"there is an unfinished run at {checkpoint}: continue it with --resume, or remove it."
        )
    table = read(command, command.table)
    decimal = table.decimal
    with status("inspecting the columns"):
        target = learn_target(table.frame, command.target, command.task, decimal)
        rows, targets = targets_of(table.frame, target, decimal)
        frame = table.frame.iloc[rows]
        schema = learn(
            frame,
            skip=[target.name],
            categorical=command.categorical,
            columns=command.columns or None,
            drop=command.drop,
            decimal=decimal,
        )
    log_targets = _wants_log(command, target, targets)
    without = without_target(table.frame, rows, target)
    for sentence in (*table.notes, *without, *target.notes, *schema.notes):
        note(sentence)
    if len(rows) < _FEW_ROWS:
        note(f"{len(rows)} rows are very few, both to learn from and to validate on")
    note(f"{target.task}, because {target.why}; change it with --task" if target.why else "")
    estimator = _estimator(command, target, log_targets)
    used, inputs = len(schema.used), len(schema.features(one_hot=True))
    tell(
        f"{len(rows)} rows, {used} column{'s' * (used != 1)} ({inputs} input{'s' * (inputs != 1)} after "
        f"encoding); training with {command.method}."
    )
    _train(estimator, frame, targets, schema, checkpoint, command.resume)
    note(_about_log(command, estimator, target))
    stopped = estimator.interrupted_
    if stopped and estimator.history_.best_step == 0:
        sys.stderr.write(
            "partialbayes: stopped before there was a model"
            + ("" if command.method == CROSSFIT else f"; continue from {checkpoint} with --resume")
            + "\n"
        )
        return 130
    if target.task == "classification":
        targets = number_labels(targets, estimator.classes_, target)
    # The rows that no member has seen; with cross-fitting there are none.
    held_out = None if estimator._is_crossfit() else estimator._divide(targets, estimator._seed)[1]
    notes = _notes_of(command, estimator, target, rows, targets, held_out)
    estimator.save(command.out, overwrite=command.overwrite or resumes, notes=notes)
    if stopped:
        more = "" if command.method == CROSSFIT else " Continue the run with --resume."
        sys.stderr.write(
            f"partialbayes: stopped; the best model so far, from step {estimator.history_.best_step}, "
            f"is in {command.out}.{more}\n"
        )
        return 130
    checkpoint.unlink(missing_ok=True)
    _tell_of_training(estimator, command.out, frame, targets, held_out)
    return 0


def _wants_log(command: Any, target: Any, targets: Any) -> bool | None:
    """Return whether to train on logarithms; None if out-of-fold rows decide."""
    from partialbayes.estimators._methods import CROSSFIT
    from partialbayes.estimators._target import has_long_tail

    if target.task == "classification":
        return False
    if command.log_targets is not None:
        if command.log_targets and np.min(targets) <= 0:
            raise TableError(f"--log-targets: {target.name} is not positive in every row.")
        return bool(command.log_targets)
    return None if command.method == CROSSFIT else has_long_tail(targets)


def _about_log(command: Any, estimator: Any, target: Any) -> str:
    """Return a sentence on a logarithm that was taken by default."""
    from partialbayes.estimators._methods import CROSSFIT

    if command.log_targets is not None or not _took_logs(estimator):
        return ""
    why = ", which predicts better here" if command.method == CROSSFIT else ""
    return (
        f"{target.name} is positive and has a long tail, so its logarithm is learned{why}, and no "
        "interval reaches below zero; turn this off with --log-targets False"
    )


def _took_logs(estimator: Any) -> bool:
    return estimator.target_scale_ is not None and bool(estimator.target_scale_.log)


def _estimator(command: Any, target: Any, log_targets: bool | None) -> Any:
    from partialbayes.cli._options import estimator_options
    from partialbayes.estimators import _estimators as estimators

    classifies = target.task == "classification"
    kind = estimators.PartialBNNClassifier if classifies else estimators.PartialBNNRegressor
    settings = {name: getattr(command, name) for name in estimator_options()}
    settings["log_targets"] = log_targets
    return kind(**settings, random_state=command.seed, verbose=on_terminal())


def _train(
    estimator: Any, frame: Any, targets: Any, schema: Any, checkpoint: Path, resume: bool
) -> None:
    from partialbayes._engine.settings import Run

    names = [column.name for column in schema.used]
    doing = "compiling the training program, which takes some seconds the first time"
    if not on_terminal():
        tell(f"{doing}.")
    with status(doing):
        run = Run(
            checkpoint=checkpoint,
            resume=resume,
            callbacks=[_status_clearer()] if on_terminal() else [_lines()],
            on_interrupt="return",
        )
        estimator.fit(frame[names], targets, schema=schema, run=run)


def _status_clearer() -> Callable[[Any], None]:
    """Make a callback that clears the status line once there is a progress bar."""
    cleared = False

    def callback(progress: Any) -> None:
        nonlocal cleared
        if not cleared:
            cleared = True
            clear_status()

    return callback


def _lines() -> Callable[[Any], None]:
    """Make a callback that prints the step after every quarter of the training."""
    printed = 0.0

    def callback(progress: Any) -> None:
        nonlocal printed
        done = progress.begin + len(next(iter(progress.infos.values())))
        if done / progress.num_steps >= printed + 0.25 or done == progress.num_steps:
            printed = done / progress.num_steps
            tell(f"step {done} of {progress.num_steps}")

    return callback


def _notes_of(
    command: Any, estimator: Any, target: Any, rows: Any, targets: Any, held_out: Any
) -> dict[str, Any]:
    """Collect facts about the training as JSON values."""
    from partialbayes.reporting._baseline import Baseline

    if target.task == "regression":
        baseline = Baseline.of_numbers(targets, _took_logs(estimator))
    else:
        baseline = Baseline.of_classes(targets, len(estimator.classes_))
    return {
        "target": target._asdict(),
        "data": str(command.table.resolve()),
        "digest": digest(command.table),
        "rows": len(rows),
        "held_out": [] if held_out is None else rows[held_out].tolist(),
        "baseline": baseline._asdict(),
        "seed": command.seed,
        "when": datetime.now().astimezone().isoformat(timespec="seconds"),
    }


def _tell_of_training(estimator: Any, out: Path, frame: Any, targets: Any, held_out: Any) -> None:
    from partialbayes import metrics
    from partialbayes.reporting._html import short

    split = estimator.model_.split
    total = sum(leaf.size for leaf in split.leaves)
    tell(f"{split.dim} of {total} weights are random.")
    history = estimator.history_
    if len(history.validation_nlpd) and not estimator._is_crossfit():
        steps = len(history.metrics["loss"])
        tell(f"{steps} steps; the posterior after step {history.best_step} was the best.")
    is_classifier = hasattr(estimator, "classes_")
    if estimator._is_crossfit() and estimator.oof_predictive_ is not None:
        what = "accuracy" if is_classifier else "R²"
        tell(f"on all rows, by members that have not seen them: {what} {estimator.oof_score_:.3f}.")
    if held_out is not None and len(held_out) >= FEWEST_HELD_OUT:
        with status("scoring the rows held out"):
            inputs = frame[list(estimator.feature_names_in_)].iloc[held_out]
            scores = metrics.evaluate(estimator.predictive(inputs), targets[held_out])
        found = (
            f"accuracy {scores['accuracy']:.3f}, NLPD {short(scores['nlpd'])}"
            if is_classifier
            else f"R² {scores['r2']:.3f}, RMSE {short(scores['rmse'])}, CRPS {short(scores['crps'])}, "
            f"NLPD {short(scores['nlpd'])}, {100 * scores['coverage']:.0f} % inside their 90 % "
            "intervals"
        )
        tell(f"on the {len(held_out)} rows that chose it: {found}.")
    tell(f"the model is in {out}.")

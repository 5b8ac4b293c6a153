"""What the commands of the command line do, each with its parsed arguments; they return exit codes."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from partialbayes.errors import CheckpointError, TableError


def _log_lines() -> None:
    """What the library logs, as plain lines on standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    logger = logging.getLogger("partialbayes")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)


def _tell(line: str = "") -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def fit(command: Any) -> int:
    """Train on a table and save the model."""
    from partialbayes._engine.checkpoints import Checkpoints
    from partialbayes.estimators import _estimators as estimators
    from partialbayes.estimators import _tables as tables
    from partialbayes.estimators._methods import require_method
    from partialbayes.io._model_folder import require_free

    require_method(command.method)
    require_free(command.out, overwrite=command.overwrite, remedy="--overwrite")
    checkpoint = command.out.with_name(command.out.name + ".checkpoint")
    if checkpoint.exists() and not command.resume:
        raise CheckpointError(
            f"there is an unfinished run at {checkpoint}: go on with it by --resume, or remove it."
        )
    frame = tables.read_table(command.data)
    schema = tables.learn_schema(frame, command.target, command.task)
    for note in schema.notes:
        _tell(note + ".")
    rows, targets = tables.targets_of(frame, schema)
    inputs = tables.encode(rows, schema)
    kind = (
        estimators.PartialBNNRegressor
        if schema.task == "regression"
        else estimators.PartialBNNClassifier
    )
    on_terminal = sys.stderr.isatty()
    estimator = kind(
        method=command.method,
        stochastic=command.stochastic,
        epochs=command.epochs,
        num_particles=command.num_particles,
        random_state=command.seed,
        verbose=on_terminal,
    )
    _tell(f"{len(rows)} rows, {inputs.shape[1]} inputs after encoding; training by {command.method}.")
    estimator.fit(
        inputs,
        targets,
        checkpoint=Checkpoints(checkpoint),
        resume=command.resume,
        callbacks=() if on_terminal else [_lines()],
    )
    if estimator.interrupted_:
        sys.stderr.write(f"partialbayes: stopped; go on by --resume ({checkpoint} has it all)\n")
        return 130
    notes = {"table": schema._asdict(), "data": str(command.data.resolve()), "rows": len(rows)}
    estimator.save(command.out, overwrite=command.overwrite, notes=notes)
    checkpoint.unlink(missing_ok=True)
    split = estimator.model_.split
    total = sum(leaf.size for leaf in split.leaves)
    _tell(f"{split.dim} of {total} weights are random.")
    scores, steps = estimator.history_.validation_nlpd, len(estimator.history_.metrics["loss"])
    if len(scores):
        _tell(f"{steps} steps; the best posterior was that after step {estimator.history_.best_step}.")
        units = " (targets standardized)" if schema.task == "regression" else ""
        _tell(f"best NLPD on held-out rows: {np.nanmin(scores):.4f}{units}")
    _tell(f"the model is in {command.out}.")
    return 0


def _lines() -> Callable[[Any], None]:
    """A callback that says now and then how far training is."""
    told = 0.0

    def callback(progress: Any) -> None:
        nonlocal told
        done = progress.begin + len(next(iter(progress.infos.values())))
        if done / progress.num_steps >= told + 0.25 or done == progress.num_steps:
            told = done / progress.num_steps
            _tell(f"step {done} of {progress.num_steps}")

    return callback


def _load(folder: Path) -> tuple[Any, Any]:
    """The estimator in a folder, and the schema of its table."""
    from partialbayes.estimators import _estimators as estimators
    from partialbayes.estimators import _tables as tables
    from partialbayes.io._model_folder import read_description

    metadata = read_description(folder)["metadata"]
    kind = {
        "PartialBNNRegressor": estimators.PartialBNNRegressor,
        "PartialBNNClassifier": estimators.PartialBNNClassifier,
    }.get(metadata.get("estimator"))
    table = (metadata.get("notes") or {}).get("table")
    if kind is None or table is None:
        raise CheckpointError(f"{folder} was not written by the command line: it has no table.")
    return kind.load(folder), tables.Schema(**table)


def _training_file(folder: Path) -> Path:
    from partialbayes.io._model_folder import read_description

    return Path(read_description(folder)["metadata"]["notes"]["data"])


def predict(command: Any) -> int:
    """Predict the rows of a table."""
    import pandas as pd

    from partialbayes.estimators import _tables as tables

    estimator, schema = _load(command.model)
    inputs = tables.encode(tables.read_table(command.data), schema)
    predictive = estimator.predictive(inputs)
    if schema.task == "regression":
        low, high = predictive.interval(command.coverage)
        columns = {
            "mean": predictive.mean,
            "std": predictive.std,
            "low": low,
            "high": high,
            "epistemic_std": np.sqrt(np.asarray(predictive.epistemic_variance)),
        }
    else:
        probabilities = np.asarray(predictive.probabilities)
        columns = {"prediction": estimator.classes_[probabilities.argmax(axis=1)]}
        for label, column in zip(estimator.classes_, probabilities.T, strict=True):
            columns[f"probability_{label}"] = column
        columns |= {"entropy": predictive.entropy, "epistemic": predictive.mutual_information}
    frame = pd.DataFrame({name: np.asarray(values) for name, values in columns.items()})
    tables.write_table(command.out, frame)
    _tell(f"{len(frame)} predictions of {schema.target} are in {command.out}.")
    return 0


def evaluate(command: Any) -> int:
    """Print the scores of a model on a table."""
    from partialbayes import metrics
    from partialbayes.estimators import _tables as tables
    from partialbayes.metrics._registry import SCORES

    estimator, schema = _load(command.model)
    rows, targets = tables.targets_of(tables.read_table(command.data), schema)
    if schema.task == "classification":
        targets = _number(targets, estimator.classes_, schema.target)
    scores = metrics.evaluate(estimator.predictive(tables.encode(rows, schema)), targets)
    for name, value in scores.items():
        _tell(f"{SCORES[name].title:<27} {value:.4f}")
    return 0


def _number(labels: Any, classes: Any, target: str) -> Any:
    """Labels by their place among the classes."""
    places = {str(label): place for place, label in enumerate(classes)}
    for label in labels:
        if str(label) not in places:
            raise TableError(f"{target} holds {str(label)!r}, which was not there in training.")
    return np.asarray([places[str(label)] for label in labels], np.int32)


def report(command: Any) -> int:
    """Write the page on a model."""
    import partialbayes
    from partialbayes.estimators import _tables as tables

    estimator, schema = _load(command.model)
    rows, targets = tables.targets_of(
        tables.read_table(command.data or _training_file(command.model)), schema
    )
    if schema.task == "classification":
        targets = _number(targets, estimator.classes_, schema.target)
    partialbayes.report(
        estimator.model_,
        estimator.posterior_,
        (estimator._standardize(tables.encode(rows, schema)), targets),
        command.out,
        history=getattr(estimator, "history_", None),
        target_scale=estimator.target_scale_,
        title=f"{schema.target}, by {estimator.method}",
    )
    _tell(f"the report is in {command.out}.")
    return 0


def methods(command: Any) -> int:
    """Print the training methods."""
    from partialbayes.estimators._methods import describe

    _tell(describe())
    return 0


def demo(command: Any) -> int:
    """Two moons, by random weights and by a single point."""
    from sklearn.datasets import make_moons

    from partialbayes.estimators._estimators import PartialBNNClassifier

    x, y = make_moons(400, noise=0.3, random_state=command.seed)
    _tell("Two moons: 200 points to train on, 200 to test. Half a minute.")
    _tell()
    _tell("                 NLPD  accuracy   p far away   disagreement far away (nats)")
    for method, name in (("ohsmc", "random weights"), ("map_estimate", "one point")):
        settings = {"method": method, "stochastic": "layers/1/**", "random_state": command.seed}
        model = PartialBNNClassifier((50, 20, 5), **settings).fit(x[:200], y[:200])
        own = model.predict_proba(x[200:])[np.arange(200), y[200:]]
        far = model.predictive(np.array([[-6.0, 6.0], [6.0, -6.0], [6.0, 6.0]]))
        sure = np.asarray(far.probabilities).max(axis=1).mean()
        split = np.asarray(far.mutual_information).mean()
        score = model.score(x[200:], y[200:])
        _tell(f"{name:<14} {-np.mean(np.log(own)):6.3f}  {score:8.3f}   {sure:10.3f}   {split:12.3f}")
    _tell()
    _tell("Next: partialbayes fit your.csv --target column --out model")
    return 0

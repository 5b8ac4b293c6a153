"""The command line: a table in a file, a model in a folder, predictions in a file.

Exit codes: 0 all is well, 1 training failed, 2 something about the arguments or files is wrong, 130
interrupted. What is wrong is one sentence on standard error, and nothing is left half-written.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import tyro

from partialbayes.checkpoint import CheckpointError
from partialbayes.fit import TrainingDivergedError
from partialbayes.tables import TableError

EXAMPLES = """Calibrated predictions from tables, by networks with random weights.

Examples:

partialbayes demo

partialbayes fit houses.csv --target price --out model

partialbayes predict model new.csv --out predictions.csv

partialbayes evaluate model held_out.csv

partialbayes report model held_out.csv --out report.html
"""


@dataclass
class Fit:
    """Train a model on a table.

    Example: partialbayes fit houses.csv --target price --out model
    """

    data: tyro.conf.Positional[Path]
    """CSV or Parquet file."""
    target: str
    """The column to predict."""
    out: Path
    """The folder to write the model to."""
    task: Literal["regression", "classification"] | None = None
    """Guessed from the target if not given."""
    method: str = "ohsmc"
    """How to train; "partialbayes methods" lists them."""
    stochastic: str = "last"
    """Which weights are random: last, first, biases, all, or a pattern such as layers/1/**."""
    epochs: int | None = None
    """How often to go through the rows; as often as makes 2000 steps by default."""
    num_particles: int = 200
    """Samples of the random weights."""
    seed: int = 0
    """The same seed gives the same model."""
    resume: bool = False
    """Go on with a run that was stopped."""
    overwrite: bool = False
    """Replace a model that is there already."""


@dataclass
class Predict:
    """Predict the rows of a table.

    Example: partialbayes predict model new.csv --out predictions.csv
    """

    model: tyro.conf.Positional[Path]
    """Folder that "fit" wrote."""
    data: tyro.conf.Positional[Path]
    """CSV or Parquet file; the target column is not needed."""
    out: Path
    """CSV or Parquet file to write."""
    coverage: float = 0.9
    """Probability inside the interval of a regression."""


@dataclass
class Evaluate:
    """Score a model on a table that has the target.

    Example: partialbayes evaluate model held_out.csv
    """

    model: tyro.conf.Positional[Path]
    """Folder that "fit" wrote."""
    data: tyro.conf.Positional[Path]
    """CSV or Parquet file with the target column."""


@dataclass
class Report:
    """Write a page (HTML) on a model: what was trained, how it went, how good it is.

    Example: partialbayes report model held_out.csv --out report.html
    """

    model: tyro.conf.Positional[Path]
    """Folder that "fit" wrote."""
    data: tyro.conf.Positional[Path | None] = None
    """CSV or Parquet file with the target column, such as held-out rows; the training file if not
    given."""
    out: Path = Path("report.html")
    """The page to write."""


@dataclass
class Methods:
    """List the training methods, one line each."""


@dataclass
class Demo:
    """Train on two moons and show what the probabilities know."""

    seed: int = 0
    """Of the data and the training."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    runners: dict[type, Callable[[Any], int]] = {
        Fit: _fit,
        Predict: _predict,
        Evaluate: _evaluate,
        Report: _report,
        Methods: _methods,
        Demo: _demo,
    }
    named = [
        Annotated[kind, tyro.conf.subcommand(kind.__name__.lower(), prefix_name=False)]
        for kind in runners
    ]
    union: Any = named[0]
    for kind in named[1:]:
        union = union | kind
    try:
        command = tyro.cli(union, args=arguments, prog="partialbayes", description=EXAMPLES)
        return runners[type(command)](command)
    except SystemExit as stop:  # --help, or arguments that do not parse
        return int(stop.code or 0)
    except TrainingDivergedError as error:
        return _say(str(error), 1)
    except (TableError, CheckpointError, ValueError, ImportError) as error:
        return _say(str(error), 2)
    except KeyboardInterrupt:
        return _say("interrupted", 130)


def _say(sentence: str, code: int) -> int:
    sys.stderr.write(f"partialbayes: {sentence}\n")
    return code


def _tell(line: str = "") -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _fit(command: Any) -> int:
    from partialbayes import estimators, tables
    from partialbayes.methods import require_method
    from partialbayes.resume import Checkpoints
    from partialbayes.saving import require_free

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
        progress=on_terminal,
    )
    _tell(f"{len(rows)} rows, {inputs.shape[1]} inputs after encoding; training by {command.method}.")
    estimator.fit(
        inputs,
        targets,
        checkpoint=Checkpoints(checkpoint),
        resume=command.resume,
        callbacks=() if on_terminal else [_lines()],
    )
    if estimator.stopped_:
        return _say(f"stopped; go on by --resume ({checkpoint} has it all)", 130)
    notes = {"table": schema._asdict(), "data": str(command.data.resolve()), "rows": len(rows)}
    estimator.save(command.out, overwrite=command.overwrite, notes=notes)
    checkpoint.unlink(missing_ok=True)
    split = estimator.model_.split
    total = sum(leaf.size for leaf in split.leaves)
    _tell(f"{split.dim} of {total} weights are random.")
    scores = estimator.history_.validation_nlpd
    if len(scores):
        units = " (targets standardised)" if schema.task == "regression" else ""
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
    from partialbayes import estimators, tables
    from partialbayes.saving import read_description

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
    from partialbayes.saving import read_description

    return Path(read_description(folder)["metadata"]["notes"]["data"])


def _predict(command: Any) -> int:
    import pandas as pd

    from partialbayes import tables

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
            "epistemic_std": np.sqrt(np.asarray(predictive.epistemic)),
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


def _evaluate(command: Any) -> int:
    from partialbayes import tables
    from partialbayes.metrics import expected_calibration_error

    estimator, schema = _load(command.model)
    rows, targets = tables.targets_of(tables.read_table(command.data), schema)
    predictive = estimator.predictive(tables.encode(rows, schema))
    if schema.task == "regression":
        error = np.asarray(predictive.mean) - targets
        low, high = predictive.interval(0.9)
        scores = {
            "NLPD": -np.mean(predictive.log_density(targets)),
            "RMSE": np.sqrt(np.mean(error**2)),
            "MAE": np.mean(np.abs(error)),
            "coverage of 90 % intervals": np.mean((low <= targets) & (targets <= high)),
        }
    else:
        labels = _numbered(targets, estimator.classes_, schema.target)
        probabilities = np.asarray(predictive.probabilities)
        chosen = probabilities.argmax(axis=1)
        scores = {
            "NLPD": -np.mean(predictive.log_density(labels)),
            "accuracy": np.mean(chosen == labels),
            "ECE": expected_calibration_error(probabilities, labels),
        }
    for name, value in scores.items():
        _tell(f"{name:<27} {float(value):.4f}")
    return 0


def _numbered(labels: Any, classes: Any, target: str) -> Any:
    """Labels by their place among the classes."""
    places = {str(label): place for place, label in enumerate(classes)}
    for label in labels:
        if str(label) not in places:
            raise TableError(f"{target} holds {str(label)!r}, which was not there in training.")
    return np.asarray([places[str(label)] for label in labels], np.int32)


def _report(command: Any) -> int:
    import partialbayes
    from partialbayes import tables

    estimator, schema = _load(command.model)
    rows, targets = tables.targets_of(
        tables.read_table(command.data or _training_file(command.model)), schema
    )
    if schema.task == "classification":
        targets = _numbered(targets, estimator.classes_, schema.target)
    partialbayes.report(
        estimator.model_,
        estimator.posterior_,
        (estimator._standardised(tables.encode(rows, schema)), targets),
        command.out,
        history=getattr(estimator, "history_", None),
        target_scale=estimator.target_scale_,
        title=f"{schema.target}, by {estimator.method}",
    )
    _tell(f"the report is in {command.out}.")
    return 0


def _methods(command: Any) -> int:
    from partialbayes.methods import describe

    _tell(describe())
    return 0


def _demo(command: Any) -> int:
    from sklearn.datasets import make_moons

    from partialbayes.estimators import PartialBNNClassifier

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

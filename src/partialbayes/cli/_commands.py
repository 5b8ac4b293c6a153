"""Implement the commands predict, evaluate, methods and demo. Each returns an exit code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from partialbayes.cli._files import Loaded, load, note, require_writable, rows_of
from partialbayes.cli._terminal import pieces, status, tell
from partialbayes.errors import TableError

_ROWS_AT_A_TIME = 8192
_HUGE = 1e15  # larger numbers are written with an exponent


def predict(command: Any) -> int:
    """Predict the rows of a table."""
    import pandas as pd

    from partialbayes.estimators._reader import write_table
    from partialbayes.estimators._schema import as_columns, require_columns

    loaded = load(command.model)
    require_writable(command.out)
    if not 0.0 < command.coverage < 1.0:
        raise TableError(f"--coverage must lie between 0 and 1, not {command.coverage}.")
    if command.conformal:
        try:
            loaded.estimator._require_conformity()
        except ValueError as error:
            raise TableError(f"--conformal: {error}") from None
    rows = rows_of(command, loaded, command.table)
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
        found.append(_predictions(loaded, part, command.coverage, command.conformal))
    predicted = {name: np.concatenate([part[name] for part in found]) for name in found[0]}
    if command.out.suffix.lower() not in (".parquet", ".pq"):
        predicted = _readable(predicted, loaded.target.task)
    for name, values in predicted.items():
        columns[f"predicted_{name}" if name in columns else name] = values
    frame = pd.DataFrame(columns)
    write_table(command.out, frame)
    for sentence in rows.notes:
        note(sentence)
    tell(f"{len(frame)} predictions of {loaded.target.name} are in {command.out}.")
    return 0


def _predictions(loaded: Loaded, encoded: Any, coverage: float, conformal: bool) -> dict[str, Any]:
    predictive = loaded.estimator.predictive(encoded)
    if loaded.target.task == "regression":
        low, median, high = predictive.quantile([0.5 - 0.5 * coverage, 0.5, 0.5 + 0.5 * coverage])
        if conformal:
            low, high = loaded.estimator.predict_interval(encoded, coverage, method="conformal")
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
        if conformal:
            sets = loaded.estimator.predict_set(encoded, coverage)
            labels = [", ".join(map(str, loaded.estimator.classes_[row])) for row in sets]
            found["set"] = np.asarray(labels, object)
    return {name: np.asarray(values) for name, values in found.items()}


def _readable(columns: Mapping[str, Any], task: str) -> dict[str, Any]:
    """Format numbers with as many digits as the uncertainty justifies, and without exponents."""
    decimals = 5
    if task == "regression":
        spread = float(np.median(columns["std"]))
        decimals = int(np.clip(2 - np.floor(np.log10(spread)), 0, 12)) if spread > 0 else 6

    def number(value: float) -> str:
        if abs(value) >= _HUGE:
            return f"{value:.6g}"
        return f"{round(value, decimals) + 0.0:.{decimals}f}"  # + 0.0: no minus sign before a zero

    def text(values: Any) -> Any:
        if values.dtype.kind != "f":
            return values
        return np.asarray([number(float(value)) for value in values], object)

    return {name: text(values) for name, values in columns.items()}


def evaluate(command: Any) -> int:
    """Print the scores of a model on a table."""
    from partialbayes import metrics
    from partialbayes.metrics._registry import SCORES
    from partialbayes.reporting._baseline import Baseline
    from partialbayes.reporting._html import short

    loaded = load(command.model)
    rows = rows_of(command, loaded, command.table, with_targets=True)
    with status(f"predicting {len(rows.frame)} rows"):
        scores = metrics.evaluate(rows.predictive(), rows.targets)
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
    for sentence in rows.notes:
        note(sentence)
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
    is_regression = loaded.target.task == "regression"
    tell()
    tell(
        "The baseline ignores the inputs: it always predicts the distribution of the training "
        f"{'targets' if is_regression else 'classes'}."
    )
    return 0


def _which(are: str) -> str:
    return {
        "training": ", on which it was trained: expect worse scores on new rows",
        "out of fold": ", on which it was trained; each is predicted by members that have not seen it",
        "held out": ", which were held out from training to choose when to stop",
    }.get(are, "")


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def methods(command: Any) -> int:
    """Print the training methods."""
    from partialbayes.estimators._methods import describe

    tell(describe())
    return 0


def demo(command: Any) -> int:
    """Train on two moons with random weights and with a point estimate, and compare."""
    from sklearn.datasets import make_moons

    from partialbayes.estimators._estimators import PartialBNNClassifier

    x, y = make_moons(400, noise=0.3, random_state=command.seed)
    tell("Two moons: 200 training points, 200 test points. This takes half a minute.")
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

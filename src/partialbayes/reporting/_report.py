"""Write one HTML page about a trained model: the data, its scores, its uncertainty.

The page is a single file with its pictures inside, without scripts or outside resources. A folded
section at its end shows the inside of the method.
"""

from __future__ import annotations

import html
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from partialbayes import metrics, plots
from partialbayes._engine.diagnostics import findings
from partialbayes._utils.checks import require_instance, require_positive_int
from partialbayes.callbacks import Snapshots
from partialbayes.metrics._registry import SCORES
from partialbayes.model._batch import as_batch
from partialbayes.model._partial_bnn import noise_of
from partialbayes.plots._style import evenly
from partialbayes.plots._training import curves
from partialbayes.prediction._predict import predict
from partialbayes.prediction._predictive import Predictive
from partialbayes.prediction._target_scale import TargetScale
from partialbayes.reporting._baseline import Baseline
from partialbayes.reporting._html import picture, short, write_page
from partialbayes.results import ChainReport, Fit, History
from partialbayes.types import Chunks, Model, Posterior, Report

_MOST_COLUMNS = 40  # for which the importance is computed
_PERMUTED_ROWS = 500
_FEWEST_ROWS = 5  # for sections on single rows or columns
_UNSURE = 10  # rows to show
_MOST_CLASSES = 20  # in a confusion matrix


class About(NamedTuple):
    """Information about the data for the reader of a report; everything is optional.

    Attributes:
        target: The name of the target.
        facts: Facts by name, such as the source of the data, the date, the version and the seed.
        columns: The name, the kind and a remark of each column of the table.
        notes: Remarks on the table, as sentences.
        classes: Names of the classes.
        rows: The kind of rows that are scored: "held out", "out of fold", "training" or "new"; None if
            unknown.
        names: The name of each row.
        groups: The columns of the inputs that each column of the table became.
        baseline: The baseline of the training targets.
        predict: ``(inputs, rows) -> Predictive``, from inputs and their positions among the rows of the
            data, if it is not the model and the posterior that predict: for example members that have
            not seen the row.

    Example:
        >>> import partialbayes as pb
        >>> about = pb.reporting.About(target="price", facts={"trained on": "houses.csv"}, rows="new")
    """

    target: str = "the target"
    facts: Mapping[str, str] = {}
    columns: Sequence[tuple[str, str, str]] = ()
    notes: Sequence[str] = ()
    classes: Sequence[str] = ()
    rows: str | None = None
    names: Sequence[str] = ()
    groups: Mapping[str, Sequence[int]] = {}
    baseline: Baseline | None = None
    predict: Callable[[Any, Any], Predictive] | None = None


def report(
    model: Model,
    fitted: Fit | Posterior,
    data: Any,
    path: str | Path = "report.html",
    *,
    history: History | None = None,
    target_scale: Any = None,
    metadata: Mapping[str, Any] | None = None,
    snapshots: Snapshots | None = None,
    title: str = "Partial Bayesian network",
    rows: int = 2000,
    about: About | None = None,
) -> Path:
    """Write a page about a trained model: the data, scores, pictures, uncertain rows.

    Args:
        model: The model that was trained.
        fitted: The result of `fit`; or a posterior, with its ``history`` if there is one.
        data: A pair ``(inputs, targets)`` to score on, best held out from training.
        path: The file to write, atomically.
        history: The history of the posterior.
        target_scale: The scaling of the targets in training; ``data`` has them unscaled.
        metadata: Further facts by name: the name of the data, the method, the seed.
        snapshots: Snapshots from training, for the picture of the particles' flow.
        title: The title of the page.
        rows: The most rows to draw, evenly spaced; the scores are of all rows.
        about: Information about the data.

    Returns:
        The path.

    Raises:
        CheckpointError: The page could not be written.

    Example:
        >>> import pathlib, tempfile, partialbayes as pb
        >>> # model, trained and x as in the example of predict
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     page = pb.report(model, trained, (x, x), pathlib.Path(folder) / "report.html")
        ...     page.read_text()[:15]
        '<!DOCTYPE html>'
    """
    require_instance("model", model, Model, "the one that was trained.")
    require_positive_int("rows", rows, "how many rows of the data to use at most.")
    posterior = fitted.posterior if isinstance(fitted, Fit) else fitted
    history = fitted.history if isinstance(fitted, Fit) else history
    scale = None if target_scale is None else TargetScale(*target_scale)
    about = about or About()
    inputs, targets = _checked(model, data, scale)
    total = len(targets)
    chosen = evenly(total, rows)

    def by_model(inputs: Any, _: Any) -> Predictive:
        return predict(model, posterior, inputs, target_scale=scale, chunks=Chunks(rows=256))

    predict_rows = about.predict or by_model
    whole = predict_rows(inputs, np.arange(total))
    some = whole if len(chosen) == total else predict_rows(_at(inputs, chosen), chosen)
    second_stages = fitted.reports if isinstance(fitted, Fit) else ()
    scores = _evaluated(whole, targets)
    facts = {**about.facts, **{str(name): str(value) for name, value in (metadata or {}).items()}}
    body = [
        *_summary(whole, scores, total, about),
        *_data(facts, about),
        *_scores(scores, targets, about),
        *_classes(whole, targets, about),
        *_predictions(some, targets[chosen], about),
        *_importance(predict_rows, inputs, targets, about),
        *_most_unsure(some, targets[chosen], chosen, about),
        *_findings(history, posterior, second_stages),
        '<details class="inside"><summary>Inside the method</summary>',
        *_what(model, posterior),
        *_training(history, posterior, snapshots),
        "</details>",
    ]
    path = Path(path)
    write_page(path, title, body)
    return path


def _checked(model: Model, data: Any, scale: TargetScale | None) -> tuple[Any, Any]:
    """Return inputs and targets, after the checks of the library."""
    inputs, targets = data if isinstance(data, tuple | list) and len(data) == 2 else (data, None)
    scaled = targets if scale is None or targets is None else scale.apply(targets)
    as_batch(model, (inputs, scaled) if targets is not None else data, "data")
    return inputs, np.asarray(targets)


def _at(inputs: Any, rows: Any) -> Any:
    return jax.tree.map(lambda leaf: np.asarray(leaf)[rows], inputs)


def _evaluated(predictive: Predictive, targets: Any) -> dict[str, float] | str:
    try:
        return metrics.evaluate(predictive, targets)
    except ValueError as error:  # several labels, a likelihood that cannot predict
        return str(error)


def _summary(
    predictive: Predictive, scores: dict[str, float] | str, total: int, about: About
) -> Iterator[str]:
    """Summarize the model in two sentences, with a warning if the rows are those of training."""
    of = {
        "held out": f"{total} rows that were held out from training, to choose when to stop",
        "out of fold": f"the {total} rows of training, each predicted by members that have not seen it",
        "training": f"the {total} rows that it was trained on",
        "new": f"{total} rows of another table",
    }.get(about.rows or "", f"{total} rows")
    kind = "classification" if predictive.model.likelihood.is_classification else "regression"
    columns = sum(what != "left out" for _, what, _ in about.columns)
    source = f" from {columns} columns" if columns else ""
    text = f"A {kind} of {about.target}{source}. Scored on {of}"
    if isinstance(scores, dict) and "r2" in scores:
        inside = f"{100 * scores['coverage']:.0f} % of the targets lie inside their 90 % intervals"
        text += f": it explains {100 * scores['r2']:.0f} % of the variance, and {inside}"
    elif isinstance(scores, dict) and "accuracy" in scores:
        text += f": {100 * scores['accuracy']:.0f} % are classified right"
    yield f'<p class="lead">{html.escape(text)}.</p>'
    if about.rows == "training":
        yield (
            '<p class="alarm">These are the rows the model was trained on. On new rows it will be '
            "worse: hold some rows out, and score those.</p>"
        )


def _data(facts: Mapping[str, str], about: About) -> Iterator[str]:
    if not facts and not about.columns:
        return
    yield "<h2>The data</h2>"
    if facts:
        yield _facts(facts)
    if about.notes:
        notes = "".join(f"<li>{html.escape(note)}.</li>" for note in about.notes)
        yield f'<ul class="note">{notes}</ul>'
    if about.columns:
        left_out = sum(what == "left out" for _, what, _ in about.columns)
        used = len(about.columns) - left_out
        heading = f"{used} columns used" + (f", {left_out} left out" if left_out else "")
        unfolded = " open" if len(about.columns) <= 12 else ""
        table = _grid(["column", "is", ""], about.columns, quiet=(2,))
        yield f"<details{unfolded}><summary>{heading}</summary>{table}</details>"


def _scores(scores: dict[str, float] | str, targets: Any, about: About) -> Iterator[str]:
    yield "<h2>Scores</h2>"
    if isinstance(scores, str):
        yield f"<p>{html.escape(scores)}</p>"
        return
    yield f'<p class="note">On {len(targets)} rows of data.</p>'
    beside = {} if about.baseline is None else about.baseline.scores(targets)
    lines = []
    for name, value in scores.items():
        if name.endswith("_over_particles"):
            continue
        other = [_short(beside[name]) if name in beside else ""] if beside else []
        lines.append([SCORES[name].title, _short(value), *other, SCORES[name].meaning])
    if not beside:
        yield _grid(["", "model", ""], lines, numbers=(1,), quiet=(2,), style="scores")
        return
    yield _grid(["", "model", "baseline", ""], lines, numbers=(1, 2), quiet=(3,), style="scores")
    yield (
        '<p class="note">The baseline uses no column: it predicts the distribution of the training '
        "targets, or the frequencies of the classes, for every row.</p>"
    )


def _classes(predictive: Predictive, targets: Any, about: About) -> Iterator[str]:
    """Count the rows of each class, and the classes they are predicted as."""
    if not predictive.model.likelihood.is_classification or predictive.probabilities.ndim != 2:
        return
    probabilities = np.asarray(predictive.probabilities)
    number = probabilities.shape[1]
    if number > _MOST_CLASSES:
        yield f'<p class="note">{number} classes; the confusion matrix is left out.</p>'
        return
    names = _class_names(about, number)
    labels = np.asarray(targets).astype(int).reshape(len(targets))
    counts = np.zeros((number, number), int)
    np.add.at(counts, (labels, probabilities.argmax(axis=1)), 1)
    yield "<h2>Which class is taken for which</h2>"
    head = "".join(f'<th class="number">{html.escape(name)}</th>' for name in names)
    lines = ""
    for row, name in enumerate(names):
        total = int(counts[row].sum())
        cells = "".join(
            f'<td class="number {"right" if row == column else "wrong"}" '
            f'style="--share:{count / max(1, total):.2f}">{count}</td>'
            for column, count in enumerate(counts[row])
        )
        lines += f'<tr><th>{html.escape(name)}</th>{cells}<td class="number note">{total}</td></tr>'
    yield (
        f'<div class="wide"><table class="confusion"><tr><th>is ↓ predicted →</th>{head}'
        f'<th class="number note">rows</th></tr>{lines}</table></div>'
    )


def _class_names(about: About, number: int) -> list[str]:
    if len(about.classes) == number:
        return [str(name) for name in about.classes]
    return [f"class {place}" for place in range(number)]


def _importance(
    predict_rows: Callable[[Any, Any], Predictive], inputs: Any, targets: Any, about: About
) -> Iterator[str]:
    """Measure how much the NLPD rises when a column is shuffled among the rows."""
    if not (hasattr(inputs, "shape") and len(inputs.shape) == 2 and len(targets) >= _FEWEST_ROWS):
        return
    groups = dict(about.groups) or {f"input {place}": [place] for place in range(inputs.shape[1])}
    if len(groups) < 2 or len(groups) > _MOST_COLUMNS:
        return
    chosen = evenly(len(targets), _PERMUTED_ROWS)
    rows, observed = np.asarray(inputs)[chosen], targets[chosen]
    random = np.random.default_rng(0)
    risen = {}
    try:
        before = float(metrics.nlpd(predict_rows(rows, chosen), observed))
        for name, places in groups.items():
            shuffled = rows.copy()
            shuffled[:, list(places)] = rows[random.permutation(len(rows))][:, list(places)]
            risen[name] = float(metrics.nlpd(predict_rows(shuffled, chosen), observed)) - before
    except ValueError:  # a likelihood that cannot score these
        return
    largest = max(*risen.values(), 1e-9)
    lines = "".join(
        f'<tr><td>{html.escape(name)}</td><td class="bar">'
        f'<span style="width:{100 * max(rise, 0.0) / largest:.1f}%"></span></td>'
        f'<td class="number">{rise:+.3f}</td></tr>'
        for name, rise in sorted(risen.items(), key=lambda pair: -pair[1])
    )
    yield "<h2>Which columns matter</h2>"
    yield (
        '<p class="note">The rise of the NLPD, in nats, when the column is shuffled among the rows, so '
        "that it carries no information. Columns with the same information share their importance.</p>"
    )
    yield f'<div class="wide"><table class="bars">{lines}</table></div>'


def _most_unsure(predictive: Predictive, targets: Any, chosen: Any, about: About) -> Iterator[str]:
    """List the rows whose prediction is least certain."""
    is_classification = predictive.model.likelihood.is_classification
    if len(chosen) < _FEWEST_ROWS:
        return
    if predictive.probabilities.ndim != 2 if is_classification else predictive.mean.ndim != 1:
        return
    spread = np.asarray(predictive.entropy if is_classification else predictive.std)
    scale = predictive.target_scale
    if scale is not None and scale.log:  # otherwise these would be the largest targets
        spread = spread / np.asarray(predictive.mean)
    order = np.argsort(-spread)[:_UNSURE]
    names = [about.names[row] if len(about.names) > row else f"row {row + 1}" for row in chosen]
    observed = np.ravel(targets)
    if is_classification:
        probabilities = np.asarray(predictive.probabilities)
        best, highest = probabilities.argmax(axis=1), probabilities.max(axis=1)
        classes = _class_names(about, probabilities.shape[1])
        head = ["row", "prediction", "probability", "observed"]
        lines = [
            (names[row], classes[best[row]], f"{highest[row]:.2f}", classes[int(observed[row])])
            for row in order
        ]
    else:
        low, high = (np.asarray(end) for end in predictive.interval(0.9))
        mean = np.asarray(predictive.mean)
        head = ["row", "mean", "90 % interval", "observed"]
        numbers = [[_short(part[row]) for part in (mean, low, high, observed)] for row in order]
        lines = [
            (names[row], middle, f"{bottom} to {top}", true)
            for row, (middle, bottom, top, true) in zip(order, numbers, strict=True)
        ]
    yield "<h2>The rows it is least sure of</h2>"
    yield _grid(head, lines, numbers=(1, 2, 3), style="rows")


def _findings(
    history: History | None, posterior: Posterior, second_stages: Sequence[Report]
) -> Iterator[str]:
    yield "<h2>How training went</h2>"
    found: list[str] = []
    if history is not None:
        num_particles = posterior.num_particles
        ran = len(history.metrics["loss"]) if "loss" in history.metrics else int(history.best_step)
        kept = f"The posterior is that of step {history.best_step} of {ran}."
        scores = (history.eval_steps, history.validation_nlpd)
        found = findings(history.metrics, num_particles, *scores, history.departure)
    for report in second_stages:
        if isinstance(report, ChainReport) and (largest := float(np.max(report.r_hat))) > 1.05:
            found.append(f"R-hat of the second stage is {largest:.2f}, above 1.05: run it for longer.")
    if history is None and not found:
        yield "<p>There is no record of the run.</p>"
    elif found:
        lead = f"<p>{kept}</p>" if history is not None else ""
        yield lead + "<ul>" + "".join(f"<li>{html.escape(text)}</li>" for text in found) + "</ul>"
    else:
        yield f"<p>{kept} Nothing stands out in the record of the run.</p>"


def _what(model: Model, posterior: Posterior) -> Iterator[str]:
    facts = posterior._facts() | model._facts()
    if not posterior.is_ensemble:
        for name, value in noise_of(model, posterior).items():
            if np.size(value) <= 4:
                facts[f"likelihood, {name}"] = np.array2string(np.asarray(value), precision=4)
    yield "<h3>What was trained</h3>"
    yield _facts(facts)
    yield f"<pre>{html.escape(model.split.describe(posterior.particles.log_weights.size))}</pre>"


def _predictions(predictive: Predictive, targets: Any, about: About) -> Iterator[str]:
    yield '<h2>Predictions</h2><div class="row">'
    inputs = predictive.inputs
    columns = inputs.shape[1] if hasattr(inputs, "shape") and inputs.ndim == 2 else None
    if predictive.model.likelihood.is_classification:
        if predictive.probabilities.ndim == 2:
            labels = targets.astype(int).reshape(len(targets))
            caption = "Reliability diagram: how often the prediction is right, by how sure it is"
            yield _figure(caption, partial(plots.reliability, predictive.probabilities, labels))
            if columns == 2:
                trained = (predictive.model, predictive.posterior)
                caption = "Decision boundary of the mixture (color) and of single particles (lines)"
                yield _figure(caption, partial(plots.decision_boundary, *trained, (inputs, labels)))
    elif predictive.mean.ndim == 1:
        if columns == 1:
            pair = (inputs, targets)
            draw = partial(plots.predictive_bands, predictive, pair)
            yield _figure("Predictive mean and intervals", draw)
        caption = f"Predicted {about.target} against observed: the dashed line is a perfect prediction"
        yield _figure(caption, partial(plots.predicted_against_observed, predictive, targets))
        if predictive.model.likelihood.cdf is not None:
            for caption, plot in (
                ("Coverage of central intervals: below the line they are too narrow", plots.coverage),
                ("Probability integral transform: flat if the distributions are right", plots.pit),
            ):
                yield _figure(caption, partial(plot, predictive, targets))
    yield "</div>"


def _training(
    history: History | None, posterior: Posterior, snapshots: Snapshots | None
) -> Iterator[str]:
    particles = posterior.particles
    if history is not None:
        yield '<h3>Training</h3><div class="row">'
        for name in curves(history):
            yield _figure(f"{name} by step", partial(plots.trace, history, name))
        if len(history.validation_nlpd) > 1:  # one point is no curve
            yield _figure("Validation NLPD by step", lambda ax: plots.validation(history, ax=ax))
        if "ancestors" in history.metrics:
            yield _figure("Ancestry by step", lambda ax: plots.ancestry(history, ax=ax))
        yield "</div>"
    yield '<h3>Posterior of the random weights</h3><div class="row">'
    yield _figure("Marginals", lambda ax: plots.marginals(particles, ax=ax))
    if particles.values.shape[-1] > 1:
        yield _figure("Two coordinates", lambda ax: plots.pairs(particles, dims=(0, 1), ax=ax))
    yield "</div>"
    if snapshots is not None and snapshots.steps and particles.values.shape[-1] > 1:
        count = min(5, len(snapshots.steps))
        yield _figure(
            "Flow of the particles in training",
            lambda ax: plots.flow(snapshots, panels=count, ax=ax),
            columns=count,
        )


def _facts(facts: Mapping[str, str]) -> str:
    rows = "".join(
        f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>"
        for name, value in facts.items()
    )
    return f'<table class="facts">{rows}</table>'


def _grid(
    head: Sequence[str],
    lines: Sequence[Sequence[str]],
    numbers: Sequence[int] = (),
    quiet: Sequence[int] = (),
    style: str = "",
) -> str:
    """Make a table; ``numbers`` are the columns aligned to the right, ``quiet`` those in gray."""

    def row(tag: str, cells: Sequence[str]) -> str:
        made = ""
        for place, cell in enumerate(cells):
            kind = "number" if place in numbers else "note" if place in quiet else ""
            made += f'<{tag} class="{kind}">{html.escape(str(cell))}</{tag}>'
        return f"<tr>{made}</tr>"

    body = "".join(row("td", line) for line in lines)
    return f'<div class="wide"><table class="{style}">{row("th", head)}{body}</table></div>'


def _short(value: Any) -> str:
    return short(value, group="\u202f")


def _figure(caption: str, draw: Callable[..., Any], columns: int = 1) -> str:
    """Draw a picture as an element of the page."""
    from matplotlib.figure import Figure

    size = (5.2, 4.0) if columns == 1 else (2.6 * columns, 2.8)
    figure = Figure(figsize=size, layout="constrained")
    draw(ax=figure.subplots(1, columns))
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130)
    return picture(buffer.getvalue(), caption)

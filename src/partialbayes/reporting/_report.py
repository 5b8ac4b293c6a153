"""One HTML page about a trained model: what it is, how training went, what it predicts.

The page is a single file with its pictures inside, needs nothing from elsewhere and runs nothing.
"""

from __future__ import annotations

import html
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from partialbayes import metrics, plots
from partialbayes._utils.checks import require_instance, require_positive_int
from partialbayes.callbacks import Snapshots
from partialbayes.metrics._registry import SCORES
from partialbayes.model._batch import as_batch
from partialbayes.model._partial_bnn import noise_of
from partialbayes.plots._training import curves
from partialbayes.prediction._predict import predict
from partialbayes.prediction._predictive import Predictive
from partialbayes.prediction._target_scale import TargetScale
from partialbayes.reporting._html import picture, write_page
from partialbayes.training._diagnostics import findings
from partialbayes.types import ChainReport, Chunks, Fit, History, Model, Posterior, Report


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
) -> Path:
    """Write a page about a trained model: what it is, its scores, pictures, diagnostics in words.

    Args:
        model: The model that was trained.
        fitted: From `fit`; or a posterior alone, with its history if there is one.
        data: A pair ``(inputs, targets)`` to score on, best held out from training.
        path: The file to write. It appears whole or not at all.
        history: Of a posterior.
        target_scale: How the targets were scaled for training; ``data`` has them as they were.
        metadata: Anything worth telling: the data's name, the method, the seed.
        snapshots: Collected in training, for the picture of the particles' flow.
        title: At the top.
        rows: How many of the data to use at most, evenly spaced.

    Returns:
        The path.

    Raises:
        TypeError: ``model`` is not a `Model`.
        ValueError: The data do not fit it.

    Example:
        >>> import pathlib, tempfile, numpy as np, partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 5, 1]), "layers/0/*", pb.gaussian())
        >>> x = np.linspace(-1.0, 1.0, 8)[:, None]
        >>> trained = pb.fit(pb.ohsmc(model, num_particles=10), (x, x), epochs=2, progress=False)
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
    inputs, targets, total = _some_rows(model, data, scale, rows)
    predictive = predict(model, posterior, inputs, target_scale=scale, chunks=Chunks(rows=256))
    body = [
        *_what(model, posterior, metadata or {}),
        *_scores(predictive, targets, total),
        *_findings(history, posterior, fitted.reports if isinstance(fitted, Fit) else ()),
        *_predictions(predictive, targets),
        *_training(history, posterior, snapshots),
    ]
    path = Path(path)
    write_page(path, title, body)
    return path


def _some_rows(model: Model, data: Any, scale: TargetScale | None, rows: int) -> tuple[Any, Any, int]:
    """Inputs and targets, checked, no more than so many rows; and how many there were."""
    inputs, targets = data if isinstance(data, tuple | list) and len(data) == 2 else (data, None)
    scaled = targets if scale is None or targets is None else scale.apply(targets)
    total = as_batch(model, (inputs, scaled) if targets is not None else data, "data").mask.shape[0]
    chosen = np.unique(np.linspace(0, total - 1, min(rows, total)).round().astype(int))
    return (
        jax.tree.map(lambda leaf: np.asarray(leaf)[chosen], inputs),
        np.asarray(targets)[chosen],
        total,
    )


def _what(model: Model, posterior: Posterior, metadata: Mapping[str, Any]) -> Iterator[str]:
    log_weights = posterior.particles.log_weights
    members = posterior.num_members
    weights = np.exp(np.asarray(log_weights, float)).ravel()
    facts = {
        "random weights": f"{model.split.dim} of {sum(leaf.size for leaf in model.split.leaves)}",
        "particles": f"{log_weights.shape[-1]}"
        + (f" in each of {members} members" if members > 1 else ""),
        "effective sample size": f"{1.0 / np.square(weights / weights.sum()).sum():.1f}",
    }
    if members == 1:
        for name, value in noise_of(model, posterior).items():
            if np.size(value) <= 4:
                facts[f"likelihood, {name}"] = np.array2string(np.asarray(value), precision=4)
    yield "<h2>What was trained</h2>"
    yield _table({**facts, **{str(name): str(value) for name, value in metadata.items()}})
    yield f"<pre>{html.escape(model.split.describe(log_weights.size))}</pre>"


def _scores(predictive: Predictive, targets: Any, total: int) -> Iterator[str]:
    yield "<h2>Scores</h2>"
    used = len(targets)
    kind = "classification" if predictive.model.likelihood.is_classification else "regression"
    part = "" if used == total else f", {used} of them used, evenly spaced"
    yield f'<p class="note">On {total} rows of data{part}; a {kind}.</p>'
    try:
        scores = metrics.evaluate(predictive, targets)
    except ValueError as error:  # several labels, a likelihood that cannot predict
        yield f"<p>{html.escape(str(error))}</p>"
        return
    cells = "".join(
        f'<tr><td>{html.escape(name.replace("_", " "))}</td><td class="number">{value:.4g}</td>'
        f'<td class="note">{html.escape(SCORES[name].meaning)}</td></tr>'
        for name, value in scores.items()
    )
    yield f"<table>{cells}</table>"


def _findings(
    history: History | None, posterior: Posterior, second_stages: Sequence[Report]
) -> Iterator[str]:
    yield "<h2>Diagnostics</h2>"
    found: list[str] = []
    if history is not None:
        num_particles = posterior.num_particles
        ran = len(history.metrics["loss"]) if "loss" in history.metrics else int(history.best_step)
        yield f"<p>The posterior is that of step {history.best_step} of {ran}.</p>"
        found = findings(history.metrics, num_particles, history.eval_steps, history.validation_nlpd)
    for report in second_stages:
        if isinstance(report, ChainReport) and (largest := float(np.max(report.r_hat))) > 1.05:
            found.append(f"R-hat of the second stage is {largest:.2f}, above 1.05: run it for longer.")
    if found:
        yield "<ul>" + "".join(f"<li>{html.escape(text)}</li>" for text in found) + "</ul>"
    elif history is not None:
        yield "<p>Nothing stands out in the record of the run.</p>"
    else:
        yield "<p>There is no record of the run.</p>"


def _predictions(predictive: Predictive, targets: Any) -> Iterator[str]:
    yield '<h2>Predictions</h2><div class="row">'
    inputs = predictive.inputs
    columns = inputs.shape[1] if hasattr(inputs, "shape") and inputs.ndim == 2 else None
    if predictive.model.likelihood.is_classification:
        if predictive.probabilities.ndim == 2:
            labels = targets.astype(int).reshape(len(targets))
            probabilities = predictive.probabilities
            yield _figure(
                "Reliability diagram", lambda ax: plots.reliability(probabilities, labels, ax=ax)
            )
            if columns == 2:
                yield _figure(
                    "Decision boundary of the mixture (color) and of single particles (lines)",
                    lambda ax: plots.decision_boundary(
                        predictive.model, predictive.posterior, (inputs, labels), ax=ax
                    ),
                )
    elif predictive.mean.ndim == 1:
        if columns == 1:
            pair = (inputs, targets)
            yield _figure(
                "Predictive mean and intervals",
                lambda ax: plots.predictive_bands(predictive, pair, ax=ax),
            )
        yield _figure(
            "Predicted against observed",
            lambda ax: plots.predicted_against_observed(predictive, targets, ax=ax),
        )
        if predictive.model.likelihood.cdf is not None:
            yield _figure(
                "Coverage of central intervals", lambda ax: plots.coverage(predictive, targets, ax=ax)
            )
            yield _figure(
                "Probability integral transform", lambda ax: plots.pit(predictive, targets, ax=ax)
            )
    yield "</div>"


def _training(
    history: History | None, posterior: Posterior, snapshots: Snapshots | None
) -> Iterator[str]:
    particles = posterior.particles
    if history is not None:
        yield '<h2>Training</h2><div class="row">'
        for name in curves(history):
            yield _figure(f"{name} by step", partial(plots.trace, history, name))
        if len(history.validation_nlpd):
            yield _figure("Validation NLPD by step", lambda ax: plots.validation(history, ax=ax))
        if "ancestors" in history.metrics:
            yield _figure("Ancestry by step", lambda ax: plots.ancestry(history, ax=ax))
        yield "</div>"
    yield '<h2>Posterior of the random weights</h2><div class="row">'
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


def _table(facts: Mapping[str, str]) -> str:
    rows = "".join(
        f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>"
        for name, value in facts.items()
    )
    return f"<table>{rows}</table>"


def _figure(caption: str, draw: Callable[..., Any], columns: int = 1) -> str:
    """A picture as an element of the page."""
    from matplotlib.figure import Figure

    size = (5.2, 4.0) if columns == 1 else (2.6 * columns, 2.8)
    figure = Figure(figsize=size, layout="constrained")
    draw(ax=figure.subplots(1, columns))
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130)
    return picture(buffer.getvalue(), caption)

"""MNIST: a convolutional network whose first layer is random, and clothes as the unknown.

One network is too large for the runs to be mapped, and its data for every look to be at all of the
validation images; so this experiment trains by `fit`, run after run, with checkpoints.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float
from tqdm.auto import tqdm

from partialbayes import algorithms, kernels
from partialbayes._engine.checkpoints import Checkpoints
from partialbayes.algorithms import map_estimate, ohsmc, two_stage
from partialbayes.errors import TrainingDivergedError
from partialbayes.likelihoods import categorical
from partialbayes.metrics import accuracy, auroc, brier, expected_calibration_error
from partialbayes.model._partial_bnn import partial_bnn
from partialbayes.parallel._sweep import sweep
from partialbayes.prediction._predict import log_predictive_density, predict
from partialbayes.resampling import stratified
from partialbayes.training._fit import fit
from partialbayes.types import Algorithm, Chunks, Fit, Model, Posterior
from reproduction import data
from reproduction.experiments.methods import averaging
from reproduction.experiments.result_folder import Results
from reproduction.experiments.settings import QUICK_NOTE, Experiment, Swag, Track
from reproduction.figures.collect import keep_novelty
from reproduction.networks.cnn import cnn

logger = logging.getLogger(__name__)

_Pair: TypeAlias = tuple[Any, Any]

_SWAG = Swag(num_steps=50, rank=100)


@dataclass(frozen=True)
class MnistSetting:
    """The paper's numbers; `small` has those of a machine without an accelerator.

    Attributes:
        dataset: As it is named in the tables.
        track: "paper".
        train_rows: Images trained on; 10,000 others of the 60,000 are for validation.
        validation_rows: How many of those each look scores.
        validation_particles: By how many of the particles; None for all.
        evaluate_every: Steps between looks.
        batch_size: M.
        epochs: How often training goes through the images.
        rate: Of Adam.
        num_particles: J.
        gradient_particles: K, how many of them the gradient of ψ comes from; None for all.
        vb_samples: Draws for each gradient of VB.
        walk_variance: Of OHSMC's random walk.
        swag: Of the averaging.
        test_rows: How many test images are scored, and as many of the unknown.
        repeats: Runs, each with its own division of the images.
        methods: Those of the table.
        note: What a reader of the table has to know.
    """

    dataset: str = "mnist"
    track: Track = "paper"
    train_rows: int = 50_000
    validation_rows: int = 10_000
    validation_particles: int | None = None
    evaluate_every: int = 1
    batch_size: int = 100
    epochs: int = 10
    rate: float = 0.002
    num_particles: int = 100
    gradient_particles: int | None = None
    vb_samples: int = 100
    walk_variance: float = 0.01
    swag: Swag = _SWAG
    test_rows: int = 10_000
    repeats: int = 10
    methods: tuple[str, ...] = ("OHSMC", "SWAG", "VB", "MAP")
    note: str = ""


def small(setting: MnistSetting) -> MnistSetting:
    """What one processor core does in about an hour a run: fewer looks, epochs and gradients."""
    return replace(
        setting,
        validation_rows=5000,  # by 500 the best look of sixty is a lucky one
        validation_particles=10,
        evaluate_every=25,
        epochs=3,
        gradient_particles=5,
        vb_samples=5,
        repeats=3,
        note="Smaller than the paper's: the gradient from 5 of the 100 particles (of VB: 5 draws), "
        "3 epochs, validation on 5,000 images by 10 of the particles every 25 steps.",
    )


def quick(setting: MnistSetting) -> MnistSetting:
    """The same in seconds, to see that everything runs; its numbers mean nothing."""
    return replace(
        setting,
        train_rows=20,
        validation_rows=10,
        evaluate_every=1,
        batch_size=10,
        epochs=1,
        num_particles=2,
        vb_samples=1,
        swag=Swag(2, 2),
        test_rows=10,
        repeats=1,
        note=QUICK_NOTE,
    )


def algorithm(method: str, model: Model, setting: MnistSetting) -> Algorithm:
    """The algorithm of a method, by its name in the table."""
    optimizer = optax.adam(setting.rate)
    point = map_estimate(model, optimizer=optimizer)
    if method == "OHSMC":
        return ohsmc(
            model,
            num_particles=setting.num_particles,
            kernel=kernels.random_walk(setting.walk_variance),
            resample=stratified,
            optimizer=optimizer,
            gradient_particles=setting.gradient_particles,
        )
    if method == "VB":
        return algorithms.mean_field_vb(
            model,
            num_samples=setting.vb_samples,
            num_particles=setting.num_particles,
            initial_scale=1.0,
            optimizer=optimizer,
        )
    if method == "SWAG":
        stage = averaging(model, setting.swag, setting.num_particles, setting.rate, setting.batch_size)
        return two_stage(point, stage)
    if method == "MAP":
        return point
    raise ValueError(f"methods of MNIST are OHSMC, SWAG, VB and MAP, not {method!r}.")


class _Task(NamedTuple):
    """A run that one worker does."""

    setting: MnistSetting
    method: str
    repeat: int
    folder: Path
    data_dir: Path | None
    progress: bool


def run_mnist(
    setting: MnistSetting,
    folder: Path,
    *,
    repeats: int | None = None,
    methods: Sequence[str] | None = None,
    data_dir: Path | None = None,
    jobs: int | None = None,
    progress: bool = True,
) -> Results:
    """Run what is not yet in the folder; the arguments are those of `runner.run_experiment`.

    Two processes of a thread each do more than one of two threads; an accelerator has room for one.
    """
    if jobs is None and jax.default_backend() != "cpu":
        jobs = 1
    results = Results(folder, Experiment("mnist", setting.track, (setting,)))
    done = results.finished()
    tasks = [
        _Task(setting, method, repeat, folder, data_dir, progress and jobs == 1)
        for repeat in range(setting.repeats if repeats is None else repeats)
        for method in methods or setting.methods
        if ("mnist", method, repeat) not in done
    ]
    with tqdm(total=len(tasks), disable=not progress, unit="run", leave=False) as bar:
        for task, scored in sweep(_carry_out, tasks, n_jobs=jobs):
            if task.repeat == 0 and scored.known.size:
                keep_novelty(folder, task.method, scored.known, scored.unknown)
            results.append("mnist", task.method, task.repeat, scored.scores)
            logger.info("mnist, %s, run %d: NLPD %.4f", task.method, task.repeat, scored.scores["nlpd"])
            bar.update()
    return results


def _carry_out(task: _Task) -> Scored:
    """Train and score a run."""
    before = time.perf_counter()
    digits, clothes = data.mnist(task.data_dir), data.fashion_mnist(task.data_dir)
    model, trainer = _prepared(task.method, task.setting)
    train, validation = _divided(task.setting, digits, task.repeat)
    trained = _train(trainer, task, train, validation)
    if trained is None:
        scored = Scored(dict.fromkeys(METRICS, math.nan), np.empty(0), np.empty(0))
    else:
        scored = score(model, trained, task.setting, validation, digits, clothes)
    seconds = time.perf_counter() - before
    return scored._replace(scores=scored.scores | {"seconds": seconds})


@lru_cache(maxsize=4)
def _prepared(method: str, setting: MnistSetting) -> tuple[Model, Algorithm]:
    """The same objects for every run of a method, so that a process compiles once."""
    model = partial_bnn(cnn(), "layers/0/**", categorical())
    return model, algorithm(method, model, setting)


def _divided(setting: MnistSetting, digits: data.Images, repeat: int) -> tuple[_Pair, _Pair]:
    """The images a run trains on, and those it is looked at by."""
    order = np.random.default_rng(repeat).permutation(len(digits.train_targets))
    parts = order[: setting.train_rows], order[-setting.validation_rows :]
    train, validation = ((digits.train_inputs[part], digits.train_targets[part]) for part in parts)
    return train, validation


def _train(trainer: Algorithm, task: _Task, train: _Pair, validation: _Pair) -> Fit | None:
    """A run trained on the first images and looked at by the second.

    One that diverged has its best posterior before, as in `runner.score`; None where there is none, or
    a second stage was to follow.
    """
    method, repeat, setting = task.method, task.repeat, task.setting
    checkpoint = task.folder / f"{method}-{repeat}.checkpoint"
    trained: Fit | None
    try:
        trained = fit(
            trainer,
            train,
            epochs=setting.epochs,
            batch_size=setting.batch_size,
            validation=validation,
            validation_particles=setting.validation_particles,
            evaluate_every=setting.evaluate_every,
            key=repeat,
            progress=task.progress,
            checkpoint=Checkpoints(checkpoint),
            resume=True,
        )
    except TrainingDivergedError as error:
        logger.warning("mnist, %s, run %d: %s", method, repeat, error)
        trained = error.fit if trainer.finish is None else None
    if trained is not None and trained.interrupted:
        raise KeyboardInterrupt
    checkpoint.unlink(missing_ok=True)
    return trained


METRICS = (
    "nlpd",
    "ece",
    "ece_particles",
    "accuracy",
    "accuracy_particles",
    "brier",
    "auroc_mutual_information",
    "auroc_entropy",
    "validation_nlpd",
)
"""What a run is scored by; NaN for one that left no posterior."""


class Scored(NamedTuple):
    """The scores of a run, and the mutual information of each image for the figure."""

    scores: dict[str, float]
    known: Float[np.ndarray, " image"]
    unknown: Float[np.ndarray, " image"]


def score(
    model: Model,
    trained: Fit,
    setting: MnistSetting,
    validation: _Pair,
    digits: data.Images,
    clothes: data.Images,
) -> Scored:
    """Scores on test digits, and how well uncertainty tells clothes from them."""
    rows = slice(setting.test_rows)
    labels = jnp.asarray(digits.test_targets[rows])
    known = _mixture(model, trained.posterior, digits.test_inputs[rows])
    unknown = _mixture(model, trained.posterior, clothes.test_inputs[rows])

    def averaged(metric: Callable[[Any, Any], Any]) -> float:
        each = jax.lax.map(lambda probabilities: metric(probabilities, labels), known.each)
        return float(known.weights @ each)

    ours = jnp.take_along_axis(known.mixed, labels[:, None], axis=1)[:, 0]
    least = np.finfo(ours.dtype).tiny  # what is not told from nothing counts as this
    looked_at = log_predictive_density(model, trained.posterior, validation, chunks=Chunks(rows=500))
    scores = {
        "nlpd": -float(jnp.log(jnp.maximum(ours, least)).mean()),
        "ece": float(expected_calibration_error(known.mixed, labels)),
        "ece_particles": averaged(expected_calibration_error),
        "accuracy": float(accuracy(known.mixed, labels)),
        "accuracy_particles": averaged(accuracy),
        "brier": float(brier(known.mixed, labels)),
        "auroc_mutual_information": float(auroc(known.information, unknown.information)),
        "auroc_entropy": float(auroc(_entropy(known.mixed), _entropy(unknown.mixed))),
        "validation_nlpd": -float(looked_at.mean()),
    }
    return Scored(scores, np.asarray(known.information), np.asarray(unknown.information))


class _Mixture(NamedTuple):
    each: Float[Array, "particle image label"]
    weights: Float[Array, " particle"]
    mixed: Float[Array, "image label"]
    information: Float[Array, " image"]


def _mixture(model: Model, posterior: Posterior, images: np.ndarray) -> _Mixture:
    each, _, log_weights = predict(model, posterior, images, chunks=Chunks(rows=500)).components()
    weights = jnp.exp(log_weights)
    mixed = jnp.einsum("j,jnc->nc", weights, each)
    information = weights @ jax.scipy.special.rel_entr(each, mixed[None]).sum(-1)  # never below zero
    return _Mixture(each, weights, mixed, information)


def _entropy(probabilities: Float[Array, "*rows label"]) -> Float[Array, "*rows"]:
    return -jax.scipy.special.xlogy(probabilities, probabilities).sum(-1)

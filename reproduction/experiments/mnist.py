"""MNIST: a convolutional network whose first layer is random, and clothes as the unknown.

One network is too large for the runs to be mapped, so this experiment trains by `fit`, run after run,
with checkpoints.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeAlias

import jax
import numpy as np
import optax

from partialbayes import algorithms, kernels
from partialbayes.algorithms import map_estimate, ohsmc, two_stage
from partialbayes.likelihoods import categorical
from partialbayes.metrics import auroc, evaluate
from partialbayes.model._partial_bnn import partial_bnn
from partialbayes.prediction._predict import log_predictive_density, predict
from partialbayes.prediction._predictive import Predictive
from partialbayes.resampling import stratified
from partialbayes.results import Fit
from partialbayes.training import Run, Validation, fit
from partialbayes.types import Algorithm, Chunks, Model
from reproduction import data
from reproduction.experiments.experiment import Experiment, Task, salvage
from reproduction.experiments.methods import swag_stage
from reproduction.experiments.settings import Setting, Swag
from reproduction.figures.records import Novelty, Record
from reproduction.networks.cnn import cnn
from reproduction.tables.metrics import rename_scores

_Pair: TypeAlias = tuple[Any, Any]
_SWAG = Swag(num_steps=50, rank=100)


@dataclass(frozen=True, kw_only=True)
class MnistSetting(Setting):
    """The paper's numbers, but for how often a run is validated; `small` has those of an hour on a core.

    The paper validates after every step, on 10,000 images by all particles: dozens of times the work of
    the training itself.

    Attributes:
        train_rows: Images trained on; 10,000 others of the 60,000 are for validation.
        validation_rows: How many of those each validation scores.
        validation_particles: By how many of the particles; None for all.
        evaluate_every: Steps between validations.
        gradient_particles: K, how many particles the gradient of ψ comes from; None for all.
        test_rows: How many test images are scored, and as many of the unknown.
    """

    dataset: str = "mnist"
    train_rows: int = 50_000
    validation_rows: int = 10_000
    validation_particles: int | None = 10
    evaluate_every: int = 50
    batch_size: int = 100
    epochs: int = 10
    rate: float = 0.002
    num_particles: int = 100
    gradient_particles: int | None = None
    swag: Swag = _SWAG
    test_rows: int = 10_000
    repeats: int = 10
    methods: tuple[str, ...] = ("OHSMC", "SWAG", "VB", "MAP")

    small_changes: ClassVar[Mapping[str, Any]] = {
        "validation_rows": 5000,  # by 500 the best validation of sixty is a lucky one
        **{"validation_particles": 10, "evaluate_every": 25, "epochs": 3, "repeats": 3},
        **{"gradient_particles": 5, "vb_samples": 5},
        "note": "Smaller than the paper's: the gradient from 5 of the 100 particles (of VB: 5 draws), "
        "3 epochs, validation on 5,000 images by 10 of the particles every 25 steps.",
    }
    quick_changes: ClassVar[Mapping[str, Any]] = {
        **{"train_rows": 20, "validation_rows": 10, "evaluate_every": 1, "batch_size": 10, "epochs": 1},
        **{"num_particles": 2, "vb_samples": 1, "swag": Swag(2, 2), "test_rows": 10, "repeats": 1},
    }


def make_algorithm(method: str, model: Model, setting: MnistSetting) -> Algorithm:
    """Return the algorithm of a method, by its name in the table."""
    optimizer = optax.adam(setting.rate)
    point = map_estimate(model, optimizer=optimizer)
    known = {
        "OHSMC": ohsmc(
            model,
            num_particles=setting.num_particles,
            kernel=kernels.random_walk(setting.walk_variance),
            resample=stratified,
            optimizer=optimizer,
            gradient_particles=setting.gradient_particles,
        ),
        "VB": algorithms.mean_field_vb(
            model,
            num_samples=setting.vb_samples,
            num_particles=setting.num_particles,
            initial_scale=1.0,
            optimizer=optimizer,
        ),
        "SWAG": two_stage(
            point,
            swag_stage(model, setting.swag, setting.num_particles, setting.rate, setting.batch_size),
        ),
        "MAP": point,
    }
    return known[method]


SCORES = (
    *("nlpd", "ece", "ece_particles", "accuracy", "accuracy_particles", "brier"),
    *("auroc_mutual_information", "auroc_entropy", "validation_nlpd"),
)
"""What a run is scored by; NaN for one that left no posterior."""


class _Trained(NamedTuple):
    """What a run predicts on digits and on clothes; nothing where it left no posterior."""

    predictions: tuple[Predictive, Predictive] | None = None
    validation: _Pair = (None, None)


class MnistExperiment(Experiment):
    """Digits, and clothes as the unknown."""

    def load_data(self, setting: Setting, data_dir: Path | None) -> None:
        """Load and check both sets of images."""
        load_images(data_dir)

    def default_jobs(self) -> int | None:
        """Use one process on an accelerator; two of a thread each do more than one of two threads."""
        return None if jax.default_backend() == "cpu" else 1

    def train(self, task: Task) -> list[_Trained]:
        """Train a run, from its checkpoint if it has one."""
        (repeat,) = task.repeats
        setting: MnistSetting = task.setting
        digits, clothes = load_images(task.data_dir)
        model, algorithm = _prepare(task.method, setting)
        train, validation = _divide(setting, digits, repeat)
        fitted = train_run(algorithm, task, train, validation)
        if fitted is None:
            return [_Trained()]
        known, unknown = (
            predict(model, fitted.posterior, images[: setting.test_rows], chunks=Chunks(rows=500))
            for images in (digits.test_inputs, clothes)
        )
        return [_Trained((known, unknown), validation)]

    def score(self, task: Task, trained: _Trained) -> dict[str, float]:
        """Return scores on test digits, and how well uncertainty tells clothes from them."""
        if trained.predictions is None:
            return dict.fromkeys(SCORES, math.nan)
        known, unknown = trained.predictions
        digits, _ = load_images(task.data_dir)
        held_out = log_predictive_density(
            known.model, known.posterior, trained.validation, chunks=Chunks(rows=500)
        )
        scores = rename_scores(evaluate(known, digits.test_targets[: task.setting.test_rows])) | {
            "auroc_mutual_information": float(
                auroc(known.mutual_information, unknown.mutual_information)
            ),
            "auroc_entropy": float(auroc(known.entropy, unknown.entropy)),
            "validation_nlpd": -float(held_out.mean()),
        }
        return {name: scores[name] for name in SCORES}

    def collect_records(self, task: Task, trained: _Trained) -> dict[str, Record]:
        """Return the mutual information of each image."""
        assert trained.predictions is not None
        known, unknown = (np.asarray(one.mutual_information, np.float16) for one in trained.predictions)
        return {"novelty": Novelty({task.method: known}, {task.method: unknown})}


@lru_cache(maxsize=1)
def load_images(data_dir: Path | None) -> tuple[data.Images, np.ndarray]:
    """Return the digits, and the test images of clothes; a process loads them once."""
    return data.mnist(data_dir), data.fashion_mnist(data_dir).test_inputs


@lru_cache(maxsize=4)
def _prepare(method: str, setting: MnistSetting) -> tuple[Model, Algorithm]:
    """Return the same objects for every run of a method, so that a process compiles once."""
    model = partial_bnn(cnn(), "layers/0/**", categorical())
    return model, make_algorithm(method, model, setting)


def _divide(setting: MnistSetting, digits: data.Images, repeat: int) -> tuple[_Pair, _Pair]:
    """Return the training and validation images of a run."""
    order = np.random.default_rng(repeat).permutation(len(digits.train_targets))
    parts = order[: setting.train_rows], order[-setting.validation_rows :]
    train, validation = ((digits.train_inputs[part], digits.train_targets[part]) for part in parts)
    return train, validation


def train_run(algorithm: Algorithm, task: Task, train: _Pair, validation: _Pair) -> Fit | None:
    """Train the run of a task; None where it left no posterior."""
    (repeat,), setting = task.repeats, task.setting
    checkpoint = task.folder / f"{task.method}-{repeat}.checkpoint"

    def train_on() -> Fit:
        return fit(
            algorithm,
            train,
            epochs=setting.epochs,
            batch_size=setting.batch_size,
            validation=Validation(
                validation, particles=setting.validation_particles, every=setting.evaluate_every
            ),
            run=Run(progress=task.progress, checkpoint=checkpoint, resume=True),
            key=repeat,
        )

    trained = salvage(train_on, algorithm, task)
    checkpoint.unlink(missing_ok=True)
    return trained


MNIST = MnistExperiment(
    "mnist", "digits, and clothes as the unknown, by a CNN", {"paper": (MnistSetting(),)}
)

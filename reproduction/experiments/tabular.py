"""Experiments on tables and points: every method on every data set, repeats as one program."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from partialbayes._engine.epochs import num_batches
from partialbayes.estimators import PartialBNNRegressor
from partialbayes.metrics import evaluate, over_particles, rmse
from partialbayes.metrics._common import AnyArray
from partialbayes.prediction._predict import log_predictive_density, predict
from partialbayes.prediction._predictive import Predictive
from partialbayes.results import Fit
from partialbayes.training import Validation, fit_many
from partialbayes.types import Algorithm, Model, Posterior
from reproduction.experiments import to_the_end
from reproduction.experiments.experiment import Experiment, Task
from reproduction.experiments.methods import ONE_AT_A_TIME, Candidates, make_candidates
from reproduction.experiments.problems import Problem, Run, pose_moons, pose_table, pose_wave
from reproduction.experiments.settings import (
    MOONS,
    REGRESSION,
    UCI,
    Setting,
    TabularSetting,
    training_key,
)
from reproduction.figures.collect import predict_boundaries, predict_curves
from reproduction.figures.records import Record
from reproduction.tables.metrics import rename_scores

_ESTIMATOR = "Estimator"
_Pose: TypeAlias = Callable[[TabularSetting, Path | None], Problem]
_Collect: TypeAlias = Callable[[str, Model, Posterior, Run], Record]


class _Trained(NamedTuple):
    model: Model
    fit: Fit
    run: Run


class _Estimated(NamedTuple):
    estimator: PartialBNNRegressor
    run: Run


@dataclass(frozen=True, eq=False)
class TabularExperiment(Experiment):
    """An experiment of multilayer perceptrons.

    Attributes:
        pose: Returns the problem of a setting, given the folder of real data.
        collect: By the name of a record, what makes it of a trained run.
    """

    pose: _Pose = pose_table
    collect: Mapping[str, _Collect] = field(default_factory=dict)

    def load_data(self, setting: Setting, data_dir: Path | None) -> None:
        """Load and check the table of a setting."""
        assert isinstance(setting, TabularSetting)
        load_problem(self.pose, setting, data_dir)

    def make_tasks(
        self, setting: Setting, methods: Sequence[str], repeats: Mapping[str, Sequence[int]]
    ) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Divide the runs into groups that make one program each, one method after another.

        A thousand particles fill the processor's cache by themselves: mapped over ten runs OHSMC takes
        2.5 times as long as one after another. Methods of few samples gain by the mapping.
        """
        assert isinstance(setting, TabularSetting)
        for method in methods:
            size = 1 if method in ONE_AT_A_TIME else setting.at_once
            if method == _ESTIMATOR:
                size = 1
            elif setting.prior_scales:
                size = to_the_end.METHODS[method].at_once or setting.at_once
            for begin in range(0, len(repeats[method]), size):
                yield method, tuple(repeats[method][begin : begin + size])

    def train(self, task: Task) -> list[_Trained | _Estimated]:
        """Train the runs of a task as one program."""
        if task.method == _ESTIMATOR:
            problem = load_problem(self.pose, task.setting, task.data_dir)
            return [_estimate(problem.run(repeat), repeat) for repeat in task.repeats]
        if task.setting.prior_scales:
            problem = load_problem(self.pose, task.setting, task.data_dir)
            trained = to_the_end.train_to_the_end(task.method, problem, task.setting, task.repeats)
            own = zip(trained, task.repeats, strict=True)
            return [_Trained(*pair, problem.run(repeat)) for pair, repeat in own]
        problem, algorithms = _prepare(self.pose, task.setting, task.method, task.data_dir)
        runs = [problem.run(repeat) for repeat in task.repeats]
        fits = train(algorithms, task.setting, runs, task.repeats)
        return [_Trained(problem.model, *pair) for pair in zip(fits, runs, strict=True)]

    def score(self, task: Task, trained: _Trained | _Estimated) -> dict[str, float]:
        """Return the scores of a run on its test data.

        They are NaN where it diverged before its first validation, or its second stage stalled. A run
        that diverged later has its best posterior before.
        """
        inputs, targets = trained.run.test
        if isinstance(trained, _Estimated):
            return rename_scores(evaluate(trained.estimator.predictive(inputs), targets))
        model, fit, run = trained
        predictive = predict(model, fit.posterior, inputs, target_scale=run.target_scale)
        scores = rename_scores(evaluate(predictive, targets))
        if run.truth is not None:
            scores |= _score_against_truth(predictive, run.truth)
        held_out = log_predictive_density(model, fit.posterior, run.validation)
        scores["validation_nlpd"] = float(-held_out.mean())
        if task.setting.prior_scales:
            return scores
        evidence = np.asarray(getattr(fit.report, "log_evidence", 0.0))
        if not (math.isfinite(best_validation(fit)) and np.isfinite(evidence).all()):
            return dict.fromkeys(scores, math.nan)
        return scores

    def collect_records(self, task: Task, trained: _Trained | _Estimated) -> dict[str, Record]:
        """Return what single particles predict on a grid."""
        if isinstance(trained, _Estimated):
            return {}
        model, fit, run = trained
        collected = self.collect.items()
        return {name: record(task.method, model, fit.posterior, run) for name, record in collected}


def _estimate(run: Run, repeat: int) -> _Estimated:
    """Fit the estimator of tables to all rows that are not for testing; it needs none held out."""
    inputs, targets = (np.concatenate(pair) for pair in zip(run.train, run.validation, strict=True))
    assert run.target_scale is not None
    estimator = PartialBNNRegressor(random_state=repeat)
    return _Estimated(estimator.fit(inputs, run.target_scale.restore(targets)), run)


@cache
def load_problem(pose: _Pose, setting: TabularSetting, data_dir: Path | None) -> Problem:
    """Return the problem of a setting; a process loads its data once."""
    return pose(setting, data_dir)


@lru_cache(maxsize=2)
def _prepare(
    pose: _Pose, setting: TabularSetting, method: str, data_dir: Path | None
) -> tuple[Problem, Candidates]:
    """Return the same objects for every task of a method, so that a process compiles once."""
    problem = load_problem(pose, setting, data_dir)
    rows = len(problem.run(0).train[1])
    num_steps = setting.epochs * num_batches(rows, setting.batch_size)
    return problem, make_candidates(method, problem.model, setting, num_steps)


def train(
    algorithms: Candidates, setting: TabularSetting, runs: list[Run], repeats: Sequence[int]
) -> list[Fit]:
    """Train runs as one program; of several algorithms, each run keeps the best on its validation."""
    keys = jax.vmap(training_key)(jnp.asarray(repeats))
    tried = [
        fit_many(
            algorithm,
            [run.train for run in runs],
            epochs=setting.epochs,
            batch_size=setting.batch_size,
            validation=Validation(
                [run.validation for run in runs],
                every=setting.evaluate_every,
                particles=setting.validation_particles,
            ),
            key=keys,
        )
        for algorithm in algorithms
    ]
    if len(tried) == 1:
        return tried[0]
    scores = [
        [_validation_score(algorithm, *one) for one in zip(fits, runs, strict=True)]
        for algorithm, fits in zip(algorithms, tried, strict=True)
    ]
    return [tried[int(best)][index] for index, best in enumerate(np.argmin(scores, axis=0))]


def _validation_score(algorithm: Algorithm, trained: Fit, run: Run) -> float:
    """Return the validation NLPD of what a run ends with, its second stage included."""
    if algorithm.finish is None:
        return best_validation(trained)
    nlpd = -float(log_predictive_density(algorithm.model, trained.posterior, run.validation).mean())
    return nlpd if np.isfinite(nlpd) else np.inf


def best_validation(trained: Fit) -> float:
    """Return the validation NLPD of the posterior that training kept; infinite where it kept none."""
    if trained.history.best_step == 0:
        return math.inf
    return float(np.nanmin(trained.history.validation_nlpd))


def _score_against_truth(predictive: Predictive, truth: AnyArray) -> dict[str, float]:
    """Return the RMSE against the function itself, as the paper has it for its regression."""
    known = jnp.asarray(truth).reshape(predictive.mean.shape)
    return {
        "rmse": float(rmse(predictive.mean, known)),
        "rmse_particles": float(over_particles(rmse, predictive, known)),
    }


SEEDS = 5
"""Runs that are pictured, as in the paper."""

WAVE = TabularExperiment(
    "regression", "a synthetic function", REGRESSION, SEEDS, pose_wave, {"curves": predict_curves}
)
TWO_MOONS = TabularExperiment(
    "moons", "two classes of points", MOONS, SEEDS, pose_moons, {"boundaries": predict_boundaries}
)
TABLES = TabularExperiment("uci", "tables of UCI", UCI)

"""Runs an experiment: every method on every data set, repeats as one program, results as they come."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from tqdm.auto import tqdm

from partialbayes._engine.epochs import num_batches
from partialbayes.metrics import evaluate, over_particles, rmse
from partialbayes.metrics._common import AnyArray
from partialbayes.parallel._sweep import sweep
from partialbayes.prediction._predict import log_predictive_density, predict
from partialbayes.prediction._predictive import Predictive
from partialbayes.training._fit_many import fit_many
from partialbayes.types import Fit
from reproduction.experiments.methods import ONE_AT_A_TIME, Candidates, candidates
from reproduction.experiments.problems import Problem, Run, problem
from reproduction.experiments.result_folder import Results
from reproduction.experiments.settings import QUICK_NOTE, Experiment, Hmc, Setting, Swag, training_key

logger = logging.getLogger(__name__)


class Task(NamedTuple):
    """Runs that one worker does as one program."""

    setting: Setting
    method: str
    repeats: tuple[int, ...]
    data_dir: Path | None


def run_experiment(
    experiment: Experiment,
    folder: Path,
    *,
    repeats: int | None = None,
    methods: Sequence[str] | None = None,
    datasets: Sequence[str] | None = None,
    data_dir: Path | None = None,
    jobs: int | None = None,
    progress: bool = True,
) -> Results:
    """Run what is not yet in the folder.

    The work goes through `sweep`, so ``joblib.parallel_config("dask")`` and the like spread it over a
    cluster; this process alone writes the results.

    Args:
        experiment: From `settings.experiment`.
        folder: Where ``per_run.csv`` is written, one block per finished run; what it has already is
            not run again.
        repeats: How many runs of each; as declared by default.
        methods: Those to run; as declared by default.
        datasets: Those to run on; all by default.
        data_dir: Where real data are, see `partialbayes.data`.
        jobs: As in `sweep`.
        progress: Whether to show a progress bar.
    """
    chosen = [one for one in experiment.settings if datasets is None or one.dataset in datasets]
    results = Results(folder, experiment)
    done = results.finished()
    tasks = [
        Task(setting, method, group, data_dir)
        for setting in chosen
        for method in methods or setting.methods
        for group in in_groups(setting, method, _missing(setting, method, repeats, done))
    ]
    with tqdm(total=len(tasks), disable=not progress, unit="task", leave=False) as bar:
        for task, scored in sweep(carry_out, tasks, n_jobs=jobs):
            for repeat, scores in zip(task.repeats, scored, strict=True):
                results.append(task.setting.dataset, task.method, repeat, scores)
            _log(task, scored)
            bar.update()
    return results


def _missing(
    setting: Setting, method: str, repeats: int | None, done: set[tuple[str, str, int]]
) -> list[int]:
    """The runs asked for that are not there yet."""
    count = setting.repeats if repeats is None else repeats
    return [number for number in range(count) if (setting.dataset, method, number) not in done]


def in_groups(setting: Setting, method: str, repeats: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Runs in groups that make one program each.

    A thousand particles fill the processor's cache by themselves: mapped over ten runs OHSMC takes
    2.5 times as long as one after another. Methods of few samples gain by the mapping.

    Args:
        setting: Says how many runs at once.
        method: As in the tables.
        repeats: The runs.
    """
    size = 1 if method in ONE_AT_A_TIME else setting.at_once
    for begin in range(0, len(repeats), size):
        yield tuple(repeats[begin : begin + size])


Scores: TypeAlias = list[dict[str, float]]


def carry_out(task: Task) -> Scores:
    """Train and score the runs of a task."""
    before = time.perf_counter()
    posed, fits, runs = trained(task)
    scored = [score(posed, one, run) for one, run in zip(fits, runs, strict=True)]
    seconds = (time.perf_counter() - before) / len(runs)
    return [scores | {"seconds": seconds} for scores in scored]


def trained(task: Task) -> tuple[Problem, list[Fit], list[Run]]:
    """Train the runs of a task."""
    posed, algorithms = prepared(task.setting, task.method, task.data_dir)
    runs = [posed.run(repeat) for repeat in task.repeats]
    return posed, train(algorithms, task.setting, runs, task.repeats), runs


@lru_cache(maxsize=2)
def prepared(setting: Setting, method: str, data_dir: Path | None) -> tuple[Problem, Candidates]:
    """The same objects for every task of a method, so that a process compiles once."""
    posed = problem(setting, data_dir)
    rows = len(posed.run(0).train[1])
    num_steps = setting.epochs * num_batches(rows, setting.batch_size)
    return posed, candidates(method, posed.model, setting, num_steps)


def _log(task: Task, scored: Scores) -> None:
    mean = np.mean([scores["nlpd"] for scores in scored])
    logger.info(
        "%s, %s, runs %d to %d: NLPD %.3f, %.1f seconds each",
        *(task.setting.dataset, task.method, task.repeats[0], task.repeats[-1], mean),
        scored[0]["seconds"],
    )


def train(
    algorithms: Candidates, setting: Setting, runs: list[Run], repeats: Sequence[int]
) -> list[Fit]:
    """Train runs as one program; of several algorithms, each run keeps the best on its validation."""
    keys = jax.vmap(training_key)(jnp.asarray(repeats))
    tried = [
        fit_many(
            algorithm,
            [run.train for run in runs],
            epochs=setting.epochs,
            batch_size=setting.batch_size,
            validation=[run.validation for run in runs],
            evaluate_every=setting.evaluate_every,
            validation_particles=setting.validation_particles,
            key=keys,
            progress=False,
        )
        for algorithm in algorithms
    ]
    if any(one.interrupted for fits in tried for one in fits):
        raise KeyboardInterrupt
    return [min(fits, key=best_validation) for fits in zip(*tried, strict=True)]


def best_validation(trained: Fit) -> float:
    """The validation NLPD of the posterior that training kept; infinite where it kept none."""
    if trained.history.best_step == 0:
        return math.inf
    return float(np.nanmin(trained.history.validation_nlpd))


def score(posed: Problem, trained: Fit, run: Run) -> dict[str, float]:
    """The scores of a run on its test data, by the names of the tables.

    They are NaN where it diverged before it was first looked at, or its second stage stalled. A run
    that diverged later has its best posterior before.
    """
    inputs, targets = run.test
    predictive = predict(posed.model, trained.posterior, inputs, target_scale=run.target_scale)
    scores = _named(evaluate(predictive, targets))
    if run.truth is not None:
        scores |= _against_truth(predictive, run.truth)
    held_out = log_predictive_density(posed.model, trained.posterior, run.validation)
    scores["validation_nlpd"] = float(-held_out.mean())
    evidence = np.asarray(trained.report.get("log_evidence", 0.0))
    if not (math.isfinite(best_validation(trained)) and np.isfinite(evidence).all()):
        return dict.fromkeys(scores, math.nan)
    return scores


_NAMES = {
    "rmse_over_particles": "rmse_particles",
    "ece_over_particles": "ece_particles",
    "accuracy_over_particles": "accuracy_particles",
    "coverage": "coverage90",
    "width": "width90",
}


def _named(scores: dict[str, float]) -> dict[str, float]:
    return {_NAMES.get(name, name): value for name, value in scores.items()}


def _against_truth(predictive: Predictive, truth: AnyArray) -> dict[str, float]:
    """RMSE against the function itself, as the paper has it for its synthetic regression."""
    known = jnp.asarray(truth).reshape(predictive.mean.shape)
    return {
        "rmse": float(rmse(predictive.mean, known)),
        "rmse_particles": float(over_particles(rmse, predictive, known)),
    }


def quick(experiment: Experiment) -> Experiment:
    """The same experiment in seconds, to see that everything runs; its numbers mean nothing."""
    return replace(
        experiment,
        settings=tuple(
            replace(
                setting,
                epochs=2,
                num_particles=20,
                vb_samples=5,
                evaluate_every=10,
                hmc=Hmc(0.01, 3, 5, 20),
                swag=Swag(5, 3),
                repeats=min(setting.repeats, 2),
                at_once=2,
                note=QUICK_NOTE,
            )
            for setting in experiment.settings
        ),
    )

"""What the figures of an experiment show: a few runs trained again, their predictions on a grid.

A run is its key and its data, so training it again gives the run of the table. Pictures that are
there already are kept; only methods without one are trained.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from partialbayes.parallel._sweep import sweep
from partialbayes.prediction._predict import predict
from partialbayes.types import Model, Particles, Posterior
from reproduction import data
from reproduction.experiments import crescent as crescent_runs
from reproduction.experiments import tabular as runner
from reproduction.experiments.crescent_oracle import Crescent
from reproduction.experiments.problems import Run
from reproduction.experiments.settings import Setting
from reproduction.figures.records import (
    Boundaries,
    Clouds,
    Curves,
    Flow,
    Novelty,
    Traces,
    load_figure_data,
    save_figure_data,
)
from reproduction.figures.write import DATA

SEEDS = 5
"""Runs that are pictured, as in the paper."""

_SHARED_TRACES = ("MAP-HMC", "SWAG", "SGSMC-HMC", "OHSMC-refine")
"""Methods of the crescent whose ψ is that of another one."""

_NUM_LINES = 30
_ACROSS, _UP = np.linspace(-2.0, 3.0, 50, dtype=np.float32), np.linspace(-1.5, 2.0, 50, dtype=np.float32)


def keep_predictions(setting: Setting, folder: Path, methods: tuple[str, ...], jobs: int | None) -> None:
    """Keep what the runs of the synthetic regression, or of the two moons, predict.

    Args:
        setting: Of "regression" or "moons".
        folder: Where ``figures.npz`` is.
        methods: Those of the table so far.
        jobs: As in `sweep`.
    """
    name = "curves" if setting.dataset == "regression" else "boundaries"
    seeds = tuple(range(min(SEEDS, setting.repeats)))
    records = _kept(folder).get(name)
    missing = [method for method in methods if not records or method not in records[0].samples]
    if records is None:
        posed = runner.prepared(setting, methods[0], None)[0]
        empty = _empty_curves if name == "curves" else _empty_boundaries
        records = [empty(posed.run(seed)) for seed in seeds]
    tasks = [
        runner.Task(setting, method, group, None)
        for method in missing
        for group in runner.in_groups(setting, method, seeds)
    ]
    for task, samples in sweep(_lines, tasks, n_jobs=jobs):
        for seed, sampled in zip(task.repeats, samples, strict=True):
            records[seed].samples[task.method] = sampled
    if missing:
        ordered = [record._replace(samples=_in_order(record.samples, methods)) for record in records]
        save_figure_data(folder / DATA, {name: ordered})


def _in_order(by_method: dict[str, Any], methods: tuple[str, ...]) -> dict[str, Any]:
    """Panels in the order of the table, whatever came first."""
    return {method: by_method[method] for method in methods if method in by_method}


def _lines(task: runner.Task) -> list[np.ndarray]:
    """What single particles predict on the grid, for each run of the task."""
    posed, fits, _ = runner.trained(task)
    grid = _grid(task.setting)
    return [_predicted(posed.model, fit.posterior, grid) for fit in fits]


def _grid(setting: Setting) -> np.ndarray:
    if setting.dataset == "regression":
        return _WAVE_GRID[:, None]
    return np.stack(np.meshgrid(_ACROSS, _UP), -1).reshape(-1, 2)


_WAVE_GRID = np.linspace(-8.0, 8.0, 160, dtype=np.float32)
"""Beyond the data, which end at ±6."""


def _predicted(model: Model, posterior: Posterior, grid: np.ndarray) -> np.ndarray:
    means, _, log_weights = predict(model, posterior, grid).components()
    values = np.asarray(means, np.float16).reshape(len(means), -1)
    values = values[_drawn(np.exp(np.asarray(log_weights, float)), _NUM_LINES)]
    shape = (len(_UP), len(_ACROSS)) if len(grid) == len(_UP) * len(_ACROSS) else (len(grid),)
    return values.reshape(-1, *shape)


def _drawn(weights: Float[np.ndarray, " particle"], count: int) -> np.ndarray:
    """Indices of equal weight; a single point stays one."""
    if len(weights) == 1:
        return np.zeros(1, int)
    return np.random.default_rng(0).choice(len(weights), count, p=weights / weights.sum())


def _empty_curves(run: Run) -> Curves:
    inputs, targets = (np.asarray(part).ravel() for part in run.test)
    truth = np.asarray(data.wave_function(jnp.asarray(_WAVE_GRID)))
    return Curves(_WAVE_GRID, truth, {}, inputs, targets)


def _empty_boundaries(run: Run) -> Boundaries:
    return Boundaries(_ACROSS, _UP, {}, np.asarray(run.test[0]), np.asarray(run.test[1]))


def keep_crescent(
    setting: crescent_runs.CrescentSetting, folder: Path, methods: tuple[str, ...]
) -> None:
    """Keep ψ over training, the samples of φ at its end, and how OHSMC's got there; run 0.

    Args:
        setting: Of the crescent.
        folder: Where ``figures.npz`` is.
        methods: Those of the table so far.
    """
    oracle = crescent_runs.drawn(setting, 0)
    best = oracle.best_psi()
    kept = _kept(folder)
    traces = kept.get("traces", [Traces({}, best)])
    clouds = kept.get("clouds", [_empty_clouds(oracle, best)])
    flow = kept.get("flow", [])
    for method in methods:
        if method in clouds[0].samples:
            continue
        run = crescent_runs.train(method, oracle, setting, 0)
        if method not in _SHARED_TRACES:
            traces[0].psi[method] = np.concatenate([[setting.start], run.psi])
        clouds[0].samples[method] = _equal(run.fit.posterior.particles, 500)
        if method == "OHSMC":
            flow = [_flow(oracle, setting, run)]
    traces = [trace._replace(psi=_in_order(trace.psi, methods)) for trace in traces]
    clouds = [cloud._replace(samples=_in_order(cloud.samples, methods)) for cloud in clouds]
    save_figure_data(folder / DATA, {"traces": traces, "clouds": clouds, "flow": flow})


def _empty_clouds(oracle: Crescent, best: float) -> Clouds:
    first, second = jnp.linspace(-3.0, 3.0, 120), jnp.linspace(-4.0, 3.0, 120)
    density = jnp.exp(oracle.log_density(best, jnp.stack(jnp.meshgrid(first, second), -1)))
    return Clouds(np.asarray(first), np.asarray(second), np.asarray(density), {})


def _flow(oracle: Crescent, setting: crescent_runs.CrescentSetting, run: crescent_runs.Trained) -> Flow:
    """The prior, then the cloud at times that double."""
    per_epoch = setting.rows // setting.batch_size
    wanted = [1, 2, 5, 10, 20, 50, 100]
    looks = sorted({min(round(len(run.steps) * share / 100), len(run.steps)) - 1 for share in wanted})
    prior = oracle.model.sample_prior(jax.random.key(0), run.fit.posterior.psi, 500)
    particles = [np.asarray(prior)] + [_equal(run.snapshots.posteriors[i].particles, 500) for i in looks]
    return Flow(
        np.array([0] + [run.steps[look] // per_epoch for look in looks]),
        np.concatenate([[setting.start], run.psi[looks]]),
        np.stack(particles),
    )


def _equal(particles: Particles, count: int) -> np.ndarray:
    weights = np.exp(np.asarray(particles.log_weights, float))
    return np.asarray(particles.values)[_drawn(weights, count)]


def keep_novelty(folder: Path, method: str, known: np.ndarray, unknown: np.ndarray) -> None:
    """Keep the mutual information of a run on images of the known and of the unknown kind.

    Args:
        folder: Where ``figures.npz`` is.
        method: As in the table.
        known: Of each MNIST test image.
        unknown: Of each Fashion-MNIST one.
    """
    (novelty,) = _kept(folder).get("novelty", [Novelty({}, {})])
    novelty.known[method] = known.astype(np.float16)
    novelty.unknown[method] = unknown.astype(np.float16)
    save_figure_data(folder / DATA, {"novelty": [novelty]})


def _kept(folder: Path) -> Mapping[str, list[Any]]:
    return load_figure_data(folder / DATA) if (folder / DATA).exists() else {}

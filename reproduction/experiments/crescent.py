"""The crescent experiment: ψ̂ and the posterior of φ by every method, against quadrature."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import optax
from jaxtyping import Float

from partialbayes import algorithms, kernels, samplers
from partialbayes.algorithms import map_estimate, ohsmc, sgsmc, smc, two_stage
from partialbayes.callbacks import Snapshots
from partialbayes.errors import StalledError, TrainingDivergedError
from partialbayes.resampling import stratified
from partialbayes.training._fit import fit
from partialbayes.types import Algorithm, Fit
from reproduction import data
from reproduction.experiments.crescent_oracle import Crescent, crescent, crescent_model
from reproduction.experiments.methods import averaging, hamiltonian
from reproduction.experiments.result_folder import Results
from reproduction.experiments.settings import (
    PAPER_HMC,
    QUICK_NOTE,
    Experiment,
    Hmc,
    Swag,
    Track,
    training_key,
)

logger = logging.getLogger(__name__)


_SWAG = Swag(num_steps=1000, rank=20)


@dataclass(frozen=True)
class CrescentSetting:
    """The paper's numbers.

    Attributes:
        dataset: As it is named in the tables.
        track: There is only one: the model has no noise to learn.
        rows: Data points, drawn at ψ = 1 and φ = 0.
        start: Where ψ begins.
        batch_size: M.
        epochs: How often training goes through the data; the methods of all data at once do as
            many steps.
        rate: Where Adam's rate begins; ``decay`` each ten steps.
        decay: Of the rate.
        num_particles: J.
        monte_carlo_samples: Of the brute-force methods.
        vb_samples: Draws for each gradient of VB.
        walk_variance: Of OHSMC's random walk.
        metropolis_variance: Of SGSMC's random-walk Metropolis, ten steps of it.
        hmc: Of the second stages.
        swag: Of the averaging: 100 epochs.
        repeats: Data sets drawn.
        methods: Those of the table.
        note: What a reader of the table has to know.
    """

    dataset: str = "crescent"
    track: Track = "paper"
    rows: int = 100
    start: float = 0.1
    batch_size: int = 10
    epochs: int = 200
    rate: float = 0.1
    decay: float = 0.96
    num_particles: int = 1000
    monte_carlo_samples: int = 10_000
    vb_samples: int = 100
    walk_variance: float = 0.001
    metropolis_variance: float = 0.001
    hmc: Hmc = PAPER_HMC
    swag: Swag = _SWAG
    repeats: int = 10
    methods: tuple[str, ...] = (
        *("OHSMC", "SGSMC", "MC", "VB", "MAP", "SWAG", "MAP-HMC", "SGSMC-HMC"),
        *("SMC", "OHSMC-forgetting", "OHSMC-refine", "MC-evidence"),
    )
    note: str = ""


_ALL_DATA = ("MC", "MC-evidence", "SMC")


@cache
def algorithm(method: str, setting: CrescentSetting) -> Algorithm:
    """The algorithm of a method, by its name in the table."""
    model = crescent_model(setting.start)
    rate = optax.exponential_decay(setting.rate, transition_steps=10, decay_rate=setting.decay)
    optimizer = optax.adam(rate)
    common = {"num_particles": setting.num_particles, "optimizer": optimizer}
    metropolis = kernels.random_walk_metropolis(setting.metropolis_variance, num_steps=10)
    walk = kernels.random_walk(setting.walk_variance)
    hmc = hamiltonian(setting.hmc, setting.num_particles)
    brute = {"num_particles": setting.monte_carlo_samples, "optimizer": optimizer}
    on_batches = sgsmc(model, kernel=metropolis, resample=stratified, **common)
    point = map_estimate(model, optimizer=optimizer)
    last_rate = setting.rate * setting.decay ** (setting.epochs * setting.rows / setting.batch_size / 10)
    stage = averaging(model, setting.swag, setting.num_particles, last_rate, setting.batch_size)
    known = {
        "OHSMC": ohsmc(model, kernel=walk, resample=stratified, **common),
        "SGSMC": on_batches,
        "MC": algorithms.monte_carlo(model, objective=algorithms.expected_log_likelihood, **brute),
        "VB": algorithms.mean_field_vb(
            model, num_samples=setting.vb_samples, initial_scale=1.0, **common
        ),
        "MAP": point,
        "SWAG": two_stage(point, stage),
        "MAP-HMC": two_stage(point, hmc),
        "SGSMC-HMC": two_stage(on_batches, hmc),
        "SMC": smc(model, kernel=metropolis, resample=stratified, **common),
        "OHSMC-forgetting": ohsmc(model, kernel=kernels.forgetting(), **common),
        "OHSMC-refine": two_stage(
            ohsmc(model, kernel=walk, resample=stratified, **common),
            samplers.tempered_smc(num_particles=setting.num_particles),
        ),
        "MC-evidence": algorithms.monte_carlo(model, **brute),
    }
    return known[method]


class Trained(NamedTuple):
    """A run of a method, with what the figures show of it.

    Attributes:
        fit: What training returned.
        steps: The steps at which ψ was looked at.
        psi: Its value there.
        snapshots: The posteriors there.
    """

    fit: Fit
    steps: list[int]
    psi: Float[np.ndarray, " look"]
    snapshots: Snapshots


def train(method: str, oracle: Crescent, setting: CrescentSetting, repeat: int) -> Trained:
    """One run of a method; one that diverged ends with its best posterior before."""
    num_steps = setting.epochs * setting.rows // setting.batch_size
    all_data = method in _ALL_DATA
    snapshots = Snapshots(every=max(num_steps // 100, 1))
    try:
        trained = fit(
            algorithm(method, setting),
            (oracle.inputs, oracle.targets),
            epochs=num_steps if all_data else setting.epochs,
            batch_size=None if all_data else setting.batch_size,
            key=training_key(repeat),
            progress=False,
            callbacks=[snapshots],
        )
    except TrainingDivergedError as error:
        if error.fit is None:
            raise
        logger.warning("crescent, %s, run %d: %s", method, repeat, error)
        trained = error.fit
    if trained.interrupted:
        raise KeyboardInterrupt
    psi = np.array([float(posterior.psi.network["psi"]) for posterior in snapshots.posteriors])
    return Trained(trained, snapshots.steps, psi, snapshots)


_SCORES = ("psi", "best_psi", "psi_error", "ks_phi0", "ks_phi1")


def score(trained: Fit, oracle: Crescent, best_psi: float) -> dict[str, float]:
    """How far ψ̂ is from the maximizer of the evidence, and the samples from the posterior there."""
    posterior = trained.posterior
    psi = float(posterior.psi.network["psi"])
    values, log_weights = posterior.particles
    first, second = oracle.distances(best_psi, values, jax.numpy.exp(log_weights))
    error = abs(abs(psi) - best_psi)  # the evidence is even in ψ
    return dict(zip(_SCORES, (psi, best_psi, error, first, second), strict=True))


def run_crescent(
    setting: CrescentSetting,
    folder: Path,
    *,
    repeats: int | None = None,
    methods: Sequence[str] | None = None,
) -> Results:
    """Run what is not yet in the folder; the arguments are those of `runner.run_experiment`."""
    results = Results(folder, Experiment("crescent", setting.track, (setting,)))
    done = results.finished()
    for repeat in range(setting.repeats if repeats is None else repeats):
        oracle = drawn(setting, repeat)
        best_psi = oracle.best_psi()
        for method in methods or setting.methods:
            if ("crescent", method, repeat) in done:
                continue
            before = time.perf_counter()
            try:
                trained = train(method, oracle, setting, repeat).fit
            except (TrainingDivergedError, StalledError) as error:
                logger.warning("crescent, %s, run %d: %s", method, repeat, error)
                scores = dict.fromkeys(_SCORES, math.nan)
            else:
                scores = score(trained, oracle, best_psi)
            scores["seconds"] = time.perf_counter() - before
            results.append("crescent", method, repeat, scores)
            logger.info(
                "crescent, %s, run %d: ψ %.3f, best %.3f", method, repeat, scores["psi"], best_psi
            )
    return results


def drawn(setting: CrescentSetting, repeat: int) -> Crescent:
    """The model with the data of a run."""
    _, targets = data.crescent(jax.random.key(repeat), setting.rows)
    return crescent(targets, setting.start)


def quick(setting: CrescentSetting) -> CrescentSetting:
    """The same in seconds, to see that everything runs; its numbers mean nothing."""
    return replace(
        setting,
        epochs=2,
        num_particles=20,
        monte_carlo_samples=50,
        vb_samples=5,
        hmc=Hmc(0.01, 3, 5, 20),
        swag=Swag(5, 3),
        repeats=1,
        note=QUICK_NOTE,
    )

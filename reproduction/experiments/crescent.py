"""The crescent experiment: ψ̂ and the posterior of φ by every method, against quadrature."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np
import optax
from jaxtyping import Float

from partialbayes import algorithms, kernels, samplers
from partialbayes.algorithms import map_estimate, ohsmc, sgsmc, smc, two_stage
from partialbayes.annealing import blocks, geometric_blocks
from partialbayes.callbacks import Snapshots
from partialbayes.resampling import stratified
from partialbayes.results import Fit
from partialbayes.training import Run, fit
from partialbayes.types import Algorithm
from reproduction import data
from reproduction.experiments.crescent_oracle import Crescent, crescent, crescent_model
from reproduction.experiments.experiment import Experiment, Task, salvage
from reproduction.experiments.methods import hmc_stage, swag_stage
from reproduction.experiments.settings import PAPER_HMC, Hmc, Setting, Swag, training_key
from reproduction.figures.collect import crescent_clouds, crescent_flow
from reproduction.figures.records import Record, Traces

_SWAG = Swag(num_steps=1000, rank=20)


@dataclass(frozen=True, kw_only=True)
class CrescentSetting(Setting):
    """The paper's numbers. There is no best track: the model has no noise to learn.

    Attributes:
        rows: Data points, drawn at ψ = 1 and φ = 0.
        start: Where ψ begins.
        decay: Factor of the learning rate every ten steps.
        monte_carlo_samples: Samples of the brute-force methods.
        metropolis_variance: Variance of SGSMC's random-walk Metropolis, ten steps of it.
        hmc: HMC of the second stages.
        swag: The averaging: 100 epochs.
    """

    dataset: str = "crescent"
    rows: int = 100
    start: float = 0.1
    batch_size: int = 10
    epochs: int = 200  # methods of all data at once do as many steps
    rate: float = 0.1
    decay: float = 0.96
    monte_carlo_samples: int = 10_000
    walk_variance: float = 0.001
    metropolis_variance: float = 0.001
    hmc: Hmc = PAPER_HMC
    swag: Swag = _SWAG
    repeats: int = 10
    methods: tuple[str, ...] = (
        *("OHSMC", "SGSMC", "MC", "VB", "MAP", "SWAG", "MAP-HMC", "SGSMC-HMC"),
        *("SMC", "OHSMC-forgetting", "OHSMC-refine", "MC-evidence", "SGSMC-blocks", "SGSMC-blocks-HMC"),
    )

    quick_changes: ClassVar[Mapping[str, Any]] = {
        **{"epochs": 2, "num_particles": 40, "monte_carlo_samples": 50, "vb_samples": 5, "repeats": 1},
        **{"hmc": Hmc(0.01, 3, 5, 20), "swag": Swag(5, 3)},
    }


_ALL_DATA = ("MC", "MC-evidence", "SMC")
"""Methods whose steps take all rows."""

_SHARED_TRACES = ("MAP-HMC", "SWAG", "SGSMC-HMC", "SGSMC-blocks-HMC", "OHSMC-refine")
"""Methods whose ψ is that of another one."""


@cache
def make_algorithm(method: str, setting: CrescentSetting) -> Algorithm:
    """Return the algorithm of a method, by its name in the table."""
    model = crescent_model(setting.start)
    rate = optax.exponential_decay(setting.rate, transition_steps=10, decay_rate=setting.decay)
    optimizer = optax.adam(rate)
    common = {"num_particles": setting.num_particles, "optimizer": optimizer}
    metropolis = kernels.random_walk_metropolis(setting.metropolis_variance, num_steps=10)
    walk = kernels.random_walk(setting.walk_variance)
    hmc = hmc_stage(setting.hmc, setting.num_particles)
    brute = {"num_particles": setting.monte_carlo_samples, "optimizer": optimizer}
    on_batches, in_blocks = (
        sgsmc(model, kernel=metropolis, resample=stratified, schedule=schedule, **common)
        for schedule in (blocks(1), geometric_blocks())  # row by row, as in Algorithm 2; and doubling
    )
    point = map_estimate(model, optimizer=optimizer)
    last_rate = setting.rate * setting.decay ** (setting.epochs * setting.rows / setting.batch_size / 10)
    stage = swag_stage(model, setting.swag, setting.num_particles, last_rate, setting.batch_size)
    known = {
        "OHSMC": ohsmc(model, kernel=walk, resample=stratified, **common),
        "SGSMC": on_batches,
        "SGSMC-blocks": in_blocks,
        "MC": algorithms.monte_carlo(model, objective=algorithms.expected_log_likelihood, **brute),
        "VB": algorithms.mean_field_vb(
            model, num_samples=setting.vb_samples, initial_scale=1.0, **common
        ),
        "MAP": point,
        "SWAG": two_stage(point, stage),
        "MAP-HMC": two_stage(point, hmc),
        "SGSMC-HMC": two_stage(on_batches, hmc),
        "SGSMC-blocks-HMC": two_stage(in_blocks, hmc),
        "SMC": smc(model, kernel=metropolis, resample=stratified, **common),
        "OHSMC-forgetting": ohsmc(model, kernel=kernels.forgetting(), **common),
        "OHSMC-refine": two_stage(
            ohsmc(model, kernel=walk, resample=stratified, **common),
            samplers.tempered_smc(num_particles=setting.num_particles),
        ),
        "MC-evidence": algorithms.monte_carlo(model, **brute),
    }
    return known[method]


class _Trained(NamedTuple):
    """A trained run; ``fit`` is None where it left no posterior."""

    fit: Fit | None
    snapshots: Snapshots
    oracle: Crescent
    best_psi: float

    def trace(self, start: float) -> Float[np.ndarray, " time"]:
        """Return ψ at the start, and then at each snapshot."""
        found = [float(posterior.psi.network["psi"]) for posterior in self.snapshots.posteriors]
        return np.array([start, *found])


@cache
def draw_data(setting: CrescentSetting, repeat: int) -> tuple[Crescent, float]:
    """Return the model with the data of a run, and the ψ that maximizes its evidence."""
    _, targets = data.crescent(jax.random.key(repeat), setting.rows)
    oracle = crescent(targets, setting.start)
    return oracle, oracle.best_psi()


_SCORES = ("psi", "best_psi", "psi_error", "ks_phi0", "ks_phi1")


class CrescentExperiment(Experiment):
    """Two random weights, and one parameter whose best value is known."""

    def default_jobs(self) -> int | None:
        """Use this process alone: compiling takes longer than the runs, which share their programs."""
        return 1

    def train(self, task: Task) -> list[_Trained]:
        """Train a run, with snapshots on the way."""
        setting: CrescentSetting = task.setting
        (repeat,) = task.repeats
        oracle, best_psi = draw_data(setting, repeat)
        num_steps = setting.epochs * setting.rows // setting.batch_size
        all_data = task.method in _ALL_DATA
        snapshots = Snapshots(every=max(num_steps // 100, 1))
        algorithm = make_algorithm(task.method, setting)

        def train() -> Fit:
            return fit(
                algorithm,
                (oracle.inputs, oracle.targets),
                epochs=num_steps if all_data else setting.epochs,
                batch_size=None if all_data else setting.batch_size,
                key=training_key(repeat),
                run=Run(callbacks=[snapshots]),
            )

        return [_Trained(salvage(train, algorithm, task), snapshots, oracle, best_psi)]

    def score(self, task: Task, trained: _Trained) -> dict[str, float]:
        """Return how far ψ̂ is from its best value, and the samples from the posterior there."""
        if trained.fit is None:
            return dict.fromkeys(_SCORES, math.nan)
        posterior, best_psi = trained.fit.posterior, trained.best_psi
        psi = float(posterior.psi.network["psi"])
        values, log_weights = posterior.particles
        first, second = trained.oracle.distances(best_psi, values, jax.numpy.exp(log_weights))
        error = abs(abs(psi) - best_psi)  # the evidence is even in ψ
        return dict(zip(_SCORES, (psi, best_psi, error, first, second), strict=True))

    def collect_records(self, task: Task, trained: _Trained) -> dict[str, Record]:
        """Return ψ over training, samples of φ at its end, and how OHSMC's got there."""
        assert trained.fit is not None
        setting, method, best = task.setting, task.method, trained.best_psi
        psi = trained.trace(setting.start)
        found: dict[str, Record] = {}
        if method not in _SHARED_TRACES:
            found["traces"] = Traces({method: psi}, best)
        found["clouds"] = crescent_clouds(method, trained.oracle, best, trained.fit.posterior)
        if method == "OHSMC":
            per_epoch = setting.rows // setting.batch_size
            found["flow"] = crescent_flow(trained.oracle, trained.snapshots, psi, per_epoch)
        return found


CRESCENT = CrescentExperiment(
    "crescent",
    "two random weights and one parameter, against quadrature",
    {"paper": (CrescentSetting(),)},
)

"""The methods of the tables, by the names they have there.

Each gives one algorithm, or several of which the best on validation data is kept, run by run.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import optax

from partialbayes import algorithms, kernels, samplers
from partialbayes.algorithms import ensemble, map_estimate, ohsmc, sgsmc, two_stage
from partialbayes.annealing import AnnealingSchedule, blocks, geometric_blocks
from partialbayes.resampling import stratified
from partialbayes.training import continue_training
from partialbayes.types import Algorithm, Model, Sampler
from reproduction.experiments.settings import Hmc, Swag, TabularSetting

Candidates: TypeAlias = tuple[Algorithm, ...]


def make_candidates(method: str, model: Model, setting: TabularSetting, num_steps: int) -> Candidates:
    """Return the algorithms of a method.

    Args:
        method: As in the tables.
        model: What to train.
        setting: The numbers.
        num_steps: Steps of the whole training, which a decaying learning rate needs to know.
    """
    return BY_TABLE_NAME[method](model, setting, _optimizer(setting, num_steps))


def _optimizer(setting: TabularSetting, num_steps: int) -> optax.GradientTransformation:
    if setting.final_rate == 1.0:
        return optax.adam(setting.rate)
    return optax.adam(optax.cosine_decay_schedule(setting.rate, num_steps, setting.final_rate))


def _ohsmc(model: Model, setting: TabularSetting, optimizer: optax.GradientTransformation) -> Candidates:
    train = partial(ohsmc, model, num_particles=setting.num_particles, optimizer=optimizer)
    if setting.track == "best":
        return (train(kernel=kernels.transport()),)
    walk = train(kernel=kernels.random_walk(setting.walk_variance), resample=stratified)
    if setting.ou_time is None:
        return (walk,)
    return walk, train(kernel=kernels.ornstein_uhlenbeck(setting.ou_time), resample=stratified)


def _sgsmc(
    schedule: AnnealingSchedule,
    model: Model,
    setting: TabularSetting,
    optimizer: optax.GradientTransformation,
) -> Candidates:
    trainer = sgsmc(
        model,
        num_particles=setting.num_particles,
        schedule=schedule,
        kernel=kernels.random_walk_metropolis(setting.metropolis_variance, num_steps=10, in_pairs=True),
        resample=stratified,
        optimizer=optimizer,
    )
    return (trainer,)


def _map(model: Model, setting: TabularSetting, optimizer: optax.GradientTransformation) -> Candidates:
    return (map_estimate(model, optimizer=optimizer),)


def _vb(model: Model, setting: TabularSetting, optimizer: optax.GradientTransformation) -> Candidates:
    trainer = algorithms.mean_field_vb(
        model,
        num_samples=setting.vb_samples,
        num_particles=setting.num_particles,
        initial_scale=1.0,  # of the prior, as in the paper
        optimizer=optimizer,
    )
    return (trainer,)


def swag_stage(model: Model, numbers: Swag, num_samples: int, rate: float, batch_size: int) -> Sampler:
    """Return SWAG as a second stage, from the best point of MAP, by Adam at a constant rate."""
    trainer = algorithms.swag(
        model, num_particles=num_samples, rank=numbers.rank, num_warmup=0, optimizer=optax.adam(rate)
    )
    return continue_training(trainer, num_steps=numbers.num_steps, batch_size=batch_size)


def hmc_stage(numbers: Hmc, num_particles: int) -> Sampler:
    """Return HMC as a second stage, in one chain as in the paper."""
    return samplers.hmc(
        step_size=numbers.step_size,
        num_leapfrog_steps=numbers.num_leapfrog_steps,
        num_chains=1,
        num_warmup=numbers.num_warmup,
        num_draws=numbers.num_draws,
        num_particles=min(num_particles, numbers.num_draws),
        jitter=numbers.jitter,
    )


_Build: TypeAlias = Callable[[Model, TabularSetting, optax.GradientTransformation], Candidates]


def _then(first: _Build, stage: Callable[[Model, TabularSetting], Sampler]) -> _Build:
    def build(
        model: Model, setting: TabularSetting, optimizer: optax.GradientTransformation
    ) -> Candidates:
        sampler = stage(model, setting)
        return tuple(two_stage(algorithm, sampler) for algorithm in first(model, setting, optimizer))

    return build


def _ensemble(member: _Build) -> _Build:
    def build(
        model: Model, setting: TabularSetting, optimizer: optax.GradientTransformation
    ) -> Candidates:
        members = member(model, setting, optimizer)
        return tuple(ensemble(algorithm, setting.num_members) for algorithm in members)

    return build


def _hmc(model: Model, setting: TabularSetting) -> Sampler:
    return hmc_stage(setting.hmc, setting.num_particles)


_SWAG_SHARES = (1.0, 0.1, 0.01)
"""Of the initial rate, what SWAG averages at in the best track: of three the best on validation data.

After a decay to a hundredth the initial rate throws the weights far from where MAP had brought them.
"""


def _swag(model: Model, setting: TabularSetting, optimizer: optax.GradientTransformation) -> Candidates:
    shares = _SWAG_SHARES if setting.track == "best" else (1.0,)
    (point,) = _map(model, setting, optimizer)
    numbers = (setting.swag, setting.num_particles)
    return tuple(
        two_stage(point, swag_stage(model, *numbers, share * setting.rate, setting.batch_size))
        for share in shares
    )


def _laplace(model: Model, setting: TabularSetting) -> Sampler:
    return samplers.laplace(num_particles=setting.num_particles)


def _tempered_smc(model: Model, setting: TabularSetting) -> Sampler:
    return samplers.tempered_smc(num_particles=setting.num_particles)


BY_TABLE_NAME: dict[str, _Build] = {
    "OHSMC": _ohsmc,
    "MAP-HMC": _then(_map, _hmc),
    "SGSMC-HMC": _then(partial(_sgsmc, blocks(1)), _hmc),  # row by row, as in Algorithm 2
    "SGSMC-blocks-HMC": _then(partial(_sgsmc, geometric_blocks()), _hmc),
    "SWAG": _swag,
    "VB": _vb,
    "MAP": _map,
    "OHSMC-refine": _then(_ohsmc, _tempered_smc),
    "OHSMC-ensemble": _ensemble(_ohsmc),
    "Deep ensemble": _ensemble(_map),
    "MAP-Laplace": _then(_map, _laplace),
}

ONE_AT_A_TIME = {"OHSMC", "SGSMC-HMC", "SGSMC-blocks-HMC", "VB", "OHSMC-refine", "OHSMC-ensemble"}
"""Methods whose particles fill the machine by themselves."""

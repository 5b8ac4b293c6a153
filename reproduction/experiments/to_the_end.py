"""Runs whose end is their result: what has to be chosen is chosen on held-out training rows.

Every method of a split gets the same of each:

1. a part of the training rows is held out;
2. the scale of a normal prior of ψ (`weight_prior`) is the one with which MAP, trained to its end, has
   the best held-out density, on average over several ways to divide the training rows;
3. the method is trained with that prior to the end of a schedule of falling rates, and no step of the
   run is chosen;
4. the spread of what it predicts is corrected on the held-out rows (`calibrate`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from partialbayes import kernels
from partialbayes.algorithms import (
    ensemble,
    map_estimate,
    ohsmc,
    particle_ensemble,
    trajectory,
    weight_prior,
)
from partialbayes.prediction import calibrate
from partialbayes.prediction._predict import log_predictive_density
from partialbayes.results import Fit
from partialbayes.training import Run as Options
from partialbayes.training import fit_many
from partialbayes.types import Algorithm, Model
from reproduction.experiments.problems import Problem, Run
from reproduction.experiments.settings import TabularSetting, training_key

_Pair: TypeAlias = tuple[Any, Any]


class _Method(NamedTuple):
    """How a method is built, and what of the problem and the setting it uses.

    Attributes:
        build: From model, optimizer, setting and number of steps to the algorithm.
        rank_one: Whether it trains the network with rank-one factors.
        at_once: How many runs make one program; None for those of the setting.
    """

    build: Callable[[Model, optax.GradientTransformation, TabularSetting, int], Algorithm]
    rank_one: bool = False
    at_once: int | None = None


def _map(model: Model, optimizer: optax.GradientTransformation, *_: object) -> Algorithm:
    return map_estimate(model, optimizer=optimizer)


def _ohsmc(model: Model, optimizer: optax.GradientTransformation, *_: object) -> Algorithm:
    return ohsmc(model, optimizer=optimizer)  # the kernel and the number of particles it has by default


def _few_particles(
    model: Model, optimizer: optax.GradientTransformation, setting: TabularSetting, num_steps: int
) -> Algorithm:
    """OHSMC without correlations between weights, which needs no factorization and few particles."""
    kernel = kernels.transport("diagonal")
    return ohsmc(model, num_particles=setting.num_diagonal, kernel=kernel, optimizer=optimizer)


def _members(
    model: Model, optimizer: optax.GradientTransformation, setting: TabularSetting, num_steps: int
) -> Algorithm:
    return particle_ensemble(
        model,
        num_particles=setting.num_rank_one,
        rows_per_particle=setting.rows_per_member,
        optimizer=optimizer,
        particle_optimizer=falling_adam(setting, num_steps),
    )


_Build: TypeAlias = Callable[[Model, optax.GradientTransformation, TabularSetting, int], Algorithm]


def _along_the_path(build: _Build) -> _Build:
    """The mixture over the second half of the run."""

    def changed(
        model: Model, optimizer: optax.GradientTransformation, setting: TabularSetting, num_steps: int
    ) -> Algorithm:
        run = build(model, optimizer, setting, num_steps)
        every = max(1, num_steps // (2 * setting.num_snapshots))
        return trajectory(run, setting.num_snapshots, every=every)

    return changed


def _several(build: _Build) -> _Build:
    def changed(
        model: Model, optimizer: optax.GradientTransformation, setting: TabularSetting, num_steps: int
    ) -> Algorithm:
        return ensemble(build(model, optimizer, setting, num_steps), setting.num_members)

    return changed


METHODS: dict[str, _Method] = {
    "MAP": _Method(_map),
    "MAP-trajectory": _Method(_along_the_path(_map)),
    "OHSMC": _Method(_ohsmc, at_once=5),
    "OHSMC-trajectory": _Method(_along_the_path(_ohsmc), at_once=5),
    "OHSMC-diagonal": _Method(_few_particles),
    "Rank-one": _Method(_members, rank_one=True),
    "Rank-one-trajectory": _Method(_along_the_path(_members), rank_one=True),
    "Deep ensemble": _Method(_several(_map)),
    "Deep ensemble-trajectory": _Method(_several(_along_the_path(_map))),
}
"""By their names in the tables."""


def falling_adam(setting: TabularSetting, num_steps: int) -> optax.GradientTransformation:
    """Return Adam with a rate that falls by a cosine to a fraction of its first value."""
    return optax.adam(optax.cosine_decay_schedule(setting.rate, num_steps, setting.final_rate))


def train_to_the_end(
    method: str, problem: Problem, setting: TabularSetting, repeats: Sequence[int]
) -> list[tuple[Model, Fit]]:
    """Train runs as one program, each to its end with its own prior of ψ, and calibrate them.

    Returns:
        Of each run the model with its calibration, and the fit for it.
    """
    found = METHODS[method]
    model = problem.rank_one if found.rank_one else problem.model
    assert model is not None
    runs = [problem.run(repeat) for repeat in repeats]
    scales = choose_scales(problem, setting, repeats)
    data = [run.train for run in runs]
    trained = []
    for fit, run in zip(_train(method, model, setting, data, scales, repeats), runs, strict=True):
        corrected, posterior = calibrate(model, fit.posterior, run.validation)
        trained.append((corrected, fit._replace(posterior=posterior)))
    return trained


def _train(
    method: str,
    model: Model,
    setting: TabularSetting,
    data: Sequence[_Pair],
    scales: Sequence[float],
    seeds: Sequence[int],
) -> list[Fit]:
    rows = len(data[0][1])
    num_steps = setting.epochs * -(-rows // setting.batch_size)  # the same for every method
    batch_size = setting.batch_size
    if METHODS[method].rank_one:
        batch_size = min(setting.rows_per_member * setting.num_rank_one, rows)
    batches = -(-rows // batch_size)
    epochs = max(1, round(num_steps / batches))
    return fit_many(
        _builder(method, model, setting, epochs * batches),
        list(data),
        epochs=epochs,
        batch_size=batch_size,
        hyperparameters=jnp.asarray(scales),
        key=jax.vmap(training_key)(jnp.asarray(seeds)),
        run=Options(progress=False),
    )


@lru_cache(maxsize=8)
def _builder(
    method: str, model: Model, setting: TabularSetting, num_steps: int
) -> Callable[[Array], Algorithm]:
    """From the scale of ψ's prior to the algorithm; one object, so that a process compiles once."""

    def build(scale: Array) -> Algorithm:
        optimizer = optax.chain(weight_prior(model, scale), falling_adam(setting, num_steps))
        return METHODS[method].build(model, optimizer, setting, num_steps)

    return build


_CHOSEN: dict[tuple[TabularSetting, int], float] = {}


def choose_scales(problem: Problem, setting: TabularSetting, repeats: Sequence[int]) -> list[float]:
    """Return for each run the scale of ψ's prior with the best density of held-out rows, by MAP.

    A process chooses once for each run, whatever the method.
    """
    missing = [repeat for repeat in repeats if (setting, repeat) not in _CHOSEN]
    scales, folds = setting.prior_scales, setting.tuning_folds
    if missing:
        tried = [
            (repeat, fold, scale) for repeat in missing for fold in range(folds) for scale in scales
        ]
        divided = [_divide(problem.run(repeat), fold) for repeat, fold, _ in tried]
        fits = _train(
            "MAP",
            problem.model,
            setting,
            [train for train, _ in divided],
            [scale for _, _, scale in tried],
            [repeat * folds + fold for repeat, fold, _ in tried],
        )
        scores = [
            _score(problem.model, fit, held_out)
            for fit, (_, held_out) in zip(fits, divided, strict=True)
        ]
        means = np.reshape(scores, (len(missing), folds, len(scales))).mean(axis=1)
        for repeat, own in zip(missing, means, strict=True):
            _CHOSEN[setting, repeat] = scales[int(np.nanargmin(own))]
    return [_CHOSEN[setting, repeat] for repeat in repeats]


def _divide(run: Run, fold: int) -> tuple[_Pair, _Pair]:
    """Divide training and held-out rows of a run anew; the first way is the run's own."""
    if fold == 0:
        return run.train, run.validation
    count = len(run.validation[1])
    order = np.random.default_rng(fold).permutation(len(run.train[1]) + count)
    inputs, targets = (np.concatenate(pair) for pair in zip(run.train, run.validation, strict=True))
    train, held_out = order[count:], order[:count]
    return (inputs[train], targets[train]), (inputs[held_out], targets[held_out])


def _score(model: Model, fit: Fit, held_out: _Pair) -> float:
    corrected, posterior = calibrate(model, fit.posterior, held_out)
    return -float(log_predictive_density(corrected, posterior, held_out).mean())

"""The model of an experiment, and the data of each of its runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from partialbayes.likelihoods import bernoulli, categorical, gaussian, student_t
from partialbayes.model._partial_bnn import partial_bnn
from partialbayes.networks import mlp, rank_one
from partialbayes.parameters import learned
from partialbayes.prediction._target_scale import TargetScale
from partialbayes.priors import fan_in, normal
from partialbayes.types import Likelihood, Model
from reproduction import data
from reproduction.experiments.settings import TabularSetting


class Run(NamedTuple):
    """The data of one run.

    Attributes:
        train: What is trained on, a pair.
        validation: What the best posterior is chosen by.
        test: What is scored, in the units scores are to have.
        truth: The noiseless function at the test inputs, where it is known.
        target_scale: From the units of training to those of ``test``; None where they are the same.
    """

    train: tuple[Any, Any]
    validation: tuple[Any, Any]
    test: tuple[Any, Any]
    truth: Any = None
    target_scale: TargetScale | None = None


class Problem(NamedTuple):
    """A model, the data of its run number r, and the same model with rank-one factors."""

    model: Model
    run: Callable[[int], Run]
    rank_one: Model | None = None


def pose_wave(setting: TabularSetting, folder: Path | None = None) -> Problem:
    """Return the synthetic regression, which needs no folder."""
    return Problem(_make_model(setting, 1, _make_noise(setting)), _draw_wave)


def pose_moons(setting: TabularSetting, folder: Path | None = None) -> Problem:
    """Return the two moons, which need no folder."""
    return Problem(_make_model(setting, 2, bernoulli()), _draw_moons)


def pose_table(setting: TabularSetting, folder: Path | None = None) -> Problem:
    """Return the problem of a UCI table.

    Args:
        setting: The numbers.
        folder: Where real data are, see `reproduction.data`.
    """
    table = data.uci(setting.dataset, folder)
    likelihood = categorical() if table.classes else _make_noise(setting)
    model = _make_model(setting, table.inputs.shape[1], likelihood, table.classes or 1)
    if setting.most_repeats is None:
        return Problem(model, lambda repeat: _split(table, repeat))
    if setting.track == "gap":
        splits = [_middle_third(column) for column in table.inputs.T]
    else:
        splits = data.uci_splits(setting.dataset, folder)
    return Problem(
        model,
        lambda repeat: _standard_split(setting, table, splits[repeat], repeat),
        _with_factors(setting, model, table.inputs.shape[1]),
    )


def _make_noise(setting: TabularSetting) -> Likelihood:
    """Return the noise of real-valued targets."""
    if setting.noise == "fixed":
        return gaussian(1.0)
    if setting.noise == "learned":
        return gaussian(learned(1.0))
    return student_t(5.0, "predicted")


def _make_model(
    setting: TabularSetting, features: int, likelihood: Likelihood, outputs: int = 1
) -> Model:
    if setting.noise == "student_t":
        outputs = 2 * outputs
    network = mlp([features, *setting.hidden, outputs], initial_bias=setting.initial_bias)
    prior = normal(scale=fan_in() if setting.prior == "fan_in" else 1.0)
    return partial_bnn(network, f"layers/{setting.stochastic}/**", likelihood, prior)


def _with_factors(setting: TabularSetting, model: Model, features: int) -> Model:
    """Return the model with rank-one factors of every layer, and these, biases and the head as φ."""
    network = rank_one(
        mlp([features, *setting.hidden, 2], initial_bias=setting.initial_bias),
        "layers/*/kernel",
        signs="layers/0/kernel",
    )
    last = f"network/layers/{len(setting.hidden)}/kernel"
    prior = normal(scale=fan_in() if setting.prior == "fan_in" else 1.0)
    return partial_bnn(network, ["factors/**", "**/bias", last], model.likelihood, prior)


def _middle_third(column: Float[np.ndarray, " row"]) -> np.ndarray:
    """Return the rows whose value lies in the middle third; rows of one value in random order."""
    order = np.lexsort((np.random.default_rng(0).permutation(len(column)), column))
    return order[len(column) // 3 : 2 * len(column) // 3]


def _draw_wave(repeat: int) -> Run:
    keys = jax.random.split(jax.random.key(repeat), 3)
    train, validation, test = (data.wave(key) for key in keys)
    return Run(train, validation, test, truth=data.wave_function(test[0]))


def _draw_moons(repeat: int) -> Run:
    train, validation, test = (data.moons(3 * repeat + part) for part in range(3))
    return Run(train, validation, test)


def _split(table: data.Table, repeat: int) -> Run:
    """Split 60 / 30 / 10 percent, scaled by the training rows alone; scores are in scaled units."""
    rows = len(table.targets)
    order = np.random.default_rng(repeat).permutation(rows)
    parts = np.split(order, [round(0.6 * rows), round(0.9 * rows)])
    scaled = _standardize(table.inputs, parts[0])
    targets = table.targets
    if table.classes is None:
        targets = TargetScale.of(targets[parts[0]]).apply(targets).astype(np.float32)
    train, validation, test = ((scaled[part], targets[part]) for part in parts)
    return Run(train, validation, test)


def _standard_split(setting: TabularSetting, table: data.Table, test: np.ndarray, repeat: int) -> Run:
    """Divide by the test rows, validation from the training rows; scores in original units."""
    rest = np.setdiff1d(np.arange(len(table.targets)), test)
    rest = np.random.default_rng(repeat).permutation(rest)
    validation, train = np.split(rest, [round(setting.validation_share * len(rest))])
    inputs = _standardize(table.inputs, train)
    scale = TargetScale.of(table.targets[train])
    targets = scale.apply(table.targets).astype(np.float32)
    return Run(
        (inputs[train], targets[train]),
        (inputs[validation], targets[validation]),
        (inputs[test], table.targets[test]),
        target_scale=scale,
    )


def _standardize(inputs: Float[np.ndarray, "row feature"], train: np.ndarray) -> np.ndarray:
    """Return inputs less the mean of the training rows, over their standard deviation."""
    spread = inputs[train].std(axis=0)
    return ((inputs - inputs[train].mean(axis=0)) / np.where(spread > 0, spread, 1.0)).astype(np.float32)

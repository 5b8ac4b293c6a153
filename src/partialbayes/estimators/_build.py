"""The network and method behind an estimator, compiled once for the same settings."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import numpy as np
import optax

from partialbayes import subsets
from partialbayes.estimators import _crossfit as crossfit
from partialbayes.estimators import _methods as methods
from partialbayes.estimators._recipe import Recipe
from partialbayes.likelihoods import bernoulli, categorical, gaussian
from partialbayes.model._partial_bnn import partial_bnn
from partialbayes.networks import mlp
from partialbayes.parameters import learned
from partialbayes.priors import fan_in, normal
from partialbayes.types import Algorithm, Model

SHORTHANDS = {
    "first": subsets.layer(0),
    "last": subsets.layer(-1),
    "biases": subsets.biases(),
    "all": subsets.glob("**"),
}


class Settings(NamedTuple):
    """All that decides which program is compiled, besides the number of rows."""

    sizes: tuple[int, ...]
    likelihood: str
    stochastic: Any
    method: Any
    num_particles: int
    learning_rate: float
    weight_decay: float


def build_algorithm(settings: Settings | Recipe) -> Algorithm:
    """The method on the network for a table; the same object for the same settings."""
    if isinstance(settings, Recipe):
        return crossfit.grouped(settings)
    try:
        return _cached(settings)
    except TypeError:  # a selection that cannot be hashed
        return _build(settings)


def algorithm_for(settings: Settings | Recipe, model: Model) -> Algorithm:
    """The method on a model that was saved with these settings.

    Raises:
        ValueError: The settings are of a network with other weights.
    """
    built = build_algorithm(settings)
    if _weights(built.model) != _weights(model):
        raise ValueError("its settings are of another network than its weights.")
    masks = zip(built.model.split.masks, model.split.masks, strict=True)
    if built.model.recipes == model.recipes and all(np.array_equal(*pair) for pair in masks):
        return built  # the same model, whose programs may be compiled already
    if isinstance(settings, Recipe):
        raise ValueError("its network is not that of its settings.")
    return _method(settings, model)


def _weights(model: Model) -> list[Any]:
    """The names, shapes and dtypes of what a model has to learn."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(jax.eval_shape(model.init, jax.random.key(0)))
    return [(jax.tree_util.keystr(path), leaf.shape, leaf.dtype) for path, leaf in leaves]


def _build(settings: Settings) -> Algorithm:
    likelihood = {
        "gaussian": lambda: gaussian(learned(0.5)),
        "bernoulli": bernoulli,
        "categorical": categorical,
    }[settings.likelihood]()
    stochastic = settings.stochastic
    if isinstance(stochastic, str):
        stochastic = SHORTHANDS.get(stochastic, stochastic)
    model = partial_bnn(mlp(settings.sizes), stochastic, likelihood, normal(scale=fan_in()))
    return _method(settings, model)


def _method(settings: Settings, model: Model) -> Algorithm:
    def decays(path: Any, leaf: Any) -> bool:
        # The weights of ψ, whatever tree they are in; neither its noise nor φ, which has a prior.
        return "network" in jax.tree_util.keystr(path)

    optimizer = optax.chain(
        optax.add_decayed_weights(
            settings.weight_decay, mask=lambda tree: jax.tree_util.tree_map_with_path(decays, tree)
        ),
        optax.adam(settings.learning_rate),
    )
    return methods.build(settings.method, model, methods.Budget(settings.num_particles, optimizer))


_cached = functools.lru_cache(maxsize=64)(_build)

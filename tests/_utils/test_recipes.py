"""Recipes: only what is registered is written down, and only that is made again."""

import json
from typing import NamedTuple

import jax.numpy as jnp
import pytest

import partialbayes as pb
from partialbayes._utils import recipes


class Learned(NamedTuple):
    """Of the same name as the library's own, and something else."""

    start: float


def test_a_class_is_known_by_itself_and_not_by_its_name():
    assert pb.gaussian(pb.learned(1.0)).recipe is not None
    assert recipes._encode([pb.learned(1.0)])[0]["marker"] == "Learned"
    with pytest.raises(recipes._NoRecipeError):
        recipes._encode(Learned(1.0))


def test_an_activation_is_one_of_a_list():
    recipe = pb.mlp([1, 2, 1], activation=jnp.tanh).recipe
    assert recipes.make(recipe).recipe == recipe
    assert pb.mlp([1, 2, 1], activation=jnp.exp).recipe is None
    with pytest.raises(ValueError, match="does not know the activation 'load'"):
        recipes.make(
            json.dumps(
                json.loads(recipe) | {"arguments": {"sizes": [1, 1], "activation": {"function": "load"}}}
            )
        )

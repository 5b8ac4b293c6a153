"""Record how the ready-made parts of a model were built, as JSON, so that a saved model can be rebuilt.

A builder decorated by `serializable_builder` attaches a *recipe* to its result: its name and its
arguments. Only registered names can be rebuilt, so reading a file runs no other code. Parts without a
recipe, such as a network of your own, are passed again to `load`.
"""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

Arguments = ParamSpec("Arguments")
Made = TypeVar("Made")
Marker = TypeVar("Marker", bound=type)

_BUILDERS: dict[str, Callable[..., Any]] = {}
_MARKERS: dict[str, type] = {}
_PLAIN = (bool, int, float, str, type(None))
_ACTIVATIONS = {
    function.__name__: function
    for function in (
        *(jax.nn.celu, jax.nn.elu, jax.nn.gelu, jax.nn.hard_sigmoid, jax.nn.hard_silu, jax.nn.hard_tanh),
        *(jax.nn.leaky_relu, jax.nn.log_sigmoid, jax.nn.mish, jax.nn.relu, jax.nn.relu6, jax.nn.selu),
        *(jax.nn.sigmoid, jax.nn.silu, jax.nn.soft_sign, jax.nn.softplus, jax.nn.squareplus),
        *(jnp.tanh, jnp.sin, jnp.cos, jnp.square),
    )
}


class _NoRecipeError(Exception):
    """An argument cannot be written as JSON."""


def serializable_builder(name: str) -> Callable[[Callable[Arguments, Made]], Callable[Arguments, Made]]:
    """Make a builder attach its recipe to its result.

    Args:
        name: The name of the builder in files; it must never change.

    Returns:
        The decorator.
    """

    def decorate(builder: Callable[Arguments, Made]) -> Callable[Arguments, Made]:
        signature = inspect.signature(builder)

        @functools.wraps(builder)
        def build(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Made:
            made: Any = builder(*args, **kwargs)
            try:
                given = signature.bind(*args, **kwargs).arguments
                arguments = {key: _encode(value) for key, value in given.items()}
            except _NoRecipeError:
                return made
            recipe = json.dumps({"builder": name, "arguments": arguments})
            if hasattr(made, "_replace"):
                return made._replace(recipe=recipe)
            made.recipe = recipe  # a prior is a function until it is bound
            return made

        _BUILDERS[name] = build
        return build

    return decorate


def serializable_argument(marker: Marker) -> Marker:
    """Allow a NamedTuple, such as `Learned`, as an argument in recipes."""
    _MARKERS[marker.__name__] = marker
    return marker


def make(recipe: str) -> Any:
    """Build what a recipe describes.

    Raises:
        ValueError: The recipe contains a name that this version does not have.
    """
    return _decode({"recipe": json.loads(recipe)})


def _encode(value: Any) -> Any:
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, jax.core.Tracer):
        raise _NoRecipeError
    if type(value) in _MARKERS.values():
        return {"marker": type(value).__name__, "fields": [_encode(field) for field in value]}
    if getattr(value, "recipe", None) is not None:
        return {"recipe": json.loads(value.recipe)}
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        array = np.asarray(value)
        if not (np.issubdtype(array.dtype, np.number) or array.dtype == bool):
            raise _NoRecipeError
        return {"array": array.tolist()}
    if type(value) in (list, tuple):
        return [_encode(item) for item in value]
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {"mapping": {key: _encode(item) for key, item in value.items()}}
    name = getattr(value, "__name__", "")
    if callable(value) and _ACTIVATIONS.get(name) is value:
        return {"function": name}
    raise _NoRecipeError


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return [_decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "marker" in value:
        return _look_up(_MARKERS, value["marker"])(*(_decode(field) for field in value["fields"]))
    if "array" in value:
        return np.asarray(value["array"])
    if "mapping" in value:
        return {key: _decode(item) for key, item in value["mapping"].items()}
    if "function" in value:
        return _look_up(_ACTIVATIONS, value["function"], "the activation ")
    recipe = value["recipe"]
    builder = _look_up(_BUILDERS, recipe["builder"])
    return builder(**{key: _decode(item) for key, item in recipe["arguments"].items()})


def _look_up(known: Mapping[str, Any], name: str, kind: str = "") -> Any:
    if name not in known:
        raise ValueError(
            f"this version of partialbayes does not know {kind}{name!r}; use the version that saved it."
        )
    return known[name]

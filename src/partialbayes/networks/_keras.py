"""Use Keras models, on Keras' JAX backend, as networks."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from partialbayes._utils.paths import named_leaves, nested
from partialbayes.types import Network

if TYPE_CHECKING:
    import keras


def from_keras(model: keras.Model, *, pretrained: bool = True) -> Network:
    """Make a network from a Keras model.

    Args:
        model: The built model, on the JAX backend: set ``KERAS_BACKEND=jax`` before Keras is imported.
            Training starts at its current weights; the model itself does not change.
        pretrained: Whether these weights are trained; see `Network`. False for a model that was
            never trained.

    Returns:
        The network. The paths of its weights are those of Keras, such as ``head/kernel``, without the
        name of the model. Dropout is off. Variables that Keras does not train (batch statistics, layers
        with ``trainable=False``) are constant. Inputs are those of the model: an array, a list or
        a dictionary of arrays.

    Raises:
        ImportError: Keras is not installed.
        ValueError: Keras runs on a different backend, or the model is not built or has no weights to
            train. At a call: the model draws random numbers.

    Example:
        >>> import partialbayes as pb
        >>> def classifier(model):  # a trained keras.Model
        ...     return pb.partial_bnn(pb.from_keras(model), "head/**", pb.categorical(), freeze="**")
    """
    if find_spec("keras") is None:
        raise ImportError("from_keras needs Keras: pip install -r requirements-keras.txt.")
    import keras

    if keras.backend.backend() != "jax":
        raise ValueError(
            f"Keras runs on {keras.backend.backend()!r}, and only its JAX backend can be used: set the "
            "environment variable KERAS_BACKEND=jax before Keras is imported, and load the model again."
        )
    if not isinstance(model, keras.Model):
        raise TypeError(f"model must be a keras.Model, not {model!r:.80}.")
    if not model.built:
        raise ValueError("model has no weights yet: build it, or call it once on an input.")
    if not model.trainable_variables:
        raise ValueError(
            "model has no weights to train; set trainable=True on the layers whose weights are to be "
            "random or trained."
        )
    names = _names(model)
    start = nested({name: jnp.array(variable.value, copy=True) for name, variable in names.items()})
    constants = [jnp.array(variable.value, copy=True) for variable in model.non_trainable_variables]
    states = [
        place
        for place, variable in enumerate(model.non_trainable_variables)
        if "seed_generator" in variable.path
    ]

    def apply(params: PyTree, inputs: PyTree) -> PyTree:
        flat = dict(named_leaves(params))
        weights = [flat[name] for name in names]
        # Foreign code need not pass the caller's strict checks.
        with jax.numpy_rank_promotion("allow"):
            outputs, after = model.stateless_call(weights, constants, inputs, training=False)
        if any(after[place] is not constants[place] for place in states):
            raise ValueError(
                "the model draws random numbers when it is called for prediction, so its outputs are no "
                "function of its weights and inputs; switch that off in the model."
            )
        return outputs

    return Network(lambda key: start, apply, ordered=True, pretrained=pretrained)


def _names(model: Any) -> dict[str, Any]:
    """Return the trained variables by path, in the order of the model, without the name of the model."""
    variables = model.trainable_variables
    own = [variable.path.removeprefix(f"{model.name}/") for variable in variables]
    twice = [name for name in own if own.count(name) > 1]
    if twice:
        raise ValueError(
            f"two variables of the model have the path {twice[0]!r}; give their layers different names."
        )
    return dict(zip(own, variables, strict=True))

"""Flax Linen modules as networks."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
from jaxtyping import PyTree

from partialbayes.networks._pretrained import require_weights
from partialbayes.types import Network, PRNGKey

if TYPE_CHECKING:
    from flax import linen

# What modules call the switch between training and evaluation, and its value at evaluation.
_SWITCHES = {
    "train": False,
    "training": False,
    "is_training": False,
    "deterministic": True,
    "use_running_average": True,
}


def from_linen(
    module: linen.Module,
    inputs: PyTree,
    *,
    variables: Mapping[str, Any] | None = None,
    pretrained: bool = False,
    **options: Any,
) -> Network:
    """A network from a Flax Linen module.

    Args:
        module: The module.
        inputs: A few rows of inputs, of which only the shape matters.
        variables: The variables of a pretrained module, ``{"params": …, "batch_stats": …}``, to
            start from; fresh weights for every key by default.
        pretrained: Whether those weights are worth keeping; see `Network`.
        **options: Further arguments of the module's call. A ``train`` or ``deterministic``
            argument, and their like, is set to evaluation by itself.

    Returns:
        The network; the paths of its weights are the module's names, such as ``Dense_0/kernel``.
        Dropout is off, and collections other than ``params`` (batch statistics) stay as they are.

    Raises:
        ValueError: ``variables`` has no ``params``, or the module draws random numbers or changes
            its state when it is called for evaluation; or ``pretrained`` without ``variables``.

    Example:
        >>> import flax.linen as nn, jax.numpy as jnp, partialbayes as pb
        >>> module = nn.Sequential([nn.Dense(20), nn.gelu, nn.Dense(1)])
        >>> network = pb.from_linen(module, jnp.ones((1, 2)))
        >>> pb.partial_bnn(network, "layers_2/**", pb.gaussian()).split.dim
        21
    """
    from flax import errors
    from flax.core import unfreeze

    known = inspect.signature(type(module).__call__).parameters
    options = {name: value for name, value in _SWITCHES.items() if name in known} | options

    def fresh(key: PRNGKey) -> dict[str, PyTree]:
        return dict(unfreeze(module.init(key, inputs, **options)))

    if variables is None:
        require_weights(pretrained, "variables")

        def init(key: PRNGKey) -> PyTree:
            return fresh(key)["params"]

        rest = jax.jit(lambda key: {k: v for k, v in fresh(key).items() if k != "params"})(
            jax.random.key(0)
        )
    else:
        rest = dict(unfreeze(variables))
        if "params" not in rest:
            raise ValueError(
                f"variables must hold the weights as 'params'; it has {sorted(rest)} only. Pass what "
                "module.init returned, or {'params': weights}."
            )
        as_called: dict[str, PyTree] = {}

        def note(key: PRNGKey) -> PyTree:
            as_called.update(fresh(key)["params"])
            return ()

        # Training sorts dictionaries by name; a fresh module has its layers as it calls them.
        jax.eval_shape(note, jax.random.key(0))
        start = _in_order_of(as_called, rest.pop("params"))

        def init(key: PRNGKey) -> PyTree:
            return start

    def apply(params: PyTree, inputs: PyTree) -> PyTree:
        try:
            return module.apply({"params": params, **rest}, inputs, **options)
        except errors.InvalidRngError as error:
            raise ValueError(
                "the module draws random numbers when it is called, so its outputs are no function of "
                "its weights and inputs; switch that off by an option of its call, such as "
                f"from_linen(..., deterministic=True). Flax says: {error}"
            ) from None
        except errors.ModifyScopeVariableError as error:
            raise ValueError(
                "the module changes its state when it is called; set it to evaluation by an option of "
                f"its call, such as from_linen(..., use_running_average=True). Flax says: {error}"
            ) from None

    return Network(init, apply, ordered=True, pretrained=pretrained)


def _in_order_of(template: PyTree, tree: PyTree) -> PyTree:
    """The same nested dictionaries with their keys in the template's order."""
    if not isinstance(tree, dict) or not isinstance(template, dict) or set(tree) != set(template):
        return tree
    return {name: _in_order_of(template[name], tree[name]) for name in template}

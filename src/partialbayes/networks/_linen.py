"""Convert Flax Linen modules to networks."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
from jaxtyping import PyTree

from partialbayes._utils.paths import sort_like
from partialbayes.networks._pretrained import require_weights
from partialbayes.types import Network, PRNGKey

if TYPE_CHECKING:
    from flax import linen

# Names of the switch between training and evaluation, and its value in evaluation.
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
    """Convert a Flax Linen module to a network.

    Args:
        module: The module.
        inputs: A few rows of inputs; only their shape and dtype are used.
        variables: The variables of a trained module, ``{"params": …, "batch_stats": …}``. By default
            each key draws new weights.
        pretrained: Whether ``variables`` are trained; see `Network`.
        **options: Further arguments of the module's call. Switches such as ``train`` or
            ``deterministic`` are set to evaluation by default.

    Returns:
        The network. The paths of its weights are the names of the module, such as ``Dense_0/kernel``.
        Dropout is off, and collections other than ``params`` (batch statistics) are constant.

    Raises:
        ValueError: ``variables`` has no ``params``; the module draws random numbers or changes its state
            in evaluation; or ``pretrained`` is set without ``variables``.

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
                f"variables must hold the weights as 'params'; it has only {sorted(rest)}. Pass what "
                "module.init returned, or {'params': weights}."
            )
        as_called: dict[str, PyTree] = {}

        def note(key: PRNGKey) -> PyTree:
            as_called.update(fresh(key)["params"])
            return ()

        # Trained dictionaries are sorted by name; a new module has its layers in the order of calls.
        jax.eval_shape(note, jax.random.key(0))
        start = sort_like(as_called, rest.pop("params"))

        def init(key: PRNGKey) -> PyTree:
            return start

    def apply(params: PyTree, inputs: PyTree) -> PyTree:
        try:
            return module.apply({"params": params, **rest}, inputs, **options)
        except errors.InvalidRngError as error:
            raise ValueError(
                "module draws random numbers when it is called; switch that off by an option of its "
                f"call, such as from_linen(..., deterministic=True). Flax reports: {error}"
            ) from None
        except errors.ModifyScopeVariableError as error:
            raise ValueError(
                "module changes its state when it is called; set it to evaluation by an option of its "
                f"call, such as from_linen(..., use_running_average=True). Flax reports: {error}"
            ) from None

    return Network(init, apply, ordered=True, pretrained=pretrained)

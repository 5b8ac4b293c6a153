"""Convert parameters and a function of them to a network."""

from __future__ import annotations

import jax
from jaxtyping import PyTree

from partialbayes.types import Network, NetworkApply


def from_params(
    params: PyTree,
    apply: NetworkApply,
    *,
    output_axis: int = -1,
    ordered: bool = False,
    pretrained: bool = False,
) -> Network:
    """Build a network from a pytree of weights and a function that applies them.

    To draw new weights for each key use ``Network(init, apply)``.

    Args:
        params: The weights at the start of training. Integers among them are constant.
        apply: ``(params, inputs) -> outputs``, with a leading example axis on both.
        output_axis: The axis of a kernel that indexes its output units; see `Network`.
        ordered: Whether the dictionaries in ``params`` are in the order of the layers, so that layers
            can be chosen by position. JAX sorts dictionaries by name.
        pretrained: Whether ``params`` are trained; see `Network`.

    Returns:
        The network.

    Example:
        >>> import jax.numpy as jnp, partialbayes as pb
        >>> params = {"trunk": jnp.ones((2, 3)), "head": jnp.ones((3, 1))}
        >>> network = pb.from_params(params, lambda p, x: jnp.tanh(x @ p["trunk"]) @ p["head"])
        >>> pb.partial_bnn(network, "head", pb.gaussian()).split.dim
        3
    """
    if not callable(apply):
        raise TypeError(f"apply must be a function (params, inputs) -> outputs, not {type(apply)}.")
    if not jax.tree.leaves(params):
        raise ValueError("params holds no array; pass the weights of the network.")
    return Network(lambda key: params, apply, output_axis, ordered, pretrained=pretrained)

"""Plain parameters and a function of them as a network."""

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
    """A network from its weights, any pytree of arrays, and what it computes with them.

    For fresh weights at every key use ``Network(init, apply)`` itself.

    Args:
        params: The weights, where training starts. Integers among them stay as they are.
        apply: ``(params, inputs) -> outputs``, with a leading example axis on both.
        output_axis: Which axis of a kernel counts the units it feeds; see `Network`.
        ordered: Whether the dictionaries in ``params`` are in the order of the layers, so that layers
            can be chosen by position. JAX sorts the dictionaries it returns by name.
        pretrained: Whether ``params`` are worth keeping; see `Network`.

    Raises:
        TypeError: ``apply`` is not a function.
        ValueError: ``params`` holds no array.

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

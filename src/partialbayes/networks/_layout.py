"""Images with their channels last, for networks that want them first, and the other way round."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from partialbayes._utils.checks import require_instance
from partialbayes.types import Network

_LAYOUTS = ("NCHW", "NHWC")


def with_layout(network: Network, data: str, own: str) -> Network:
    """The same network for images in another layout.

    Args:
        network: The network.
        data: How the images come: "NHWC" (channels last) or "NCHW" (channels first).
        own: How the network takes them. PyTorch's are "NCHW", Flax's and most of Keras' "NHWC".

    Returns:
        The network. Every array of the inputs with four axes is transposed, the others pass as they are.

    Example:
        >>> import jax.numpy as jnp, partialbayes as pb
        >>> first = pb.from_params({"w": jnp.ones(())}, lambda p, x: p["w"] * x[:, 0].sum((1, 2)))
        >>> last = pb.networks.with_layout(first, data="NHWC", own="NCHW")
        >>> last.apply({"w": jnp.ones(())}, jnp.ones((2, 5, 5, 3)))
        Array([25., 25.], dtype=float32)
    """
    require_instance("network", network, Network, "wrap yours by from_torch, from_keras or from_nnx.")
    for name, layout in (("data", data), ("own", own)):
        if layout not in _LAYOUTS:
            raise ValueError(f"{name} must be 'NHWC' or 'NCHW', not {layout!r}.")
    if data == own:
        return network
    axes = [data.index(letter) for letter in own]

    def turn(leaf: Array) -> Array:
        return jnp.transpose(leaf, axes) if jnp.ndim(leaf) == 4 else leaf

    def apply(params: PyTree, inputs: PyTree) -> PyTree:
        return network.apply(params, jax.tree.map(turn, inputs))

    return network._replace(apply=apply)

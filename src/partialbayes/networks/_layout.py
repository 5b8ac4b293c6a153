"""Convert images between channels first and channels last for a network."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from partialbayes._utils.checks import require_instance
from partialbayes.types import Network

_LAYOUTS = ("NCHW", "NHWC")


def with_layout(network: Network, data: str, own: str) -> Network:
    """Adapt a network to images in a different layout.

    Args:
        network: The network.
        data: The layout of the images: "NHWC" (channels last) or "NCHW" (channels first).
        own: The layout that the network takes. PyTorch uses "NCHW", Flax and most of Keras "NHWC".

    Returns:
        The network. Every array of the inputs with four axes is transposed; the others do not change.

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

"""The convolutional network of the paper: conv – pool – conv – pool – dense – dense, ReLU between."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from partialbayes._utils.checks import require_positive_int
from partialbayes._utils.recipes import serializable_builder
from partialbayes.types import Network, PRNGKey
from reproduction.networks.conv_relu_pool import conv_relu_pool


@serializable_builder("networks.cnn")
def cnn(
    input_shape: Sequence[int] = (28, 28, 1),
    channels: Sequence[int] = (32, 64),
    hidden: int = 256,
    num_outputs: int = 10,
) -> Network:
    """Convolutions of 3 × 3, each with ReLU and average pooling of 2 × 2, then two dense layers.

    Its weights are found at ``layers/0/kernel``, ``layers/0/bias``, and so on, the convolutions
    first.

    Args:
        input_shape: Height, width and channels of an image.
        channels: Channels of each convolution.
        hidden: Width of the first dense layer.
        num_outputs: Width of the second, one output per class.

    Raises:
        ValueError: The images are too small for the poolings, or a size is not a whole number of
            at least 1.

    Example:
        >>> import partialbayes as pb
        >>> model = pb.partial_bnn(cnn(), "layers/0/**", pb.categorical())
        >>> model.split.dim
        320
    """
    if len(input_shape) != 3:
        raise ValueError(f"input_shape must be (height, width, channels), not {input_shape!r}.")
    for name, size in (("hidden", hidden), ("num_outputs", num_outputs)):
        require_positive_int(name, size, "for example hidden=256.")
    for size in (*input_shape, *channels):
        require_positive_int("every entry of input_shape and channels", size, "for example (28, 28, 1).")
    height, width, depth = input_shape
    shrink = 2 ** len(channels)
    if min(height, width) < shrink:
        raise ValueError(
            f"input_shape {tuple(input_shape)} is too small for {len(channels)} poolings; images must "
            f"be at least {shrink} by {shrink}."
        )
    flat = (height // shrink) * (width // shrink) * (channels[-1] if channels else depth)
    shapes = [
        *(
            (3, 3, fan_in, fan_out)
            for fan_in, fan_out in zip((depth, *channels), channels, strict=False)
        ),
        (flat, hidden),
        (hidden, num_outputs),
    ]
    initial_kernel = jax.nn.initializers.lecun_normal()

    def init(key: PRNGKey) -> PyTree:
        keys = jax.random.split(key, len(shapes))
        return {
            "layers": [
                {"kernel": initial_kernel(layer_key, shape), "bias": jnp.zeros(shape[-1])}
                for layer_key, shape in zip(keys, shapes, strict=True)
            ]
        }

    def apply(params: PyTree, inputs: Float[Array, "example height width channels"]) -> Array:
        if inputs.shape[1:] != tuple(input_shape):
            raise ValueError(
                f"inputs have shape {inputs.shape}, but this network takes (examples, "
                f"{', '.join(map(str, input_shape))}); reshape the inputs or change input_shape."
            )
        layers = params["layers"]
        images = inputs
        for layer in layers[: len(channels)]:
            images = conv_relu_pool(images, layer["kernel"], layer["bias"])
        features = images.reshape(images.shape[0], -1)
        features = jax.nn.relu(_dense(features, layers[-2]))
        return _dense(features, layers[-1])

    return Network(init, apply)


def _dense(features: Array, layer: dict[str, Array]) -> Array:
    return features @ layer["kernel"] + jnp.expand_dims(layer["bias"], 0)

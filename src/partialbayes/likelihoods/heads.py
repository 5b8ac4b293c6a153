"""Networks that predict their noise: two outputs for each target, its middle and its spread."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from partialbayes.likelihoods.common import real_targets, squeeze_single, squeezed_shape


def two_heads(outputs: PyTree) -> tuple[Array, Array]:
    """The middle and the raw spread, from one array (the middles first) or from a pair.

    Args:
        outputs: What the network gives.
    """
    if isinstance(outputs, tuple | list):
        if len(outputs) != 2:
            raise ValueError(
                f"the network gives {len(outputs)} outputs; where it predicts the noise it must give a "
                "pair, the mean and the spread."
            )
        middle, raw = outputs
    else:
        middle, raw = jnp.split(outputs, 2, axis=-1)
    return squeeze_single(middle), squeeze_single(raw)


def check_two_heads(outputs: Any, targets: Any, likelihood: str) -> Array:
    """The targets, where there are two outputs for each of them.

    Args:
        outputs: The shapes of what the network gives.
        targets: As the user has them.
        likelihood: Its name, for the messages.
    """
    if hasattr(outputs, "shape") and (len(outputs.shape) < 2 or outputs.shape[-1] % 2):
        raise ValueError(
            f"the network's outputs have shape {outputs.shape}; the {likelihood} likelihood "
            "needs two for each target, the means first and then the spreads."
        )
    middle, raw = jax.eval_shape(two_heads, outputs)
    if middle.shape != raw.shape:
        raise ValueError(
            f"the network's two heads have shapes {middle.shape} and {raw.shape}; the mean and the "
            "spread must have the same."
        )
    return real_targets(targets, squeezed_shape(middle, likelihood), likelihood)

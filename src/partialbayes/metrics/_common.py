"""What the scores share: their arguments, brought to one shape."""

from __future__ import annotations

from typing import TypeAlias

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

AnyArray: TypeAlias = Array | np.ndarray


def align(name: str, values: AnyArray, targets: AnyArray) -> tuple[Array, Array]:
    """Predictions and targets of the same shape; targets may have a trailing axis of one."""
    values, targets = jnp.asarray(values), jnp.asarray(targets)
    if targets.shape == (*values.shape, 1):
        targets = targets[..., 0]
    if values.shape != targets.shape:
        raise ValueError(
            f"{name} has shape {values.shape} and targets {targets.shape}; they must be the same."
        )
    return values, targets


def per_class(probabilities: AnyArray, labels: AnyArray) -> tuple[Array, Array]:
    """Probabilities of every class, and labels."""
    probabilities, labels = jnp.asarray(probabilities), jnp.asarray(labels)
    shape = probabilities.shape
    if labels.shape != shape[:1] or not (len(shape) == 1 or (len(shape) == 2 and shape[1] > 1)):
        raise ValueError(
            f"probabilities have shape {shape} and labels {labels.shape}; give (n,) for the "
            "probability of class one, or (n, classes), and labels of shape (n,)."
        )
    if len(shape) == 1:
        probabilities = jnp.stack([1.0 - probabilities, probabilities], axis=1)
    return probabilities, labels

"""Standard normal rows in opposite pairs, for the moves of a cloud."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from partialbayes.types import PRNGKey


def antithetic(key: PRNGKey, shape: tuple[int, ...], dtype: DTypeLike) -> Float[Array, "particle dim"]:
    """Draw standard normal rows in opposite pairs: rows 2i and 2i + 1 sum to zero.

    Every row has exactly the right law, so averages over particles stay unbiased, and half as many
    numbers are drawn. Resampling puts copies of a particle next to each other. Two copies then move to
    opposite sides of their old position, which also makes such averages less noisy.
    """
    rows, dim = shape
    half = jax.random.normal(key, ((rows + 1) // 2, dim), dtype)
    signs = jnp.array([1.0, -1.0], dtype)
    pairs = signs[None, :, None] * half[:, None, :]
    return pairs.reshape(-1, dim)[:rows]

"""Convolutions of 3 × 3 by Winograd's minimal filtering F(2 × 2, 3 × 3).

The two neighboring values that four inputs d and a filter g make are Aᵀ[(G g) ⊙ (Bᵀ d)]: four
products where the sum itself has six. In two dimensions each of the three transforms goes along
both, and windows of 2 × 2 come from the 4 × 4 inputs around them by 16 products in place of 36.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import jax.numpy as jnp
from jaxtyping import Array, Float


def convolve_corners(
    images: Float[Array, "example height width channels"],
    kernel: Float[Array, "3 3 channels outputs"],
) -> list[Float[Array, "example half_height half_width outputs"]]:
    """The convolution, zeros around, at the four places of every window of 2 × 2, row by row.

    A last odd row or column is in no window.

    Example:
        >>> import jax.numpy as jnp
        >>> from reproduction.networks.winograd import convolve_corners
        >>> corners = convolve_corners(jnp.ones((5, 7, 8, 4)), jnp.ones((3, 3, 4, 6)))
        >>> len(corners), corners[0].shape
        (4, (5, 3, 4, 6))
    """
    rows, height, width = images.shape[0], images.shape[1] // 2, images.shape[2] // 2
    padded = jnp.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    around = [
        [padded[:, i : i + 2 * height : 2, j : j + 2 * width : 2] for j in range(4)] for i in range(4)
    ]
    inputs = jnp.stack(_transform_both(_transform_inputs, around)).reshape(16, rows * height * width, -1)
    filters = jnp.stack(_transform_both(_transform_filter, kernel))
    products = jnp.einsum("krc,kco->kro", inputs, filters)
    return _transform_both(_to_outputs, products.reshape(4, 4, rows, height, width, -1))


def _transform_both(
    transform: Callable[..., list[Array]], grid: Iterable[Iterable[Array]]
) -> list[Array]:
    """Transform rows, then columns. The result goes by columns, so that twice is by rows again."""
    half = [transform(*row) for row in grid]
    return [value for column in zip(*half, strict=True) for value in transform(*column)]


def _transform_inputs(a: Array, b: Array, c: Array, d: Array) -> list[Array]:
    return [a - c, b + c, c - b, b - d]


def _transform_filter(a: Array, b: Array, c: Array) -> list[Array]:
    return [a, (a + b + c) / 2.0, (a - b + c) / 2.0, c]


def _to_outputs(a: Array, b: Array, c: Array, d: Array) -> list[Array]:
    return [a + b + c, b - c - d]

"""Convolutions of 3 × 3 by Winograd's minimal filtering F(2 × 2, 3 × 3).

The two neighboring values that four inputs d and a filter g make are Aᵀ[(G g) ⊙ (Bᵀ d)]: four
products where the sum itself has six. In two dimensions each of the three transforms goes along
both, and windows of 2 × 2 come from the 4 × 4 inputs around them by 16 products in place of 36.

The form is linear in g too: its gradient for given values y is Gᵀ [(Bᵀ d) ⊙ (A y)], 16 products again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

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
    filters = jnp.stack(_transform_both(_transform_filter, kernel))
    products = jnp.einsum("krc,kco->kro", _transformed_windows(images), filters)
    grid = (images.shape[0], images.shape[1] // 2, images.shape[2] // 2)
    return _transform_both(_to_outputs, products.reshape(4, 4, *grid, kernel.shape[3]))


def kernel_gradient(
    images: Float[Array, "example height width channels"],
    corners: Sequence[Float[Array, "example half_height half_width outputs"]],
) -> Float[Array, "3 3 channels outputs"]:
    """The gradient in the kernel of the products of `convolve_corners` with ``corners``, summed.

    Example:
        >>> import jax.numpy as jnp
        >>> from reproduction.networks.winograd import kernel_gradient
        >>> kernel_gradient(jnp.ones((5, 6, 8, 4)), [jnp.ones((5, 3, 4, 6))] * 4).shape
        (3, 3, 4, 6)
    """
    channels, outputs = images.shape[3], corners[0].shape[3]
    spread = jnp.stack(_transform_both(_from_outputs, (corners[:2], corners[2:])))
    spread = spread.reshape(16, corners[0].size // max(outputs, 1), outputs)
    filters = jnp.einsum("krc,kro->kco", _transformed_windows(images), spread)
    kernel = _transform_both(_from_filter, filters.reshape(4, 4, channels, outputs))
    return jnp.stack(kernel).reshape(3, 3, channels, outputs)


def _transformed_windows(images: Array) -> Float[Array, "16 windows channels"]:
    """The 4 × 4 inputs around every window of 2 × 2, transformed."""
    rows, height, width = images.shape[0], images.shape[1] // 2, images.shape[2] // 2
    padded = jnp.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    around = [
        [padded[:, i : i + 2 * height : 2, j : j + 2 * width : 2] for j in range(4)] for i in range(4)
    ]
    inputs = jnp.stack(_transform_both(_transform_inputs, around))
    return inputs.reshape(16, rows * height * width, images.shape[3])


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


# The transposes of the two transforms above, for the gradient.


def _from_outputs(a: Array, b: Array) -> list[Array]:
    return [a, a + b, a - b, -b]


def _from_filter(a: Array, b: Array, c: Array, d: Array) -> list[Array]:
    return [a + (b + c) / 2.0, (b - c) / 2.0, (b + c) / 2.0 + d]

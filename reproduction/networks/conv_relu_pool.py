"""Convolution of 3 × 3, ReLU and average pooling of 2 × 2 as one layer, fast on a CPU.

    y = P(max(x ∗ k + b, 0)),

P the mean over 2 × 2 windows. Three things make it several times faster there than the same
operations one by one:

- Images go through it in chunks that stay in the cache, so the pre-activations, four times as large
  as the pooled ones, are never in memory all at once; of them the derivative needs signs alone, one
  byte for each window.
- An input of few channels needs no convolution: one loop over the taps does everything.
- With more channels the four places of a window come by Winograd's minimal filtering from the 4 × 4
  inputs around them: 16 products of channels in place of 36. So does the gradient of the kernel; XLA's
  own, of a convolution that many particles share, takes many times as long.

**Derivatives.** With the gate s = [x ∗ k + b > 0] fixed, all there is to differentiate is the form

    T(x, k, y) = ⟨y, P(s ⊙ (x ∗ k))⟩,

linear in each of its three arguments. Leaving one out gives the derivative in the images, in the
kernel, or forward to y; the derivatives and transposes of these are again the form with another
argument left out. So it is one primitive, and derivatives of every order and mode follow.

**Particles.** Mapped over images alone, which is what happens after a stochastic layer, the form and
the layer take the particles as more images: nothing else keeps one product of matrices for them all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array, Float, UInt8

from reproduction.networks.winograd import convolve_corners, kernel_gradient

_TAPS = tuple(product(range(3), range(3)))
_CORNERS = tuple(product(range(2), range(2)))  # of a window of the pooling; one bit of the gate each
_CHUNK_BYTES = 3 * 2**20  # of patches; half and twice as much do as well
_FEW_CHANNELS = 3
_ROLES = ("images", "pooled", "kernel")


def conv_relu_pool(
    images: Float[Array, "example height width channels"],
    kernel: Float[Array, "3 3 channels outputs"],
    bias: Float[Array, " outputs"],
) -> Float[Array, "example half_height half_width outputs"]:
    """Convolve with zero padding, add the bias, ReLU, and average over windows of 2 × 2.

    On a CPU by the means of this module, elsewhere by XLA's own convolution. With several devices
    the images may be spread over them, and a loop over chunks would gather them: XLA's again.

    Example:
        >>> import jax.numpy as jnp
        >>> from reproduction.networks.conv_relu_pool import conv_relu_pool
        >>> images, kernel = jnp.ones((5, 8, 8, 1)), jnp.ones((3, 3, 1, 4))
        >>> conv_relu_pool(images, kernel, jnp.zeros(4)).shape
        (5, 4, 4, 4)
    """
    if jax.default_backend() != "cpu" or jax.device_count() > 1:
        return by_xla(images, kernel, bias)
    dtype = jnp.result_type(images, kernel, bias)
    return _layer(images.astype(dtype), kernel.astype(dtype), bias.astype(dtype))[0]


def by_xla(images: Array, kernel: Array, bias: Array) -> Array:
    """The same layer from XLA's own operations."""
    rectified = jax.nn.relu(_convolve(images, kernel) + jnp.expand_dims(bias, (0, 1, 2)))
    return _mean(_corners(rectified))


def _convolve(images: Array, kernel: Array) -> Array:
    return jax.lax.conv_general_dilated(
        images, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def _corners(images: Array) -> list[Array]:
    """The four places of every window; a last odd row or column is in none."""
    height, width = (size // 2 * 2 for size in images.shape[1:3])
    return [images[:, a:height:2, b:width:2] for a, b in _CORNERS]


def _mean(corners: Sequence[Array]) -> Array:
    first, second, third, fourth = corners
    return (first + second + third + fourth) / 4.0


# The layer: pooled values and the gate, and its derivative.


@jax.custom_jvp
def _layer(images: Array, kernel: Array, bias: Array) -> tuple[Array, UInt8[Array, ...]]:
    pooled, gate = _forward_p.bind(images, kernel, bias)
    return pooled, gate


@partial(_layer.defjvp, symbolic_zeros=True)
def _layer_jvp(primals: tuple[Array, ...], tangents: tuple[Any, ...]) -> tuple[Any, Any]:
    images, kernel, bias = primals
    of_images, of_kernel, of_bias = tangents
    pooled, gate = _layer(images, kernel, bias)
    form = partial(_form_p.bind, output="pooled", size=images.shape[1:3])
    tangent = jnp.zeros_like(pooled)
    if not isinstance(of_images, SymbolicZero):
        tangent += form(of_images, kernel, gate)
    if not isinstance(of_kernel, SymbolicZero):
        tangent += form(images, of_kernel, gate)
    if not isinstance(of_bias, SymbolicZero):
        tangent += _apply_bias(gate, of_bias)
    return (pooled, gate), (tangent, np.zeros(gate.shape, jax.dtypes.float0))


@jax.checkpoint  # so that the gate is kept, and not the share of open places, four times as large
def _apply_bias(gate: Array, bias: Array) -> Array:
    share = jax.lax.population_count(gate).astype(bias.dtype) / 4.0
    return share * jnp.expand_dims(bias, (0, 1, 2))


def _gates(gate: Array) -> list[Array]:
    return [(gate >> place) % 2 == 1 for place in range(4)]


def _rectify(corners: Sequence[Array]) -> list[Array]:
    """Pooled values and the gate."""
    bits = [(values > 0).astype(jnp.uint8) << place for place, values in enumerate(corners)]
    pooled = _mean([jnp.maximum(values, 0.0) for values in corners])
    return [pooled, bits[0] | bits[1] | bits[2] | bits[3]]


def _forward(images: Array, kernel: Array, bias: Array) -> list[Array]:
    if kernel.shape[2] <= _FEW_CHANNELS:
        return _by_taps(images, kernel, bias)

    def chunk(images: Array) -> list[Array]:
        shift = jnp.expand_dims(bias, (0, 1, 2))
        return _rectify([values + shift for values in convolve_corners(images, kernel)])

    joined: list[Array] = _map_rows(chunk, (images,), _patch_bytes(images))
    return joined


def _by_taps(images: Array, kernel: Array, bias: Array) -> list[Array]:
    """One fused loop: every pooled value from the nine taps of its four places."""
    height, width = (size // 2 * 2 for size in images.shape[1:3])
    padded = jnp.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))

    def corner(a: int, b: int) -> Array:
        total = jnp.expand_dims(bias, (0, 1, 2))
        for (i, j), channel in product(_TAPS, range(kernel.shape[2])):
            shifted = padded[:, a + i : a + i + height - 1 : 2, b + j : b + j + width - 1 : 2, channel]
            total = total + shifted[..., None] * jnp.expand_dims(kernel[i, j, channel], (0, 1, 2))
        return total

    return _rectify([corner(a, b) for a, b in _CORNERS])


# The form, with the argument named ``output`` left out.


def _form(first: Array, second: Array, gate: Array, *, output: str, size: tuple[int, int]) -> Array:
    def to_pooled(images: Array, gate: Array) -> Array:
        pairs = zip(_gates(gate), convolve_corners(images, second), strict=True)
        return _mean([jnp.where(on, values, 0.0) for on, values in pairs])

    def to_images(pooled: Array, gate: Array) -> Array:
        turned = jnp.swapaxes(second[::-1, ::-1], 2, 3)
        spread = _spread(pooled, gate)
        margins = [(0, full - even) for full, even in zip(size, spread.shape[1:3], strict=True)]
        return _convolve(jnp.pad(spread, ((0, 0), *margins, (0, 0))), turned)

    def to_kernel(images: Array, pooled: Array, gate: Array) -> Array:
        return kernel_gradient(images, _open_places(pooled, gate))

    if output == "kernel":
        return _sum_rows(to_kernel, (first, second, gate), _patch_bytes(first))
    function = to_pooled if output == "pooled" else to_images
    joined: Array = _map_rows(function, (first, gate), _patch_bytes(first))
    return joined


def _open_places(pooled: Array, gate: Array) -> list[Array]:
    """A quarter of the value at each of the four places of a window where the gate is open."""
    return [jnp.where(on, 0.25 * pooled, 0.0) for on in _gates(gate)]


def _spread(pooled: Array, gate: Array) -> Array:
    """Back from windows to their four places."""
    places = _open_places(pooled, gate)
    rows, height, width, outputs = pooled.shape
    windows = jnp.stack([jnp.stack(places[:2], axis=3), jnp.stack(places[2:], axis=3)], axis=2)
    return windows.reshape(rows, 2 * height, 2 * width, outputs)


def _patch_bytes(images: Array) -> int:
    return 9 * int(np.prod(images.shape[1:])) * images.dtype.itemsize


def _map_rows(function: Callable[..., Any], rows: Sequence[Array], row_bytes: int) -> Any:
    """Apply a function of rows chunk by chunk, and join what it gives."""
    chunks, rest = _chunks(rows, row_bytes)
    if chunks is None:
        return function(*rest)
    joined = jax.tree.map(
        lambda leaf: leaf.reshape(-1, *leaf.shape[2:]),
        jax.lax.map(lambda chunk: function(*chunk), chunks),
    )
    if rest[0].shape[0] == 0:
        return joined
    return jax.tree.map(lambda *parts: jnp.concatenate(parts), joined, function(*rest))


def _sum_rows(function: Callable[..., Array], rows: Sequence[Array], row_bytes: int) -> Array:
    """Apply a function of rows chunk by chunk, and add up what it gives."""
    chunks, rest = _chunks(rows, row_bytes)
    start = function(*rest)  # of no rows: zero
    if chunks is None:
        return start
    return jax.lax.scan(lambda sum_, chunk: (sum_ + function(*chunk), None), start, chunks)[0]


def _chunks(rows: Sequence[Array], row_bytes: int) -> tuple[list[Array] | None, list[Array]]:
    """The rows as chunks, if there is more than one, and the rest."""
    num_rows = rows[0].shape[0]
    limit = max(1, _CHUNK_BYTES // row_bytes)
    if num_rows <= limit:
        return None, list(rows)
    # To cut off a rest is to copy all; a size that leaves none is better, unless it is a small one.
    size = next((size for size in range(limit, limit // 2, -1) if num_rows % size == 0), limit)
    count = num_rows // size
    chunks = [leaf[: count * size].reshape(count, size, *leaf.shape[1:]) for leaf in rows]
    return chunks, [leaf[count * size :] for leaf in rows]


# Both as primitives: how they are mapped, differentiated and compiled.

_forward_p: Any = Primitive("conv_relu_pool")
_forward_p.multiple_results = True
_form_p: Any = Primitive("conv_relu_pool_form")


def _abstract(function: Callable[..., Any], *operands: Any, **parameters: Any) -> Any:
    return jax.tree.map(
        lambda shape: jax.core.ShapedArray(shape.shape, shape.dtype),
        jax.eval_shape(partial(function, **parameters), *operands),
    )


def _batch(
    primitive: Any,
    row_operands: Sequence[int],
    operands: Sequence[Array],
    axes: Sequence[int | None],
    **parameters: Any,
) -> tuple[Any, Any]:
    """Rows alone mapped: more rows. Otherwise one after the other."""
    size = next(x.shape[axis] for x, axis in zip(operands, axes, strict=True) if axis is not None)
    operands = [
        x if axis is None else jnp.moveaxis(x, axis, 0) for x, axis in zip(operands, axes, strict=True)
    ]
    mapped = [place for place, axis in enumerate(axes) if axis is not None]
    if set(mapped) <= set(row_operands):
        merged = list(operands)
        for place in row_operands:
            rows = operands[place]
            if place not in mapped:
                rows = jnp.broadcast_to(rows[None], (size, *rows.shape))
            merged[place] = rows.reshape(-1, *rows.shape[2:])
        result = primitive.bind(*merged, **parameters)
        result = jax.tree.map(lambda leaf: leaf.reshape(size, -1, *leaf.shape[1:]), result)
    else:

        def one(pieces: list[Array]) -> Any:
            filled = list(operands)
            for place, piece in zip(mapped, pieces, strict=True):
                filled[place] = piece
            return primitive.bind(*filled, **parameters)

        result = jax.lax.map(one, [operands[place] for place in mapped])
    return result, jax.tree.map(lambda leaf: 0, result)


def _batch_forward(operands: Sequence[Array], axes: Sequence[int | None]) -> tuple[Any, Any]:
    kernel = operands[1].shape if axes[1] is None else np.delete(operands[1].shape, axes[1])
    if kernel[2] <= _FEW_CHANNELS:
        return jax.vmap(_by_taps, in_axes=tuple(axes))(*operands), [0, 0]
    return _batch(_forward_p, (0,), operands, axes)


def _batch_form(
    operands: Sequence[Array], axes: Sequence[int | None], *, output: str, size: tuple[int, int]
) -> tuple[Any, Any]:
    rows = () if output == "kernel" else (0, 2)
    return _batch(_form_p, rows, operands, axes, output=output, size=size)


def _form_transpose(
    cotangent: Any, first: Any, second: Any, gate: Array, *, output: str, size: tuple[int, int]
) -> list[Any]:
    if isinstance(cotangent, ad.Zero):
        return [None, None, None]
    given = dict(zip([role for role in _ROLES if role != output], (first, second), strict=True))
    given[output] = cotangent
    (wanted,) = (role for role, value in given.items() if isinstance(value, ad.UndefinedPrimal))
    others = [given[role] for role in _ROLES if role != wanted]
    result = _form_p.bind(*others, gate, output=wanted, size=size)
    return [result if given[wanted] is operand else None for operand in (first, second, gate)]


_forward_p.def_impl(jax.jit(_forward))
_forward_p.def_abstract_eval(partial(_abstract, _forward))
mlir.register_lowering(_forward_p, mlir.lower_fun(_forward, multiple_results=True))
batching.primitive_batchers[_forward_p] = _batch_forward

_form_p.def_impl(jax.jit(_form, static_argnames=("output", "size")))
_form_p.def_abstract_eval(partial(_abstract, _form))
mlir.register_lowering(_form_p, mlir.lower_fun(_form, multiple_results=False))
batching.primitive_batchers[_form_p] = _batch_form
ad.defjvp(  # type: ignore[no-untyped-call]
    _form_p,
    lambda tangent, first, second, gate, **which: _form_p.bind(tangent, second, gate, **which),
    lambda tangent, first, second, gate, **which: _form_p.bind(first, tangent, gate, **which),
    None,
)
ad.primitive_transposes[_form_p] = _form_transpose

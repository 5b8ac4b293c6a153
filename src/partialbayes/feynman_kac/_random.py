"""Normal draws at about half the usual cost, from the same generator.

On small networks the noise of the moves is the largest cost of a step. JAX's Threefry generator makes
64 random bits for each 32 it returns and, on CPUs, goes through memory after every few of its rounds.
Here the rounds and the quantile function of the normal are plain operations on a counter, which the
compiler fuses into one or two passes over the array. The bits are Threefry's own, with all 20 rounds.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float, UInt32

from partialbayes.parallel._sharding import PARTICLE, axis_size, shard_particles
from partialbayes.types import PRNGKey

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = np.uint32(0x1BD11BDA)
_BLOCKS = 2


def normal(key: PRNGKey, shape: tuple[int, ...], dtype: DTypeLike) -> Float[Array, ...]:
    """Draw independent standard normal numbers, as `jax.random.normal` does."""
    size = math.prod(shape)
    if size > np.iinfo(np.uint32).max:
        raise ValueError(f"shape {shape} asks for more than 2³² draws of one key.")
    first, second = jax.random.bits(key, (2,), "uint32")
    block = -(-size // _BLOCKS)

    def draw(counter: UInt32[Array, ...]) -> Array:
        words = threefry(first, second, counter, jnp.zeros_like(counter))
        double = jnp.dtype(dtype) == jnp.float64
        return _quantile(_symmetric_double(*words) if double else _symmetric_single(words[0]))

    if axis_size(PARTICLE) > 1:
        # The same draws, without a loop, which could not be divided over the devices.
        counter = shard_particles(jax.lax.iota(jnp.uint32, size).reshape(shape))
        drawn: Array = jax.lax.optimization_barrier(draw(counter).astype(dtype))  # type: ignore[no-untyped-call]
        return drawn

    def draw_block(index: UInt32[Array, ""]) -> Array:
        return draw(jax.lax.iota(jnp.uint32, block) + index * np.uint32(block))

    # A loop, because the compiler would otherwise repeat the draws wherever they are used.
    draws = jax.lax.map(draw_block, jnp.arange(_BLOCKS, dtype=jnp.uint32))
    return draws.reshape(-1)[:size].reshape(shape).astype(dtype)


def antithetic(key: PRNGKey, shape: tuple[int, ...], dtype: DTypeLike) -> Float[Array, "particle dim"]:
    """Draw standard normal rows in opposite pairs: rows 2i and 2i + 1 sum to zero.

    Every row has exactly the right law, so averages over particles stay unbiased, at half the cost.
    Resampling puts copies of a particle next to each other. Two copies then move to opposite sides of
    their old position, which also makes such averages less noisy.
    """
    rows, dim = shape
    half = normal(key, ((rows + 1) // 2, dim), dtype)
    signs = jnp.array([1.0, -1.0], dtype)
    pairs = signs[None, :, None] * half[:, None, :]
    return pairs.reshape(-1, dim)[:rows]


def threefry(
    first: UInt32[Array, ""], second: UInt32[Array, ""], x: UInt32[Array, ...], y: UInt32[Array, ...]
) -> tuple[UInt32[Array, ...], UInt32[Array, ...]]:
    """Apply the block cipher Threefry-2x32 (Salmon et al. 2011) to the counter (x, y), in 20 rounds."""
    keys = (first, second, first ^ second ^ _PARITY)
    x, y = x + keys[0], y + keys[1]
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            x = x + y
            y = x ^ ((y << np.uint32(rotation)) | (y >> np.uint32(32 - rotation)))
        x = x + keys[(group + 1) % 3]
        y = y + keys[(group + 2) % 3] + np.uint32(group + 1)
    return x, y


def _symmetric_single(word: UInt32[Array, ...]) -> Float[Array, ...]:
    """Return an odd multiple of 2⁻²⁴ in (−1, 1), all equally likely and none rounded."""
    steps = (word >> np.uint32(8)).astype(jnp.int32) - np.int32(2**23)
    return (2 * steps + 1).astype(jnp.float32) * np.float32(2.0**-24)


def _symmetric_double(high: UInt32[Array, ...], low: UInt32[Array, ...]) -> Float[Array, ...]:
    """Return an odd multiple of 2⁻⁵² in (−1, 1), likewise."""
    upper = (high >> np.uint32(6)).astype(jnp.float64) - 2.0**25
    lower = (low >> np.uint32(6)).astype(jnp.float64) + 0.5
    return upper * 2.0**-25 + lower * 2.0**-51


def _quantile(symmetric: Float[Array, ...]) -> Float[Array, ...]:
    """Return Φ⁻¹((1 + u) / 2)."""
    return jax.lax.erf_inv(symmetric) * np.sqrt(2.0).astype(symmetric.dtype)

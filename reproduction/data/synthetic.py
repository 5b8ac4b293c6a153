"""The three synthetic data sets of the paper."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from partialbayes._utils.checks import require_positive, require_positive_int


def crescent(
    key: Key[Array, ""], rows: int = 100, psi: Any = 1.0
) -> tuple[Float[Array, "rows 1"], Float[Array, " rows"]]:
    """Targets Y ~ N(φ₁/ψ + ½ (φ₀² + ψ²), 1) at φ = 0, whose posterior over φ is a crescent.

    Args:
        key: For the noise.
        rows: How many.
        psi: The ψ to draw at.

    Returns:
        Inputs, which are zeros as nothing depends on them, and targets.

    Example:
        >>> import jax
        >>> from reproduction import data
        >>> inputs, targets = data.crescent(jax.random.key(0), rows=1000)
        >>> inputs.shape, 0.4 < targets.mean() < 0.6
        ((1000, 1), Array(True, dtype=bool))
    """
    require_positive_int("rows", rows, "how many to draw.")
    noise = jax.random.normal(key, (rows,))
    return jnp.zeros((rows, 1)), 0.5 * jnp.square(jnp.asarray(psi, float)) + noise


def wave_function(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """The function x sin(x tanh x).

    Example:
        >>> import jax.numpy as jnp
        >>> from reproduction import data
        >>> data.wave_function(jnp.zeros(2))
        Array([0., 0.], dtype=float32)
    """
    return x * jnp.sin(x * jnp.tanh(x))


def wave(key: Key[Array, ""], rows: int = 100) -> tuple[Float[Array, "rows 1"], Float[Array, "rows 1"]]:
    """Targets Y ~ N(x sin(x tanh x), 1) at x ~ U(−6, 6).

    Args:
        key: For the inputs and the noise.
        rows: How many.

    Returns:
        Inputs and targets.

    Example:
        >>> import jax
        >>> from reproduction import data
        >>> inputs, targets = data.wave(jax.random.key(0), rows=20)
        >>> inputs.shape, targets.shape
        ((20, 1), (20, 1))
    """
    require_positive_int("rows", rows, "how many to draw.")
    input_key, noise_key = jax.random.split(key)
    inputs = jax.random.uniform(input_key, (rows, 1), minval=-6.0, maxval=6.0)
    return inputs, wave_function(inputs) + jax.random.normal(noise_key, (rows, 1))


def moons(
    seed: int, rows: int = 100, noise: float = 0.3
) -> tuple[Float[np.ndarray, "rows 2"], Int[np.ndarray, " rows"]]:
    """Two interleaved half circles, by scikit-learn's ``make_moons``.

    Args:
        seed: Of scikit-learn's generator.
        rows: How many.
        noise: Standard deviation of the noise.

    Returns:
        Inputs and labels 0 and 1.

    Example:
        >>> from reproduction import data
        >>> inputs, labels = data.moons(seed=0, rows=20)
        >>> inputs.shape, int(labels.sum())
        ((20, 2), 10)
    """
    require_positive_int("rows", rows, "how many to draw.")
    require_positive("noise", noise)
    try:
        from sklearn.datasets import make_moons
    except ImportError as error:
        raise ImportError("moons needs scikit-learn: pip install 'partialbayes[sklearn]'") from error
    inputs, labels = make_moons(rows, noise=noise, random_state=seed)
    return inputs.astype(np.float32), labels.astype(np.int32)

"""The crescent by numerical integration: its evidence, its best ψ and its posterior.

    φ ~ N(0, diag(2, 1)),   y_n ~ N(φ₁/ψ + (φ₀² + ψ²)/2, 1)

Given φ₀ the mean of the data is normal, so that one integral over φ₀ is left.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from partialbayes.metrics.common import AnyArray
from partialbayes.types import Scalar


def log_evidence(psi: float | Scalar, targets: Float[AnyArray, " row"]) -> Scalar:
    """Log p(y_1, …, y_N; ψ).

    Args:
        psi: ψ.
        targets: The data.
    """
    targets = jnp.asarray(targets)
    num, mean = len(targets), targets.mean()
    first = jnp.linspace(-12.0, 12.0, 4001)
    centre, variance = 0.5 * (first**2 + psi**2), 1.0 / num + 1.0 / psi**2
    integrand = -0.5 * (mean - centre) ** 2 / variance - 0.5 * jnp.log(2.0 * jnp.pi * variance)
    integrand += -0.25 * first**2 - 0.5 * jnp.log(4.0 * jnp.pi)
    within = -0.5 * ((targets - mean) ** 2).sum() - 0.5 * (num - 1) * jnp.log(2.0 * jnp.pi)
    return jax.nn.logsumexp(integrand) + jnp.log(first[1] - first[0]) + within - 0.5 * jnp.log(num)


def best_psi(targets: Float[AnyArray, " row"]) -> float:
    """The positive maximiser of the evidence, which is even in ψ.

    Args:
        targets: The data.

    Example:
        >>> import numpy as np
        >>> from partialbayes.experiments import quadrature
        >>> targets = 0.5 + np.random.default_rng(3).normal(size=100)
        >>> round(quadrature.best_psi(targets), 1)
        1.1
    """
    grid = jnp.linspace(0.05, 4.0, 7901)
    return float(grid[jnp.argmax(jax.vmap(lambda psi: log_evidence(psi, targets))(grid))])


def posterior_density(
    psi: float | Scalar,
    targets: Float[AnyArray, " row"],
    first: Float[AnyArray, " across"],
    second: Float[AnyArray, " up"],
) -> Float[Array, "up across"]:
    """p(φ | y_1, …, y_N; ψ) on a grid.

    Args:
        psi: ψ.
        targets: The data.
        first: Values of φ₀.
        second: Values of φ₁.
    """
    targets, across, up = jnp.asarray(targets), jnp.asarray(first)[None, :], jnp.asarray(second)[:, None]
    residual = targets.mean() - up / psi - 0.5 * (across**2 + psi**2)
    within = ((targets - targets.mean()) ** 2).sum()
    num = len(targets)
    log_joint = -0.5 * (num * residual**2 + within) - 0.25 * across**2 - 0.5 * up**2
    constant = 0.5 * (num + 2) * jnp.log(2.0 * jnp.pi) + 0.5 * jnp.log(2.0)
    return jnp.exp(log_joint - constant - log_evidence(psi, targets))

"""Parameters of likelihoods and priors: fixed numbers, learned with ψ, or sampled with φ.

Learned and sampled parameters are stored in unconstrained coordinates (a positive number by its
logarithm), so an optimizer or a Markov kernel may move them anywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from partialbayes._utils.checks import require_positive
from partialbayes._utils.recipes import serializable_argument
from partialbayes.types import Latent, PriorBuilder

__all__ = ["learned", "sampled"]


@serializable_argument
class Learned(NamedTuple):
    """Marks a parameter as learned, in ψ, with its initial value."""

    start: Any


@serializable_argument
class Sampled(NamedTuple):
    """Marks a parameter as random, in φ, with its initial value and prior."""

    start: Any
    prior: PriorBuilder | None


def learned(start: Any = 1.0) -> Learned:
    """Mark a parameter, such as a noise variance or a prior scale, to be learned by maximum likelihood.

    Its logarithm is stored in ψ, so it stays positive.

    Args:
        start: Initial value, before training. An array learns one value per entry.

    Returns:
        The marked parameter, to pass to a likelihood or a prior.

    Example:
        >>> import partialbayes as pb
        >>> likelihood = pb.gaussian(variance=pb.learned(0.5))
    """
    _require_start(start)
    return Learned(start)


def sampled(start: Any = 1.0, prior: PriorBuilder | None = None) -> Sampled:
    """Mark a parameter of a likelihood as random, to be sampled in φ along with the weights.

    Args:
        start: Typical value. An array samples one value per entry.
        prior: Prior of the *logarithm* of the parameter, such as ``normal(mean, scale)`` or
            `inverse_gamma`. Defaults to a normal of standard deviation one around the logarithm of
            ``start``.

    Returns:
        The marked parameter, to pass to a likelihood.

    Example:
        >>> import partialbayes as pb
        >>> likelihood = pb.gaussian(variance=pb.sampled(0.5))
        >>> model = pb.partial_bnn(pb.mlp([1, 4, 1]), "layers/1/kernel", likelihood)
        >>> model.split.dim
        5
    """
    _require_start(start)
    return Sampled(start, prior)


def _require_start(start: Any) -> None:
    """Require positive numbers; a square matrix may be a covariance, which is checked later."""
    shape = np.shape(start)
    if not (len(shape) == 2 and shape[0] == shape[1]):
        require_positive("start", start)


class Constraint(NamedTuple):
    """A map between a bounded parameter and unbounded coordinates.

    Attributes:
        require: ``(name, value)``; raises if the value is out of bounds.
        free: Maps a value to unbounded coordinates.
        bind: Maps unbounded coordinates to a value.
    """

    require: Callable[[str, Any], None]
    free: Callable[[Array], Array]
    bind: Callable[[Array], Array]


POSITIVE = Constraint(require_positive, jnp.log, jnp.exp)


class Parameter(NamedTuple):
    """A fixed, learned or sampled parameter.

    Attributes:
        shape: The shape of the value.
        init: Returns the initial value of the part in ψ; ``()`` if it is not learned.
        latents: The part in φ; empty if it is not sampled.
        value: ``(learned, latent) ->`` the value, from its parts of ψ and φ.
        is_learned: Whether it is stored in ψ.
    """

    shape: tuple[int, ...]
    init: Callable[[], PyTree]
    latents: tuple[Latent, ...]
    value: Callable[[PyTree, dict[str, Array]], Array]
    is_learned: bool = False


def as_parameter(name: str, value: Any, constraint: Constraint = POSITIVE) -> Parameter:
    """Convert a number, an array, `learned` or `sampled` to a parameter."""
    chosen = value.start if isinstance(value, Learned | Sampled) else value
    constraint.require(name, chosen)
    shape = np.shape(chosen)

    def start() -> Array:
        return constraint.free(jnp.asarray(chosen, jnp.result_type(float)))

    if isinstance(value, Learned):
        return Parameter(
            shape, start, (), lambda learned, latent: constraint.bind(learned), is_learned=True
        )
    if isinstance(value, Sampled):
        latents = (Latent(name, start, value.prior),)
        return Parameter(shape, tuple, latents, lambda learned, latent: constraint.bind(latent[name]))
    return Parameter(shape, tuple, (), lambda *_: jnp.asarray(chosen, jnp.result_type(float)))


class Parameters(NamedTuple):
    """Several parameters by name; ψ stores a dictionary of the learned ones."""

    init: Callable[[], dict[str, PyTree]]
    latents: tuple[Latent, ...]
    values: Callable[[dict[str, PyTree], dict[str, Array]], dict[str, Array]]


def parameter_dict(parameters: dict[str, Parameter]) -> Parameters:
    """Combine parameters by name."""
    starts = {name: entry.init for name, entry in parameters.items() if entry.is_learned}

    def values(learned: dict[str, PyTree], latent: dict[str, Array]) -> dict[str, Array]:
        return {name: entry.value(learned.get(name, ()), latent) for name, entry in parameters.items()}

    return Parameters(
        init=lambda: {name: start() for name, start in starts.items()},
        latents=tuple(latent for entry in parameters.values() for latent in entry.latents),
        values=values,
    )


def require_covariance(name: str, value: Any) -> None:
    """Require a symmetric positive definite matrix; traced values are not checked."""
    if isinstance(value, jax.core.Tracer):
        return
    matrix = np.asarray(value)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"{name} must be a square matrix, but its shape is {matrix.shape}.")
    symmetric = np.allclose(matrix, matrix.T)
    if not (symmetric and np.isfinite(matrix).all() and np.linalg.eigvalsh(matrix).min() > 0):
        raise ValueError(f"{name} must be symmetric and positive definite, not {value!r}.")


def _free_covariance(matrix: Array) -> Array:
    factor = jnp.linalg.cholesky(matrix)
    free = factor - jnp.diag(jnp.diag(factor)) + jnp.diag(jnp.log(jnp.diag(factor)))
    return free[np.tril_indices(matrix.shape[0])]


def _bind_covariance(free: Array) -> Array:
    size = int(np.sqrt(2 * free.shape[0]))  # n = d (d + 1) / 2 entries
    triangle = jnp.zeros((size, size), free.dtype).at[np.tril_indices(size)].set(free)
    diagonal = jnp.diag(triangle)
    factor = triangle - jnp.diag(diagonal) + jnp.diag(jnp.exp(diagonal))
    return factor @ factor.T


COVARIANCE = Constraint(require_covariance, _free_covariance, _bind_covariance)
"""Stored by the Cholesky factor: the entries below the diagonal, and logarithms of the diagonal."""

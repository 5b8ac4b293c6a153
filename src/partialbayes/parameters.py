"""Parameters of likelihoods and priors: fixed numbers, learned along with ψ, or sampled with φ.

A learned or sampled parameter is kept in coordinates without constraints (a positive number by its
logarithm), so that an optimizer or a Markov kernel may move it anywhere.
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

__all__ = [
    "learned",
    "sampled",
]


@serializable_argument
class Learned(NamedTuple):
    """A parameter to be learned, inside ψ, and where it starts."""

    start: Any


@serializable_argument
class Sampled(NamedTuple):
    """A parameter to be sampled, inside φ: where it starts, and its prior."""

    start: Any
    prior: PriorBuilder | None


def learned(start: Any = 1.0) -> Learned:
    """Mark a parameter (noise variance, prior scale) as one to learn by maximum likelihood.

    It stays within its bounds by construction: what ψ holds is its logarithm.

    Args:
        start: Its value before training; an array learns one value per entry.

    Raises:
        ValueError: ``start`` is not positive and finite.

    Example:
        >>> import partialbayes as pb
        >>> likelihood = pb.gaussian(variance=pb.learned(0.5))
    """
    _require_start(start)
    return Learned(start)


def sampled(start: Any = 1.0, prior: PriorBuilder | None = None) -> Sampled:
    """Mark a parameter of a likelihood as random: it is sampled along with the weights, in φ.

    Args:
        start: Its typical value; an array samples one value per entry.
        prior: Prior of its *logarithm*, such as ``normal(mean, scale)``, or `inverse_gamma`. By
            default a normal of standard deviation one around the logarithm of ``start``.

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
    """Positive numbers; a square matrix may be a covariance, which is checked where it is used."""
    shape = np.shape(start)
    if not (len(shape) == 2 and shape[0] == shape[1]):
        require_positive("start", start)


class Constraint(NamedTuple):
    """How a bounded parameter corresponds to coordinates without bounds.

    Attributes:
        require: ``(name, value)``, an error if the value is out of bounds.
        free: From a value to its free coordinates.
        bind: From free coordinates to the value.
    """

    require: Callable[[str, Any], None]
    free: Callable[[Array], Array]
    bind: Callable[[Array], Array]


POSITIVE = Constraint(require_positive, jnp.log, jnp.exp)


class Parameter(NamedTuple):
    """One parameter, whatever its kind.

    Attributes:
        shape: Its shape.
        init: What ψ holds of it at the start; ``()`` if it is not learned.
        latents: What φ holds of it; empty if it is not sampled.
        value: ``(learned, latent) ->`` its value, from what ψ and φ hold.
        is_learned: Whether ψ holds it.
    """

    shape: tuple[int, ...]
    init: Callable[[], PyTree]
    latents: tuple[Latent, ...]
    value: Callable[[PyTree, dict[str, Array]], Array]
    is_learned: bool = False


def as_parameter(name: str, value: Any, constraint: Constraint = POSITIVE) -> Parameter:
    """A parameter from what a user may write: a number or array, `learned` or `sampled`."""
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
    """Several parameters by name; ψ holds a dictionary of the learned ones."""

    init: Callable[[], dict[str, PyTree]]
    latents: tuple[Latent, ...]
    values: Callable[[dict[str, PyTree], dict[str, Array]], dict[str, Array]]


def parameter_dict(parameters: dict[str, Parameter]) -> Parameters:
    """Put parameters together."""
    starts = {name: entry.init for name, entry in parameters.items() if entry.is_learned}

    def values(learned: dict[str, PyTree], latent: dict[str, Array]) -> dict[str, Array]:
        return {name: entry.value(learned.get(name, ()), latent) for name, entry in parameters.items()}

    return Parameters(
        init=lambda: {name: start() for name, start in starts.items()},
        latents=tuple(latent for entry in parameters.values() for latent in entry.latents),
        values=values,
    )


def require_covariance(name: str, value: Any) -> None:
    """Refuse what is not a symmetric positive definite matrix; traced values pass unchecked."""
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
"""By the Cholesky factor: its entries below the diagonal, and the logarithm of those on it."""

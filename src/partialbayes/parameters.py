"""Parameters of likelihoods and priors: fixed numbers, or learned along with ψ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, PyTree

from partialbayes.checks import require_positive


class Learned(NamedTuple):
    """A positive parameter to be learned, and where it starts."""

    start: Any


def learned(start: Any = 1.0) -> Learned:
    """Mark a positive parameter (noise variance, prior scale) as one to learn.

    It is kept positive by training its logarithm, inside ψ.

    Args:
        start: Its value before training; an array learns one value per entry.

    Example:
        >>> import partialbayes as pb
        >>> likelihood = pb.gaussian(variance=pb.learned(0.5))
    """
    require_positive("start", start)
    return Learned(start)


def positive_parameter(
    value: Any,
) -> tuple[Callable[[], PyTree], Callable[[PyTree], Array]]:
    """How a positive parameter starts inside ψ, and its value given what ψ holds of it."""
    if isinstance(value, Learned):
        return (
            lambda: jnp.log(jnp.asarray(value.start, jnp.result_type(float))),
            lambda logarithm: jnp.exp(logarithm),
        )
    return lambda: (), lambda _: jnp.asarray(value, jnp.result_type(float))

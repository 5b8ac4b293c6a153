"""A likelihood with numbers that correct its spread, found on rows that were not trained on.

    real targets:  s' = √((k s)² + f²),  ν' = 2 + (ν − 2) τ  for ν > 2 (Student-t only)
    classes:       logits' = logits / T

Training does not change the numbers; `calibrate` finds them.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from partialbayes._utils.recipes import serializable_builder
from partialbayes.likelihoods._gaussian import Normal
from partialbayes.likelihoods._student_t import StudentT
from partialbayes.types import Likelihood

Numbers = dict[str, Array]


@serializable_builder("likelihoods.calibrated")
def calibrated(likelihood: Likelihood) -> Likelihood:
    """Add a scale factor and a floor, or a temperature, to a likelihood; training does not change them.

    They are kept in ``psi.likelihood["calibration"]``: for real targets ``log_factor``, ``floor`` (of
    the standard deviation, or of Student's scale, in units of the targets) and, for Student's t,
    ``log_tail``; for classes ``log_temperature``. All are 0 at the start, which changes nothing.

    Args:
        likelihood: A likelihood with Gaussian or Student-t noise, or of classes.

    Returns:
        The likelihood with these numbers.

    Example:
        >>> import partialbayes as pb
        >>> likelihood = pb.likelihoods.calibrated(pb.gaussian(pb.learned(1.0)))
    """

    def init() -> PyTree:
        names = ("log_temperature",) if likelihood.is_classification else _OF_NUMBERS
        zero = jnp.zeros((), jnp.result_type(float))
        return {"base": likelihood.init(), "calibration": dict.fromkeys(names, zero)}

    def parameters(outputs: PyTree, learned: PyTree, latent: dict[str, Array]) -> PyTree:
        base = likelihood.parameters(outputs, learned["base"], latent)
        return adjust(base, jax.lax.stop_gradient(learned["calibration"]))

    def values(learned: PyTree, latent: dict[str, Array]) -> dict[str, Array]:
        return likelihood.values(learned["base"], latent)

    return likelihood._replace(init=init, parameters=parameters, values=values)


_OF_NUMBERS = ("log_factor", "floor", "log_tail")


def adjust(parameters: PyTree, numbers: Numbers) -> PyTree:
    """Return the parameters of the distribution with their spread corrected."""
    if isinstance(parameters, StudentT):
        scale = _widened(jnp.square(parameters.scale), numbers)
        freedom = parameters.degrees_of_freedom
        tail = jnp.exp(numbers["log_tail"])
        # Degrees of freedom above two stay above two, so that there is a variance.
        changed = jnp.where(freedom > 2.0, 2.0 + (freedom - 2.0) * tail, freedom)
        return parameters._replace(scale=jnp.sqrt(scale), degrees_of_freedom=changed)
    if isinstance(parameters, Normal):
        return parameters._replace(variance=_widened(parameters.variance, numbers))
    if hasattr(parameters, "shape") and "log_temperature" in numbers:
        return parameters * jnp.exp(-numbers["log_temperature"])
    raise ValueError(
        "calibrated() supports Gaussian and Student-t noise and classes, but not this likelihood."
    )


def _widened(variance: Any, numbers: Numbers) -> Array:
    return variance * jnp.exp(2.0 * numbers["log_factor"]) + jnp.square(numbers["floor"])

"""What to say when a kernel needs gradients and the likelihood has none."""

from __future__ import annotations

from typing import Any

import jax
from jax.extend.core import Jaxpr, Literal
from jaxtyping import PyTree

from partialbayes.types import Move, Moved, Particles, Phi, PRNGKey, Target

_REMEDY = "Use a kernel without gradients, such as random_walk_metropolis or pcn."


def with_gradients(name: str, move: Move) -> Move:
    """The same move, but with a clear error, when traced, where the likelihood has no gradient."""

    def step(key: PRNGKey, particles: Particles, target: Target, state: PyTree) -> Moved:
        _require_gradient(name, target, particles.values[0])
        return move.step(key, particles, target, state)

    return move._replace(step=step)


def _require_gradient(name: str, target: Target, phi: Phi) -> None:
    """Refuse a potential that depends on φ but cannot be differentiated, or only to zero."""
    potential = target.log_potential
    try:
        gradient = jax.make_jaxpr(jax.grad(potential))(phi)
    except Exception as error:
        # A failure of the forward pass is not ours to explain.
        jax.eval_shape(potential, phi)
        raise ValueError(
            f"the kernel {name} needs the gradient of the log-likelihood in φ, but JAX cannot "
            f"differentiate it ({type(error).__name__}: {str(error).splitlines()[0]}). {_REMEDY}"
        ) from error
    value = jax.make_jaxpr(potential)(phi)
    if _depends(value.jaxpr, value.jaxpr.invars) and not _depends(
        gradient.jaxpr, [*gradient.jaxpr.invars, *gradient.jaxpr.constvars]
    ):
        raise ValueError(
            f"the kernel {name} needs the gradient of the log-likelihood in φ, but it is zero "
            "everywhere: something between φ and the log-density is rounded, cut off by "
            f"stop_gradient, or piecewise constant. {_REMEDY}"
        )


def _depends(jaxpr: Jaxpr, sources: list[Any]) -> bool:
    """Whether any output is computed from any of these variables."""
    reached = set(sources)
    for equation in jaxpr.eqns:
        if any(not isinstance(atom, Literal) and atom in reached for atom in equation.invars):
            reached.update(equation.outvars)
    return any(not isinstance(atom, Literal) and atom in reached for atom in jaxpr.outvars)

"""What a kernel needs of the prior, the target and the likelihood, checked with a clear error."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.extend.core import Jaxpr, Literal
from jaxtyping import PyTree

from partialbayes.types import Kernel, Model, Moved, Particles, Phi, PRNGKey, Target


def require_suitable(kernel: Kernel, model: Model) -> None:
    """Refuse a kernel that is wrong for the model's prior."""
    if kernel.needs_normal_prior and not model.prior.normal:
        raise ValueError(
            "this kernel needs a normal prior with independent coordinates, and the model's is not; "
            "use normal() as the prior, or a kernel for any prior: random_walk, "
            "random_walk_metropolis, mala."
        )
    if kernel.needs_prior_variance:
        variance = np.asarray(model.prior.moments(model.prior.init()).variance)
        if not np.isfinite(variance).all():
            raise ValueError(
                "this kernel needs a prior with a variance, and the model's has none; use lighter tails "
                "(more degrees of freedom), or another kernel, such as random_walk."
            )


def require_invariant(kernel: Kernel) -> None:
    """Refuse a kernel that changes the law of particles drawn from the target."""
    if not kernel.keeps_target:
        raise ValueError(
            "kernel must leave its target invariant here, or the particles would stand for something "
            "else; this one does not. Use random_walk_metropolis, mala, hamiltonian or an adapted one, "
            "or train by ohsmc."
        )


_REMEDY = "Use a kernel without gradients, such as random_walk_metropolis or pcn."


def with_gradients(name: str, move: Kernel) -> Kernel:
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

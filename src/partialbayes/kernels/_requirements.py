"""Check what a kernel requires of the prior and the target."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from partialbayes._utils.checks import require_instance
from partialbayes._utils.warn import warn
from partialbayes.errors import FewParticlesWarning
from partialbayes.types import Kernel, Model


def require_suitable(kernel: Any, model: Model) -> None:
    """Raise an error if the argument is no kernel, or a kernel that is wrong for the model's prior."""
    require_instance("kernel", kernel, Kernel, "for example kernels.random_walk(0.01).")
    if kernel.needs_normal_prior and not model.prior.normal:
        raise ValueError(
            "this kernel needs a normal prior with independent coordinates, which the model does not "
            "have; use normal() as the prior, or a kernel for any prior: random_walk, "
            "random_walk_metropolis, mala."
        )
    if kernel.needs_prior_variance:
        # Also where the kernel is made inside a traced function, as `fit_many` does.
        with jax.ensure_compile_time_eval():
            variance = np.asarray(model.prior.moments(model.prior.init()).variance)
        if not np.isfinite(variance).all():
            raise ValueError(
                "this kernel needs a prior with a finite variance, which the model does not have; use "
                "more degrees of freedom, or a different kernel, such as random_walk."
            )


def require_invariant(kernel: Any) -> None:
    """Raise an error if the kernel changes the law of particles drawn from the target."""
    require_instance("kernel", kernel, Kernel, "for example kernels.random_walk_metropolis(0.01).")
    if not kernel.keeps_target:
        raise ValueError(
            "this algorithm needs a kernel that leaves its target invariant; the given kernel does not. "
            "Use random_walk_metropolis, mala, hamiltonian or an adapted kernel, or train by ohsmc."
        )


def warn_of_few_particles(kernel: Kernel, num_particles: int, dim: int) -> None:
    """Warn if there are fewer particles than the kernel needs for ``dim`` random weights."""
    fewest = kernel.fewest_particles(dim)
    if num_particles < fewest:
        warn(
            f"{num_particles} particles are too few for this kernel with {dim} random weights: its "
            f"spread falls short of the posterior's, even where the effective sample size is high. Use "
            f"num_particles={fewest} or more, fewer random weights, or the default kernel, transport().",
            FewParticlesWarning,
        )

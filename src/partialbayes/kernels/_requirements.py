"""What a kernel needs of the prior and the target, checked with a clear error."""

from __future__ import annotations

import numpy as np

from partialbayes.types import Kernel, Model


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

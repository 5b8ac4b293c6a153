"""The identity: φ' = φ."""

from __future__ import annotations

from jaxtyping import PyTree

from partialbayes.kernels.random_walk import unweighted
from partialbayes.types import Move, Moved, Particles, PRNGKey, Target


def identity() -> Move:
    """Leave the particles where they are.

    Every density is invariant under it, but nothing new is explored: with resampling the cloud
    collapses onto few points.

    Example:
        >>> import partialbayes as pb
        >>> kernel = pb.kernels.identity()
    """

    def init(dim: int) -> PyTree:
        return ()

    def step(key: PRNGKey, particles: Particles, target: Target, state: PyTree) -> Moved:
        return unweighted(particles.values, state)

    return Move(init, step)

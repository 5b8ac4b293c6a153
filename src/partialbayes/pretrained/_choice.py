"""Choose the width of the prior and the parameter of the likelihood on held-out rows."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from partialbayes.prediction import _mixture as mixture
from partialbayes.prediction._mixture import rows_to_score
from partialbayes.types import Batch, Model, Posterior

_TEMPERATURES = np.geomspace(0.25, 4.0, 33)


def log_densities(model: Model, posterior: Posterior, rows: Batch) -> Float[np.ndarray, " example"]:
    """Compute the predictive log-density of each row."""
    chunks = model.chunks._replace(rows=rows_to_score(model, posterior.particles, rows.mask.shape[0]))
    return np.asarray(mixture.log_density(model, posterior, rows, chunks))


def widest_of_the_best(densities: Sequence[Float[np.ndarray, " example"]]) -> int:
    """Return the last index whose mean is within one standard error of the highest."""
    best = int(np.argmax([values.mean() for values in densities]))

    def is_as_good(values: Float[np.ndarray, " example"]) -> bool:
        gap = densities[best] - values
        return bool(gap.mean() <= gap.std() / np.sqrt(len(gap)))

    return max(place for place, values in enumerate(densities) if is_as_good(values))


def calibrated(model: Model, posterior: Posterior, rows: Batch) -> tuple[Posterior, float]:
    """Fit the scalar parameter of the likelihood to the rows, if there is exactly one.

    Returns:
        The posterior with that parameter, and the factor that it was multiplied by.
    """
    leaves = jax.tree.leaves(posterior.psi.likelihood)
    if len(leaves) != 1 or leaves[0].ndim:
        return posterior, 1.0

    def at(factor: float) -> Posterior:
        shifted = jax.tree.map(
            lambda leaf: leaf + jnp.log(factor).astype(leaf.dtype), posterior.psi.likelihood
        )
        return posterior._replace(psi=posterior.psi._replace(likelihood=shifted))

    scores = [log_densities(model, at(factor), rows).mean() for factor in _TEMPERATURES]
    factor = float(_TEMPERATURES[int(np.argmax(scores))])
    return at(factor), factor

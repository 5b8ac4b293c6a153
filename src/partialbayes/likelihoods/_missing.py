"""Leave missing targets, marked by NaN, out of the likelihood."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree

from partialbayes._utils.recipes import serializable_builder
from partialbayes.types import Likelihood


class Observed(NamedTuple):
    """Targets with missing entries replaced by valid values, and a mask of the observed ones."""

    values: Array
    observed: Bool[Array, "example ..."]


@serializable_builder("likelihoods.allow_missing")
def allow_missing(likelihood: Likelihood) -> Likelihood:
    """Allow missing entries, marked by NaN, in the targets of a likelihood.

    A missing entry is integrated out: it contributes neither to values nor to gradients. A row without
    observed entries has log-density zero.

    Args:
        likelihood: The likelihood. A `custom` one leaves out every row with a missing entry.

    Returns:
        The likelihood for targets with missing entries.

    Example:
        >>> import jax.numpy as jnp, partialbayes as pb
        >>> likelihood = pb.likelihoods.allow_missing(pb.gaussian())
        >>> model = pb.partial_bnn(pb.mlp([1, 4, 1]), pb.subsets.layer(0), likelihood)
        >>> data = (jnp.ones((3, 1)), jnp.array([0.1, jnp.nan, 0.3]))
        >>> trained = pb.fit(pb.ohsmc(model, num_particles=5), data, epochs=2)
    """
    masked = likelihood.observed_log_density
    if masked is None:
        raise ValueError(
            "likelihood has no observed_log_density; implement it, or drop rows with missing targets."
        )

    def log_density(parameters: PyTree, targets: Observed) -> Float[Array, " example"]:
        return masked(parameters, targets.values, targets.observed)

    def check(outputs: Any, targets: Any) -> Observed:
        array = np.asarray(targets)
        if not np.issubdtype(array.dtype, np.floating):
            values = likelihood.check(outputs, array)
            return Observed(values, jnp.ones(values.shape, bool))
        observed = ~np.isnan(array)
        if not observed.any():
            raise ValueError("targets are all missing (NaN); at least one must be observed.")
        # Any observed value is a valid target.
        values = likelihood.check(outputs, np.where(observed, array, array[observed][0]))
        return Observed(values, jnp.asarray(observed.reshape(values.shape)))

    exact = None if likelihood.exact is None else allow_missing(likelihood.exact)
    return likelihood._replace(
        log_density=log_density, check=check, observed_log_density=None, exact=exact
    )

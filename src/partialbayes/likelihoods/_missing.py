"""Missing targets: NaN entries left out of the likelihood, exactly."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree

from partialbayes._utils.recipes import serializable_builder
from partialbayes.types import Likelihood


class Observed(NamedTuple):
    """Targets with their gaps filled by harmless values, and which entries are real."""

    values: Array
    observed: Bool[Array, "example ..."]


@serializable_builder("likelihoods.allow_missing")
def allow_missing(likelihood: Likelihood) -> Likelihood:
    """The same likelihood for targets with missing entries, marked by NaN.

    An entry that is missing contributes nothing, to values and gradients alike: the density is that
    of the observed ones. A row where all is missing has log-density zero.

    Args:
        likelihood: Any; a custom one can leave out whole rows only.

    Raises:
        ValueError: The likelihood cannot leave anything out; or, from `fit`, all targets are
            missing.

    Example:
        >>> import jax.numpy as jnp, partialbayes as pb
        >>> likelihood = pb.likelihoods.allow_missing(pb.gaussian())
        >>> model = pb.partial_bnn(pb.mlp([1, 4, 1]), pb.subsets.layer(0), likelihood)
        >>> data = (jnp.ones((3, 1)), jnp.array([0.1, jnp.nan, 0.3]))
        >>> trained = pb.fit(pb.ohsmc(model, num_particles=5), data, epochs=2)
    """
    masked = likelihood.observed_log_density
    if masked is None:
        raise ValueError("this likelihood has no observed_log_density, so nothing can be left out.")

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
        # A value that was observed somewhere is a valid target anywhere.
        values = likelihood.check(outputs, np.where(observed, array, array[observed][0]))
        return Observed(values, jnp.asarray(observed.reshape(values.shape)))

    exact = None if likelihood.exact is None else allow_missing(likelihood.exact)
    return likelihood._replace(
        log_density=log_density, check=check, observed_log_density=None, exact=exact
    )

"""Train with given parameters of prior and likelihood, and choose them on held-out rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from partialbayes._engine.sources import DataSource
from partialbayes.prediction import _mixture as mixture
from partialbayes.prediction._mixture import rows_to_score
from partialbayes.training._fit import fit
from partialbayes.types import Algorithm, Batch, Model, Params, Posterior, PRNGKey, Psi

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


def train_at(
    psi: Psi,
    train: Callable[[Model], Algorithm],
    model: Model,
    data: Any,
    validation: Any,
    epochs: int,
    batch_size: int | None,
    key: PRNGKey,
) -> Posterior:
    """Train with the parameters of the prior and the likelihood fixed at those of ``psi``."""
    trained = fit(
        train(_with_numbers_of(psi, model)),
        data,
        epochs=epochs,
        batch_size=None if isinstance(data, DataSource) else batch_size,
        validation=validation,
        key=key,
    ).posterior
    if trained.is_ensemble:
        raise ValueError("train must return an algorithm with one ψ; ensembles have several.")
    return trained._replace(psi=psi._replace(network=trained.psi.network))


def _with_numbers_of(psi: Psi, model: Model) -> Model:
    """Return the model with fixed parameters, so that ψ holds only weights of the network."""

    def whole(own: Psi) -> Psi:
        return psi._replace(network=own.network)

    def init(key: PRNGKey) -> Params:
        phi, start = model.init(key)
        return Params(phi, Psi(start.network, (), ()))

    likelihood, prior = model.likelihood, model.prior
    return model._replace(
        init=init,
        log_likelihood=lambda phi, own, batch: model.log_likelihood(phi, whole(own), batch),
        outputs=lambda phi, own, inputs: model.outputs(phi, whole(own), inputs),
        parameters=lambda phi, own, inputs: model.parameters(phi, whole(own), inputs),
        likelihood=likelihood._replace(
            init=tuple,
            parameters=lambda outputs, _, latent: likelihood.parameters(outputs, psi.likelihood, latent),
            values=lambda _, latent: likelihood.values(psi.likelihood, latent),
        ),
        prior=prior._replace(
            init=tuple,
            sample=lambda key, _, num: prior.sample(key, psi.prior, num),
            log_density=lambda phi, _: prior.log_density(phi, psi.prior),
            moments=lambda _: prior.moments(psi.prior),
        ),
    )

"""Train a model with fixed parameters of its prior and likelihood."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from partialbayes._engine.sources import DataSource
from partialbayes.training._fit import fit
from partialbayes.types import Algorithm, Model, Params, Posterior, PRNGKey, Psi


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

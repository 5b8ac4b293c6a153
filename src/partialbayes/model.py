"""A partial Bayesian network: network + split + likelihood + prior -> `Model`."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from partialbayes.priors import normal
from partialbayes.subsets import Leaf, Subset, split_weights
from partialbayes.types import (
    Batch,
    Likelihood,
    Model,
    Moments,
    Network,
    Params,
    Phi,
    PriorBuilder,
    PRNGKey,
    Psi,
    Scalar,
)


def partial_bnn(
    network: Network,
    stochastic: Subset | str | Iterable[str] | Callable[[Leaf], bool],
    likelihood: Likelihood,
    prior: PriorBuilder | None = None,
) -> Model:
    """Make part of a network's weights random.

    Args:
        network: The network, from an adapter or a plain ``Network(init, apply)``.
        stochastic: Which weights are random: a glob over their paths, several globs, a predicate
            on leaves, or a `Subset`.
        likelihood: How the targets are distributed given the network's outputs.
        prior: Prior of the random weights; standard normal if not given.

    Example:
        >>> import partialbayes as pb
        >>> network = pb.mlp([2, 100, 20, 5, 1])
        >>> model = pb.partial_bnn(network, "layers/2/**", pb.bernoulli())
        >>> model.split.dim
        105
    """
    shapes = jax.eval_shape(network.init, jax.random.key(0))
    split = split_weights(shapes, stochastic)
    bound = (normal() if prior is None else prior)(split)

    def init(key: PRNGKey) -> Params:
        phi, rest = split.split(network.init(key))
        return Params(phi, Psi(rest, likelihood.init(), bound.init()))

    def outputs(phi: Phi, psi: Psi, inputs: PyTree) -> PyTree:
        return network.apply(split.merge(phi, psi.network), inputs)

    def predict(phi: Phi, psi: Psi, inputs: PyTree) -> PyTree:
        return likelihood.parameters(outputs(phi, psi, inputs), psi.likelihood)

    def log_likelihood(phi: Phi, psi: Psi, batch: Batch) -> Float[Array, " example"]:
        values = likelihood.log_density(predict(phi, psi, batch.inputs), batch.targets)
        return jnp.where(batch.mask, values, 0.0)

    def log_prior(phi: Phi, psi: Psi) -> Scalar:
        return bound.log_density(phi, psi.prior)

    def sample_prior(key: PRNGKey, psi: Psi, num: int) -> Float[Array, "num dim"]:
        return bound.sample(key, psi.prior, num)

    def prior_moments(psi: Psi) -> Moments:
        return bound.moments(psi.prior)

    return Model(
        init=init,
        sample_prior=sample_prior,
        log_prior=log_prior,
        prior_moments=prior_moments,
        log_likelihood=log_likelihood,
        outputs=outputs,
        predict=predict,
        likelihood=likelihood,
        prior=bound,
        split=split,
    )

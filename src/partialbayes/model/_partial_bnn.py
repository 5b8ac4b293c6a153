"""A partial Bayesian network: network + split + likelihood + prior -> `Model`."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from partialbayes._utils.checks import require_instance, require_positive_int
from partialbayes.model._batch import overwrite_masked_rows
from partialbayes.model._split import defined_order, order_is_known, split_weights, with_latents
from partialbayes.priors._priors import joint, normal
from partialbayes.subsets._select import Selection
from partialbayes.types import (
    Batch,
    Chunks,
    Latent,
    Likelihood,
    Model,
    Network,
    Params,
    Particles,
    Phi,
    Posterior,
    Prior,
    PriorBuilder,
    PRNGKey,
    Psi,
    Recipes,
    Split,
)


def partial_bnn(
    network: Network,
    stochastic: Selection,
    likelihood: Likelihood,
    prior: PriorBuilder | None = None,
) -> Model:
    """Make part of a network's weights random: y ~ p(y | f(x; φ, ψ)), φ ~ π.

    Args:
        network: The network, from an adapter or a plain ``Network(init, apply)``.
        stochastic: Which weights are random: a glob over their paths, several globs, a predicate
            on leaves, or a `Subset`.
        likelihood: How the targets are distributed given the network's outputs.
        prior: Prior of the random weights; standard normal if not given.

    Raises:
        ValueError: ``stochastic`` matches no weight; the message names the nearest paths.
        TypeError: ``network``, ``likelihood`` or ``prior`` is something else, such as a builder
            without its brackets.

    Example:
        >>> import partialbayes as pb
        >>> network = pb.mlp([2, 100, 20, 5, 1])
        >>> model = pb.partial_bnn(network, "layers/2/**", pb.bernoulli())
        >>> model.split.dim
        105
    """
    require_instance("network", network, Network, "wrap yours by from_nnx, from_equinox or from_params.")
    require_instance("likelihood", likelihood, Likelihood, "for example gaussian(), with its brackets.")
    if prior is not None and not callable(prior):
        raise TypeError(f"prior must come from a prior such as normal(scale=1.0), not {prior!r:.80}.")
    weights = _divide(network, stochastic)
    split = with_latents(weights, likelihood.latents)
    prior = normal() if prior is None else prior
    bound = joint(
        [
            (prior(weights), weights.dim),
            *(_latent_prior(latent) for latent in likelihood.latents),
        ]
    )

    def init(key: PRNGKey) -> Params:
        phi, rest = split.flatten(network.init(key))
        return Params(phi, Psi(rest, likelihood.init(), bound.init()))

    def outputs(phi: Phi, psi: Psi, inputs: PyTree) -> PyTree:
        return network.apply(split.merge(phi, psi.network), inputs)

    def parameters(phi: Phi, psi: Psi, inputs: PyTree) -> PyTree:
        return likelihood.parameters(outputs(phi, psi, inputs), psi.likelihood, split.latents(phi))

    def log_likelihood(phi: Phi, psi: Psi, batch: Batch) -> Float[Array, " example"]:
        inputs, targets, mask, _ = overwrite_masked_rows(batch)
        values = likelihood.log_density(parameters(phi, psi, inputs), targets)
        return jnp.where(mask, values, 0.0)

    return Model(
        init=init,
        log_likelihood=log_likelihood,
        outputs=outputs,
        parameters=parameters,
        likelihood=likelihood,
        prior=bound,
        split=split,
        recipes=Recipes(network.recipe, likelihood.recipe, getattr(prior, "recipe", None)),
    )


def _divide(network: Network, stochastic: Selection) -> Split:
    """The split of the network's weights, from their shapes alone."""
    order: list[str] = []

    def init(key: PRNGKey) -> PyTree:
        params = network.init(key)
        # Tracing sorts dictionaries, but it is their own order that says which layer is the first.
        if network.ordered or order_is_known(params):
            order.extend(defined_order(params))
        return params

    shapes = jax.eval_shape(init, jax.random.key(0))
    if not all(jnp.issubdtype(leaf.dtype, jnp.inexact) for leaf in jax.tree.leaves(shapes)):
        shapes = network.init(jax.random.key(0))  # integers and the like are kept with their values
    return split_weights(shapes, stochastic, output_axis=network.output_axis, order=order or None)


def _latent_prior(latent: Latent) -> tuple[Prior, int]:
    start = latent.start()
    split: Split = split_weights({latent.name: start}, "**")
    prior = normal(mean=jnp.ravel(start)) if latent.prior is None else latent.prior
    return prior(split), split.dim


def with_chunks(model: Model, *, particles: int | None = None, rows: int | None = None) -> Model:
    """The same model, with its particles and rows taken some at a time.

    Training, scoring and prediction give the same results to rounding, in memory that grows with the
    chunks and not with J and M. Training pays for it with one more forward pass.

    Args:
        model: The model.
        particles: Particles at a time; all of them by default.
        rows: Rows of data at a time; all of them by default.

    Raises:
        TypeError: ``model`` is not a `Model`.
        ValueError: A chunk is not a whole number of at least 1.

    Example:
        >>> import partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 5, 1]), "layers/0/*", pb.gaussian())
        >>> algorithm = pb.ohsmc(pb.model.with_chunks(model, particles=50), num_particles=1000)
    """
    require_instance("model", model, Model, "for example partial_bnn(network, stochastic, likelihood).")
    chunks = Chunks(particles, rows)
    require_chunks(chunks)
    return model._replace(chunks=chunks)


def noise_of(model: Model, posterior: Posterior) -> dict[str, Array]:
    """Return the likelihood's own parameters by name, averaged over particles where they are random."""

    def one(psi: Psi, particles: Particles) -> dict[str, Array]:
        if not model.likelihood.latents:
            return model.likelihood.values(psi.likelihood, {})

        def values(phi: Phi) -> dict[str, Array]:
            return model.likelihood.values(psi.likelihood, model.split.latents(phi))

        weights, each = jax.nn.softmax(particles.log_weights), jax.vmap(values)(particles.values)
        return {name: jnp.tensordot(weights, value, 1) for name, value in each.items()}

    return jax.vmap(one)(*posterior) if posterior.is_ensemble else one(*posterior)


def require_chunks(chunks: Chunks) -> None:
    """Refuse chunks that are not whole numbers of at least one."""
    for name, chunk in chunks._asdict().items():
        if chunk is not None:
            require_positive_int(f"{name} of chunks", chunk, "or None for the default.")

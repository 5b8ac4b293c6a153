"""Combine network, split, likelihood and prior into a `Model`: y ~ p(y | f(x; φ, ψ)), φ ~ π."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from partialbayes._utils.checks import require_instance, require_positive_int
from partialbayes._utils.forks import require_not_forked
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
    ModelLogLikelihood,
    ModelOutputs,
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
    trains,
)


def partial_bnn(
    network: Network,
    stochastic: Selection,
    likelihood: Likelihood,
    prior: PriorBuilder | None = None,
    *,
    freeze: Selection | None = None,
) -> Model:
    """Make part of a network's weights random: y ~ p(y | f(x; φ, ψ)), φ ~ π.

    Args:
        network: The network, from an adapter such as `from_nnx`, or ``Network(init, apply)``.
        stochastic: The random weights: a glob over their paths, several globs, a predicate on leaves, or
            a `Subset`.
        likelihood: The distribution of the targets given the outputs of the network.
        prior: The prior of the random weights; standard normal by default.
        freeze: The weights that stay constant, in the same forms as ``stochastic``; ``"**"`` freezes all
            weights that are not random. They are not part of ψ. If the network draws new weights for
            each key, those of key 0 are kept. By default every weight that is not random is trained.

    Returns:
        The model, to pass to an algorithm such as `ohsmc`.

    Example:
        >>> import partialbayes as pb
        >>> network = pb.mlp([2, 100, 20, 5, 1])
        >>> model = pb.partial_bnn(network, "layers/2/**", pb.bernoulli())
        >>> model.split.dim
        105
    """
    require_not_forked()
    require_instance("network", network, Network, "wrap yours by from_nnx, from_equinox or from_params.")
    require_instance("likelihood", likelihood, Likelihood, "for example gaussian(), with parentheses.")
    if prior is not None and not callable(prior):
        raise TypeError(f"prior must be a prior such as priors.normal(scale=1.0), not {prior!r:.80}.")
    weights = _divide(network, stochastic, freeze)
    split = with_latents(weights, likelihood.latents)
    prior = normal() if prior is None else prior
    bound = joint(
        [(prior(weights), weights.dim), *(_latent_prior(latent) for latent in likelihood.latents)]
    )

    def init(key: PRNGKey) -> Params:
        phi, rest = split.flatten(network.init(key))
        return Params(phi, Psi(rest, likelihood.init(), bound.init()))

    def outputs(phi: Phi, psi: Psi, inputs: PyTree) -> PyTree:
        return network.apply(split.merge(phi, psi.network), inputs)

    parameters, log_likelihood = _functions(outputs, likelihood, split)
    model = Model(
        init=init,
        log_likelihood=log_likelihood,
        outputs=outputs,
        parameters=parameters,
        likelihood=likelihood,
        prior=bound,
        split=split,
        recipes=Recipes(network.recipe, likelihood.recipe, getattr(prior, "recipe", None)),
        pretrained=network.pretrained,
    )
    return _share(model, network) if freeze is None else model  # frozen values are in no recipe


_SHARED: dict[Any, Model] = {}
_MOST_SHARED = 256


def _share(model: Model, network: Network) -> Model:
    """Return an equal model that was made before, if any, to reuse its compiled programs.

    Models are equal if all parts have the same recipes and the same weights are random. The code of the
    functions is compared too, because a function may have been replaced after it was built. The oldest
    models are dropped.
    """
    if None in model.recipes:
        return model
    leaves = zip(model.split.leaves, model.split.masks, strict=True)
    functions = (network.init, network.apply, *filter(callable, model.likelihood))
    code = tuple(getattr(function, "__code__", function) for function in functions)
    weights = tuple((leaf, mask.tobytes()) for leaf, mask in leaves)
    key = (model.recipes, model.pretrained, code, weights)
    shared = _SHARED.setdefault(key, model)
    while len(_SHARED) > _MOST_SHARED:
        _SHARED.pop(next(iter(_SHARED)), None)
    return shared


def _functions(
    outputs: ModelOutputs, likelihood: Likelihood, split: Split
) -> tuple[ModelOutputs, ModelLogLikelihood]:
    """Build the functions for the likelihood's parameters and the log-likelihood from the outputs."""

    def parameters(phi: Phi, psi: Psi, inputs: PyTree) -> PyTree:
        return likelihood.parameters(outputs(phi, psi, inputs), psi.likelihood, split.latents(phi))

    return parameters, _log_likelihood(parameters, likelihood)


def _log_likelihood(parameters: ModelOutputs, likelihood: Likelihood) -> ModelLogLikelihood:
    """Build the log-likelihood of each unmasked row from the likelihood's parameters."""

    def log_likelihood(phi: Phi, psi: Psi, batch: Batch) -> Float[Array, " example"]:
        rows = overwrite_masked_rows(batch)
        values = likelihood.log_density(parameters(phi, psi, rows.inputs), rows.targets)
        return jnp.where(rows.mask, values, 0.0)

    return log_likelihood


def with_outputs(model: Model, outputs: ModelOutputs) -> Model:
    """Replace the outputs of a model, possibly for different inputs."""
    parameters, log_likelihood = _functions(outputs, model.likelihood, model.split)
    return model._replace(outputs=outputs, parameters=parameters, log_likelihood=log_likelihood)


def with_likelihood(model: Model, likelihood: Likelihood) -> Model:
    """Replace the likelihood of a model by one with the same latents."""

    def init(key: PRNGKey) -> Params:
        phi, psi = model.init(key)
        return Params(phi, psi._replace(likelihood=likelihood.init()))

    parameters, log_likelihood = _functions(model.outputs, likelihood, model.split)
    return model._replace(
        init=init,
        parameters=parameters,
        log_likelihood=log_likelihood,
        likelihood=likelihood,
        recipes=model.recipes._replace(likelihood=likelihood.recipe),
    )


def _divide(network: Network, stochastic: Selection, freeze: Selection | None) -> Split:
    """Split the weights of a network, from their shapes alone if no value must be kept."""
    order: list[str] = []

    def init(key: PRNGKey) -> PyTree:
        params = network.init(key)
        # Tracing sorts dictionaries by name; their own order is that of the layers.
        if network.ordered or order_is_known(params):
            order.extend(defined_order(params))
        return params

    shapes = jax.eval_shape(init, jax.random.key(0))
    trainable = all(map(trains, jax.tree.leaves(shapes)))
    if freeze is not None or not trainable:
        shapes = network.init(jax.random.key(0))  # frozen weights keep their values
    return split_weights(
        shapes, stochastic, freeze=freeze, output_axis=network.output_axis, order=order or None
    )


def _latent_prior(latent: Latent) -> tuple[Prior, int]:
    start = latent.start()
    split: Split = split_weights({latent.name: start}, "**")
    prior = normal(mean=jnp.ravel(start)) if latent.prior is None else latent.prior
    return prior(split), split.dim


def of_density(model: Model) -> Model:
    """Use the gradient of the density itself, for samplers of φ."""
    likelihood = model.likelihood.exact
    if likelihood is None:
        return model
    log_likelihood = _log_likelihood(model.parameters, likelihood)
    return model._replace(log_likelihood=log_likelihood, likelihood=likelihood)


def with_chunks(model: Model, *, particles: int | None = None, rows: int | None = None) -> Model:
    """Compute with some particles and rows at a time, to save memory.

    Training, scoring and prediction give the same results up to rounding. Memory grows with the chunks
    rather than with J and M; training needs one more forward pass.

    Args:
        model: The model.
        particles: Number of particles at a time; all by default.
        rows: Number of rows of data at a time; all by default.

    Returns:
        The model with these chunks.

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
    """Compute the parameters of the likelihood by name, averaged over particles if random."""

    def one(psi: Psi, particles: Particles) -> dict[str, Array]:
        if not model.likelihood.latents:
            return model.likelihood.values(psi.likelihood, {})

        def values(phi: Phi) -> dict[str, Array]:
            return model.likelihood.values(psi.likelihood, model.split.latents(phi))

        weights, each = jax.nn.softmax(particles.log_weights), jax.vmap(values)(particles.values)
        return {name: jnp.tensordot(weights, value, 1) for name, value in each.items()}

    return jax.vmap(one)(*posterior) if posterior.is_ensemble else one(*posterior)


def require_chunks(chunks: Chunks) -> None:
    """Require that chunks are positive integers."""
    for name, chunk in chunks._asdict().items():
        if chunk is not None:
            require_positive_int(f"{name} of chunks", chunk, "or None for the default.")

"""Likelihoods of labels and counts: Bernoulli, categorical, Poisson."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from partialbayes._utils.recipes import serializable_builder
from partialbayes.likelihoods._common import (
    independent_outputs,
    match_shape,
    require_array,
    shape_without_single,
    squeeze_single,
    whole_numbers,
)
from partialbayes.parameters import as_parameter
from partialbayes.types import Latent, Likelihood, LikelihoodParameters, ParameterValues


@serializable_builder("likelihoods.bernoulli")
def bernoulli(temperature: Any = 1.0) -> Likelihood:
    """Model binary targets y ∈ {0, 1} with log-odds f(x), independent over outputs.

    The log-density is log p(y | f) = y f / T − log(1 + e^{f / T}).

    Args:
        temperature: The temperature T by which logits are divided: a positive number, or
            ``learned(start)`` to learn it in ψ.

    Returns:
        The likelihood.

    Example:
        >>> import partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([2, 20, 1]), "layers/0/**", pb.bernoulli())
    """
    divide, init, latents, values = _divide_by_temperature(temperature)

    def entries(logits: Array, targets: Array) -> Array:
        # log σ(z) for y = 1 and log σ(−z) for y = 0.
        return jax.nn.log_sigmoid(jnp.where(targets == 1, logits, -logits))

    def probabilities(logits: Array) -> Array:
        return jax.nn.sigmoid(jnp.stack([-logits, logits], axis=-1))

    def check(outputs: Any, targets: Any) -> Array:
        array = whole_numbers(targets, "Bernoulli", "integer class labels")
        array = match_shape(array, shape_without_single(outputs, "Bernoulli"), "Bernoulli")
        _require_labels(array, 2, "use the categorical likelihood for more than two classes.")
        return jnp.asarray(array, jnp.int32)

    return Likelihood(
        init=init,
        parameters=lambda outputs, learned, latent: divide(squeeze_single(outputs), learned, latent),
        **independent_outputs(entries),
        mean=lambda logits: jax.nn.sigmoid(logits),
        variance=lambda logits: jax.nn.sigmoid(logits) * jax.nn.sigmoid(-logits),
        sample=lambda key, logits: jax.random.bernoulli(key, jax.nn.sigmoid(logits)).astype(jnp.int32),
        check=check,
        values=values,
        latents=latents,
        probabilities=probabilities,
        kind="class",
    )


@serializable_builder("likelihoods.categorical")
def categorical(temperature: Any = 1.0) -> Likelihood:
    """Model class labels y ∈ {0, …, C−1} with logits f(x) along the last axis of the outputs.

    The log-density is log p(y | f) = f_y / T − log Σ_c e^{f_c / T}.

    Outputs of shape (n, classes) match labels of shape (n,). Axes in between are further labels,
    independent of each other.

    Args:
        temperature: The temperature T by which logits are divided: a positive number, or
            ``learned(start)`` to learn it in ψ. Above one the probabilities are less confident.

    Returns:
        The likelihood.

    Example:
        >>> import partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([4, 20, 3]), "layers/0/**", pb.categorical())  # three classes
    """
    divide, init, latents, values = _divide_by_temperature(temperature)

    def entries(
        logits: Float[Array, "example *rest classes"], targets: Int[Array, "example *rest"]
    ) -> Float[Array, "example *rest"]:
        is_chosen = jax.nn.one_hot(targets, logits.shape[-1], dtype=bool)
        # A sum rather than a gather, whose gradient is a slow scatter.
        chosen = jnp.where(is_chosen, logits, 0.0).sum(axis=-1)
        return chosen - jax.nn.logsumexp(logits, axis=-1)

    def variances(logits: Array) -> Array:
        probabilities = jax.nn.softmax(logits)
        return probabilities * (1.0 - probabilities)

    def check(outputs: Any, targets: Any) -> Array:
        require_array(outputs, "categorical")
        if len(outputs.shape) < 2 or outputs.shape[-1] < 2:
            raise ValueError(
                f"network has outputs of shape {outputs.shape}; the categorical likelihood needs "
                "(examples, classes) with at least two classes. For one logit use bernoulli()."
            )
        array = whole_numbers(targets, "categorical", "integer class labels")
        array = match_shape(array, outputs.shape[:-1], "categorical")
        _require_labels(array, outputs.shape[-1], "give the network one output per class.")
        return jnp.asarray(array, jnp.int32)

    return Likelihood(
        init=init,
        parameters=divide,
        **independent_outputs(entries),
        mean=lambda logits: jax.nn.softmax(logits),
        variance=variances,
        sample=lambda key, logits: jax.random.categorical(key, logits),
        check=check,
        values=values,
        latents=latents,
        probabilities=lambda logits: jax.nn.softmax(logits),
        kind="class",
    )


@serializable_builder("likelihoods.poisson")
def poisson() -> Likelihood:
    """Model counts y ∈ {0, 1, 2, …} with log-rate f(x), independent over outputs.

    The log-density is log p(y | f) = y f − e^f − log y!.

    Returns:
        The likelihood.

    Example:
        >>> import partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([2, 20, 1]), "layers/0/**", pb.likelihoods.poisson())
    """

    def entries(log_rates: Array, targets: Array) -> Array:
        counts = targets.astype(log_rates.dtype)
        return counts * log_rates - jnp.exp(log_rates) - jax.scipy.special.gammaln(counts + 1.0)

    def cdf(log_rates: Array, targets: Array) -> Array:
        counts = jnp.floor(targets)
        below = jax.scipy.special.gammaincc(jnp.maximum(counts, 0.0) + 1.0, jnp.exp(log_rates))
        return jnp.where(counts < 0.0, 0.0, below)

    def check(outputs: Any, targets: Any) -> Array:
        array = whole_numbers(targets, "Poisson", "integer counts")
        array = match_shape(array, shape_without_single(outputs, "Poisson"), "Poisson")
        if array.min() < 0:
            raise ValueError(
                f"targets must be counts from 0 up, but one is {array.min()}; drop or correct it."
            )
        return jnp.asarray(array, jnp.int32)

    return Likelihood(
        init=tuple,
        parameters=lambda outputs, learned, latent: squeeze_single(outputs),
        **independent_outputs(entries),
        mean=jnp.exp,
        variance=jnp.exp,
        sample=lambda key, log_rates: jax.random.poisson(key, jnp.exp(log_rates), dtype=jnp.int32),
        check=check,
        cdf=cdf,
        kind="count",
    )


def _divide_by_temperature(
    temperature: Any,
) -> tuple[LikelihoodParameters, Callable[[], PyTree], tuple[Latent, ...], ParameterValues]:
    """Build the division of logits by a temperature, its parts of ψ and φ, and its value."""
    scale = as_parameter("temperature", temperature)
    if isinstance(temperature, float | int) and temperature == 1.0:
        return lambda logits, learned, latent: logits, scale.init, (), lambda learned, latent: {}

    def divide(logits: Array, learned: PyTree, latent: dict[str, Array]) -> Array:
        return logits / scale.value(learned, latent).astype(logits.dtype)

    def values(learned: PyTree, latent: dict[str, Array]) -> dict[str, Array]:
        return {"temperature": scale.value(learned, latent)}

    return divide, scale.init, scale.latents, values


def _require_labels(array: Any, classes: int, remedy: str) -> None:
    low, high = int(array.min()), int(array.max())
    if low < 0 or high >= classes:
        if (low, high) == (1, classes):
            remedy = "these are counted from 1: pass targets - 1."
        elif classes == 2 and set(np.unique(array).tolist()) == {-1, 1}:
            remedy = "these are -1 and 1: pass (targets + 1) // 2."
        raise ValueError(
            f"targets hold labels from {low} to {high}, but there are {classes} classes, "
            f"0 to {classes - 1}; {remedy}"
        )

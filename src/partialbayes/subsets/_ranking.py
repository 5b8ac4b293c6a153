"""Subsets of single weights by their values, or by what data say about them.

They need the parameters, so they are made from them and not from the shapes alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from partialbayes._utils.checks import (
    as_float_arrays,
    num_rows,
    require_positive,
    require_positive_int,
)
from partialbayes.subsets._select import Selection, Subset, top
from partialbayes.types import Leaf, Likelihood, Network


def largest(count: int, params: PyTree, among: Selection = "**") -> Subset:
    """The weights of largest magnitude.

    Args:
        count: How many.
        params: The network's parameters, such as ``network.init(key)`` of a pretrained one.
        among: Which weights to choose from; all by default.

    Raises:
        ValueError: From `partial_bnn`: ``count`` is more than there are to choose from.

    Example:
        >>> import jax, partialbayes as pb
        >>> network = pb.mlp([2, 20, 1])
        >>> params = network.init(jax.random.key(0))
        >>> pb.partial_bnn(network, pb.subsets.largest(7, params, "**/kernel"), pb.gaussian()).split.dim
        7
    """

    def magnitude(leaf: Any) -> Any:
        return jnp.abs(leaf) if _trains(leaf) else np.zeros(jnp.shape(leaf))

    return _highest(count, jax.tree.map(magnitude, params), among)


def most_variable_gradient(
    count: int,
    network: Network,
    params: PyTree,
    likelihood: Likelihood,
    data: Any,
    among: Selection = "**",
) -> Subset:
    """The weights whose gradient of the log-likelihood varies most from example to example.

    Its variance is the diagonal of the empirical Fisher information, less the squared mean: where
    it is large, single examples disagree about the weight.

    Args:
        count: How many.
        network: The network.
        params: Its parameters, where the gradient is taken.
        likelihood: The likelihood; learned and sampled parameters at their starting values.
        data: A pair ``(inputs, targets)``.
        among: Which weights to choose from; all by default.

    Raises:
        ValueError: The data do not fit; or, from `partial_bnn`, ``count`` is more than there are.

    Example:
        >>> import jax, jax.numpy as jnp, partialbayes as pb
        >>> network = pb.mlp([1, 5, 1])
        >>> params = network.init(jax.random.key(0))
        >>> x = jnp.linspace(-1.0, 1.0, 8)[:, None]
        >>> chosen = pb.subsets.most_variable_gradient(3, network, params, pb.gaussian(), (x, x))
        >>> pb.partial_bnn(network, chosen, pb.gaussian()).split.dim
        3
    """
    _, variances, treedef = _gradient_moments(network, params, likelihood, data)
    return _highest(count, jax.tree.unflatten(treedef, variances), among)


def most_uncertain(
    count: int,
    network: Network,
    params: PyTree,
    likelihood: Likelihood,
    data: Any,
    among: Selection = "**",
    *,
    prior_scale: float = 1.0,
) -> Subset:
    """The weights with the largest variance under a cheap posterior, that of subnetwork inference.

    The posterior is Laplace's with a diagonal covariance: 1 / (1/s² + Σ_n g_n²) for a weight with the
    gradients g_n of the single examples. For the variances of another one, those of SWAG for example,
    use ``largest(count, variances)``.

    Args:
        count: How many.
        network: The network.
        params: Its *trained* parameters.
        likelihood: The likelihood; learned and sampled parameters at their starting values.
        data: A pair ``(inputs, targets)``.
        among: Which weights to choose from; all by default.
        prior_scale: s, the standard deviation of the weights under the prior.

    Raises:
        ValueError: The data do not fit, or ``prior_scale`` is not positive; or, from `partial_bnn`,
            ``count`` is more than there are.

    Example:
        >>> import jax, jax.numpy as jnp, partialbayes as pb
        >>> network = pb.mlp([1, 5, 1])
        >>> params = network.init(jax.random.key(0))
        >>> x = jnp.linspace(-1.0, 1.0, 8)[:, None]
        >>> chosen = pb.subsets.most_uncertain(3, network, params, pb.gaussian(), (x, x))
        >>> pb.partial_bnn(network, chosen, pb.gaussian()).split.dim
        3
    """
    require_positive("prior_scale", prior_scale)
    means, variances, treedef = _gradient_moments(network, params, likelihood, data)
    rows = num_rows("inputs", data[0])
    scores = [
        1.0 / (prior_scale**-2.0 + rows * (variance + mean**2))
        for mean, variance in zip(means, variances, strict=True)
    ]
    return _highest(count, jax.tree.unflatten(treedef, scores), among)


def _gradient_moments(
    network: Network, params: PyTree, likelihood: Likelihood, data: Any
) -> tuple[list[Any], list[Any], Any]:
    """Mean and variance over examples of each weight's gradient, by leaf; zero where it cannot train."""
    inputs, targets = data
    inputs = as_float_arrays(inputs)
    rows = num_rows("inputs", inputs)
    targets = likelihood.check(jax.eval_shape(network.apply, params, inputs), targets)
    learned = likelihood.init()
    latent = {entry.name: entry.start() for entry in likelihood.latents}
    leaves, treedef = jax.tree.flatten(params)
    trained = [_trains(leaf) for leaf in leaves]

    def log_density(weights: list[Any], row: PyTree) -> Any:
        # Arrays that cannot be trained stay out of the derivative.
        given = iter(weights)
        merged = [next(given) if free else leaf for free, leaf in zip(trained, leaves, strict=True)]
        row_inputs, row_targets = jax.tree.map(lambda leaf: leaf[None], row)
        outputs = network.apply(jax.tree.unflatten(treedef, merged), row_inputs)
        parameters = likelihood.parameters(outputs, learned, latent)
        return likelihood.log_density(parameters, row_targets).sum()

    weights = [leaf for free, leaf in zip(trained, leaves, strict=True) if free]

    @jax.jit
    def moments() -> tuple[list[Any], list[Any]]:
        # Row by row, by Welford's recursion: one gradient in memory, and no cancellation.
        def step(carry: Any, row: PyTree) -> Any:
            seen, mean, squares = carry
            gradient = jax.grad(log_density)(weights, row)
            seen = seen + 1.0
            new_mean = jax.tree.map(lambda m, g: m + (g - m) / seen, mean, gradient)
            squares = jax.tree.map(
                lambda s, m, n, g: s + (g - m) * (g - n), squares, mean, new_mean, gradient
            )
            return (seen, new_mean, squares), None

        zeros = jax.tree.map(jnp.zeros_like, weights)
        (_, means, squares), _ = jax.lax.scan(step, (0.0, zeros, zeros), (inputs, targets))
        return means, [total / rows for total in squares]

    def everywhere(found: list[Any]) -> list[Any]:
        given = iter(found)
        return [
            next(given) if free else np.zeros(jnp.shape(leaf))
            for free, leaf in zip(trained, leaves, strict=True)
        ]

    means, variances = moments()
    return everywhere(means), everywhere(variances), treedef


def _trains(leaf: Any) -> bool:
    return bool(jnp.issubdtype(jnp.result_type(leaf), jnp.inexact))


def _highest(count: int, scores: PyTree, among: Selection) -> Subset:
    require_positive_int("count", count, "the number of weights to choose.")
    values = [np.asarray(leaf) for leaf in jax.tree.leaves(scores)]

    def checked(leaves: Sequence[Leaf]) -> list[Any]:
        if [value.shape for value in values] != [leaf.shape for leaf in leaves]:
            raise ValueError(
                "params do not look like those of this network: their shapes are "
                f"{[value.shape for value in values]}, the network's {[leaf.shape for leaf in leaves]}."
            )
        return values

    def limited(available: int) -> int:
        if count > available:
            raise ValueError(f"count is {count}, but there are only {available} weights to choose from.")
        return count

    return top(checked, limited, among)

"""Choose single weights by their values, or by their gradients on data.

These subsets need the parameters, not only their shapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from partialbayes._utils.checks import as_float_arrays, num_rows, require_positive, require_positive_int
from partialbayes.subsets._select import Selection, Subset, top
from partialbayes.types import Leaf, Likelihood, Network


def largest(count: int, params: PyTree, among: Selection = "**") -> Subset:
    """Choose the weights of largest magnitude.

    Args:
        count: Number of weights to choose.
        params: Parameters of the network, such as ``network.init(key)`` of a pretrained one.
        among: The weights to choose from; all by default.

    Returns:
        The subset.

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
    """Choose the weights whose log-likelihood gradient varies most between examples.

    The variance is the diagonal of the empirical Fisher information minus the squared mean. Where it is
    large, examples disagree about the weight.

    Args:
        count: Number of weights to choose.
        network: The network.
        params: Parameters at which to compute the gradient.
        likelihood: The likelihood, with learned and sampled parameters at their initial values.
        data: A pair ``(inputs, targets)``.
        among: The weights to choose from; all by default.

    Returns:
        The subset.

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
    """Choose the weights with the largest posterior variance, as in subnetwork inference.

    The posterior is a Laplace approximation with a diagonal covariance: the variance of a weight is 1 /
    (1/s² + Σ_n g_n²), with gradients g_n of the single examples. To use other variances, such as those
    of SWAG, call ``largest(count, variances)``.

    Args:
        count: Number of weights to choose.
        network: The network.
        params: *Trained* parameters of the network.
        likelihood: The likelihood, with learned and sampled parameters at their initial values.
        data: A pair ``(inputs, targets)``.
        among: The weights to choose from; all by default.
        prior_scale: Standard deviation s of the weights under the prior.

    Returns:
        The subset.

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
    """Compute mean and variance over examples of each weight's gradient; zero if it cannot train."""
    inputs, targets = data
    inputs = as_float_arrays(inputs)
    rows = num_rows("inputs", inputs)
    targets = likelihood.check(jax.eval_shape(network.apply, params, inputs), targets)
    learned = likelihood.init()
    latent = {entry.name: entry.start() for entry in likelihood.latents}
    leaves, treedef = jax.tree.flatten(params)
    weights = {place: leaf for place, leaf in enumerate(leaves) if _trains(leaf)}

    def log_density(weights: dict[int, Any], row: PyTree) -> Any:
        # Differentiate only arrays that can be trained.
        merged = [weights.get(place, leaf) for place, leaf in enumerate(leaves)]
        row_inputs, row_targets = jax.tree.map(lambda leaf: leaf[None], row)
        outputs = network.apply(jax.tree.unflatten(treedef, merged), row_inputs)
        parameters = likelihood.parameters(outputs, learned, latent)
        return likelihood.log_density(parameters, row_targets).sum()

    @jax.jit
    def moments() -> tuple[dict[int, Any], dict[int, Any]]:
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
        return means, {place: total / rows for place, total in squares.items()}

    zeros = [np.zeros(jnp.shape(leaf)) for leaf in leaves]
    means, variances = (
        [found.get(place, zero) for place, zero in enumerate(zeros)] for found in moments()
    )
    return means, variances, treedef


def _trains(leaf: Any) -> bool:
    return bool(jnp.issubdtype(jnp.result_type(leaf), jnp.inexact))


def _highest(count: int, scores: PyTree, among: Selection) -> Subset:
    require_positive_int("count", count, "the number of weights to choose.")
    values = [np.asarray(leaf) for leaf in jax.tree.leaves(scores)]

    def require_shapes(leaves: Sequence[Leaf]) -> list[Any]:
        if [value.shape for value in values] != [leaf.shape for leaf in leaves]:
            raise ValueError(
                "params do not look like those of this network; pass its own. Their shapes are "
                f"{[value.shape for value in values]}, the network's {[leaf.shape for leaf in leaves]}."
            )
        return values

    def require_available(available: int) -> int:
        if count > available:
            raise ValueError(f"count is {count}, but there are only {available} weights; choose fewer.")
        return count

    return top(require_shapes, require_available, among)

"""Priors π(φ) of the stochastic weights.

A prior is built for a split, because its shape may depend on the layers. Learned parameters are in
``psi.prior``. Most priors are of the form φ = m + s ε, with a location m, a scale s and a standard law
of ε.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from partialbayes._utils.checks import require_positive, require_probability
from partialbayes._utils.paths import named_leaves
from partialbayes._utils.recipes import serializable_builder
from partialbayes.priors._scales import bind_scale, require_scale
from partialbayes.types import Moments, Network, Phi, Prior, PriorBuilder, PRNGKey, Scalar, Split


class _Standard(NamedTuple):
    """A standard law: its log-density, a function that draws a shape, and its variance."""

    log_density: Callable[[Array], Array]
    sample: Callable[[PRNGKey, tuple[int, ...]], Array]
    variance: Any
    normal: bool


@serializable_builder("priors.normal")
def normal(mean: Any = 0.0, scale: Any = 1.0) -> PriorBuilder:
    """Build a normal prior: φ ~ N(mean, diag(scale²)).

    Args:
        mean: Location: one number, or one per stochastic weight.
        scale: Standard deviation: a positive number, or one per stochastic weight; a dictionary from
            patterns to numbers, ``{"layers/0/**": 1.0, "**": 0.1}``; `per_layer`; `fan_in`; or
            ``learned(start)`` to train it by maximum marginal likelihood along with ψ. All other forms
            may contain `learned`.

    Returns:
        The prior, to pass to `partial_bnn`.

    Example:
        >>> import partialbayes as pb
        >>> prior = pb.priors.normal(scale=pb.learned(1.0))
        >>> model = pb.partial_bnn(pb.mlp([1, 20, 1]), "layers/0/**", pb.gaussian(), prior)
    """
    return _location_scale(
        mean, scale, _Standard(jax.scipy.stats.norm.logpdf, jax.random.normal, 1.0, normal=True)
    )


@serializable_builder("priors.laplace")
def laplace(mean: Any = 0.0, scale: Any = 1.0) -> PriorBuilder:
    """Build a Laplace prior, with density ∝ exp(−|φ − mean| / scale).

    Compared with a normal prior, more weights are near the mean.

    Args:
        mean: Location: one number, or one per stochastic weight.
        scale: Scale: a positive number, or one per stochastic weight; a dictionary from patterns to
            numbers, ``{"layers/0/**": 1.0, "**": 0.1}``; `per_layer`; `fan_in`; or ``learned(start)``.
            The standard deviation is √2 times the scale.

    Returns:
        The prior, to pass to `partial_bnn`.

    Example:
        >>> import partialbayes as pb
        >>> prior = pb.priors.laplace(scale=0.5)
        >>> model = pb.partial_bnn(pb.mlp([1, 20, 1]), "layers/0/**", pb.gaussian(), prior)
    """
    return _location_scale(
        mean, scale, _Standard(jax.scipy.stats.laplace.logpdf, jax.random.laplace, 2.0, normal=False)
    )


@serializable_builder("priors.student_t")
def student_t(degrees_of_freedom: float = 4.0, mean: Any = 0.0, scale: Any = 1.0) -> PriorBuilder:
    """Build a Student-t prior, (φ − mean) / scale ~ t(ν).

    Compared with a normal prior, most weights are small and a few are large.

    Args:
        degrees_of_freedom: Degrees of freedom ν; the variance is infinite for ν ≤ 2.
        mean: Location: one number, or one per stochastic weight.
        scale: Scale: a positive number, or one per stochastic weight; a dictionary from patterns to
            numbers, ``{"layers/0/**": 1.0, "**": 0.1}``; `per_layer`; `fan_in`; or ``learned(start)``.

    Returns:
        The prior, to pass to `partial_bnn`.

    Example:
        >>> import partialbayes as pb
        >>> prior = pb.priors.student_t(degrees_of_freedom=3.0, scale=pb.priors.fan_in())
    """
    require_positive("degrees_of_freedom", degrees_of_freedom)
    standard = _Standard(
        lambda x: jax.scipy.stats.t.logpdf(x, degrees_of_freedom),
        lambda key, shape: jax.random.t(key, degrees_of_freedom, shape),
        jnp.where(
            jnp.asarray(degrees_of_freedom) > 2.0,
            degrees_of_freedom / (jnp.maximum(degrees_of_freedom, 2.0) - 2.0),
            jnp.inf,
        ),
        normal=False,
    )
    return _location_scale(mean, scale, standard)


def centered_on(params: PyTree | Network, scale: Any = 1.0) -> PriorBuilder:
    """Build a normal prior around given weights, such as those of a pretrained network.

    Args:
        params: The weights, a pytree like the parameters of the network; or a pretrained network.
        scale: Scale: a positive number, or one per stochastic weight; a dictionary from patterns to
            numbers, ``{"layers/0/**": 1.0, "**": 0.1}``; `per_layer`; `fan_in`; or ``learned(start)``.

    Returns:
        The prior, to pass to `partial_bnn`.

    Example:
        >>> import jax, partialbayes as pb
        >>> network = pb.mlp([1, 20, 1])
        >>> trained = network.init(jax.random.key(0))
        >>> prior = pb.priors.centered_on(trained, 0.1)
        >>> model = pb.partial_bnn(network, pb.subsets.layer(-1), pb.gaussian(), prior)
    """
    require_scale(scale)
    center = params.init(jax.random.key(0)) if isinstance(params, Network) else params

    def build(split: Split) -> Prior:
        shapes = {path: jnp.shape(leaf) for path, leaf in named_leaves(center)}
        own = {leaf.path: leaf.shape for leaf in split.leaves}
        if shapes != own:
            raise ValueError(
                "params of centered_on do not look like the network's; pass its own. Their shapes are "
                f"{shapes}, the network's {own}."
            )
        return normal(split.flatten(center)[0], scale)(split)

    return build


@serializable_builder("priors.inverse_gamma")
def inverse_gamma(shape: float, rate: float) -> PriorBuilder:
    """Build an inverse-gamma prior of exp(φ), for the variance of a likelihood.

    It is the prior of `sampled`. The density is that of φ, the logarithm of the variance.

    Args:
        shape: Half the number of observations the prior is worth.
        rate: Half their sum of squares. The mode of the variance is rate / (shape + 1).

    Returns:
        The prior, to pass to `sampled`.

    Example:
        >>> import partialbayes as pb
        >>> likelihood = pb.gaussian(variance=pb.sampled(0.5, prior=pb.priors.inverse_gamma(3.0, 1.0)))
    """
    require_positive("shape", shape)
    require_positive("rate", rate)

    def build(split: Split) -> Prior:
        dtype = jnp.result_type(float)

        def sample(key: PRNGKey, learned: PyTree, num: int) -> Float[Array, "num dim"]:
            return jnp.log(rate) - jax.random.loggamma(key, shape, (num, split.dim), dtype)

        def log_density(phi: Phi, learned: PyTree) -> Scalar:
            constant = shape * jnp.log(rate) - jax.scipy.special.gammaln(shape)
            return jnp.sum(constant - shape * phi - rate * jnp.exp(-phi))

        def moments(learned: PyTree) -> Moments:
            mean = jnp.log(rate) - jax.scipy.special.digamma(shape)
            variance = jax.scipy.special.polygamma(1, shape)
            return Moments(jnp.full(split.dim, mean, dtype), jnp.full(split.dim, variance, dtype))

        return Prior(tuple, sample, log_density, moments, normal=False)

    return build


@serializable_builder("priors.dropout")
def dropout(rate: float = 0.1) -> PriorBuilder:
    """Build the prior of dropout: 1 + φ is 0 with probability ``rate``, else 1 / (1 − ``rate``).

    It is a discrete law, for `mc_dropout` on a `rank_one` network. Algorithms that move φ cannot use it.

    Args:
        rate: Probability in (0, 1) that an input is dropped.

    Returns:
        The prior, to pass to `partial_bnn`.

    Example:
        >>> import partialbayes as pb
        >>> prior = pb.priors.dropout(0.1)
    """
    require_probability("rate", rate, "for example rate=0.1.")

    def build(split: Split) -> Prior:
        dtype = jnp.result_type(float)

        def sample(key: PRNGKey, learned: PyTree, num: int) -> Float[Array, "num dim"]:
            kept = jax.random.bernoulli(key, 1.0 - rate, (num, split.dim))
            return jnp.where(kept, rate / (1.0 - rate), -1.0).astype(dtype)

        def log_density(phi: Phi, learned: PyTree) -> Scalar:
            return jnp.sum(jnp.where(phi > -0.5, jnp.log1p(-rate), jnp.log(rate))).astype(dtype)

        def moments(learned: PyTree) -> Moments:
            variance = jnp.full(split.dim, rate / (1.0 - rate), dtype)
            return Moments(jnp.zeros(split.dim, dtype), variance)

        return Prior(tuple, sample, log_density, moments, normal=False)

    return build


def custom(
    log_density: Callable[[Phi], Scalar],
    sample: Callable[[PRNGKey, int], Float[Array, "num dim"]],
    moments: Moments | None = None,
) -> PriorBuilder:
    """Build a prior from a log-density and a sampler.

    Args:
        log_density: Maps one φ, of shape (dim,), to a number.
        sample: ``(key, num) ->`` draws of shape (num, dim).
        moments: Mean and variance of each weight, for kernels that use them. Estimated from 4096 draws
            by default.

    Returns:
        The prior, to pass to `partial_bnn`.

    Example:
        >>> import jax, partialbayes as pb
        >>> prior = pb.priors.custom(
        ...     lambda phi: jax.scipy.stats.logistic.logpdf(phi).sum(),
        ...     lambda key, num: jax.random.logistic(key, (num, 6)),
        ... )
        >>> model = pb.partial_bnn(pb.mlp([1, 3, 1]), pb.subsets.layer(0), pb.gaussian(), prior)
    """

    def build(split: Split) -> Prior:
        one = jax.eval_shape(log_density, jnp.zeros(split.dim))
        many = jax.eval_shape(lambda key: sample(key, 2), jax.random.key(0))
        for name, found, wanted in (("log_density", one, ()), ("sample", many, (2, split.dim))):
            if jnp.shape(found) != wanted:
                raise ValueError(
                    f"{name} of the custom prior gives shape {jnp.shape(found)}; for {split.dim} "
                    f"stochastic weights it must return {wanted}"
                    + (" for one phi." if wanted == () else " for num = 2.")
                )
        known = moments
        if known is None:
            draws = sample(jax.random.key(0), 4096)
            known = Moments(draws.mean(axis=0), draws.var(axis=0))
        return Prior(
            tuple,
            lambda key, learned, num: sample(key, num),
            lambda phi, learned: log_density(phi),
            lambda learned: known,
            normal=False,
        )

    return build


def _location_scale(mean: Any, scale: Any, standard: _Standard) -> PriorBuilder:
    require_scale(scale)

    def build(split: Split) -> Prior:
        if np.shape(mean) not in ((), (split.dim,)):
            raise ValueError(
                f"mean of the prior has shape {np.shape(mean)}; give one number, or one for each of "
                f"the {split.dim} stochastic weights, shape ({split.dim},)."
            )
        bound = bind_scale(scale, split)
        dtype = jnp.result_type(float)
        center = jnp.broadcast_to(jnp.asarray(mean, dtype), (split.dim,))

        def moments(learned: PyTree) -> Moments:
            return Moments(center, standard.variance * jnp.square(bound.value(learned)))

        def sample(key: PRNGKey, learned: PyTree, num: int) -> Float[Array, "num dim"]:
            noise = standard.sample(key, (num, split.dim)).astype(dtype)
            return center[None, :] + bound.value(learned)[None, :] * noise

        def log_density(phi: Phi, learned: PyTree) -> Scalar:
            spread = bound.value(learned)
            return jnp.sum(standard.log_density((phi - center) / spread) - jnp.log(spread))

        return Prior(bound.init, sample, log_density, moments, standard.normal)

    return build


def joint(parts: Sequence[tuple[Prior, int]]) -> Prior:
    """Combine independent priors of consecutive parts of φ, each with its length."""
    if len(parts) == 1:
        return parts[0][0]
    priors = [prior for prior, _ in parts]
    ends = np.cumsum([dim for _, dim in parts])

    def sample(key: PRNGKey, learned: PyTree, num: int) -> Float[Array, "num dim"]:
        keys = jax.random.split(key, len(priors))
        drawn = [
            prior.sample(part_key, part, num)
            for prior, part_key, part in zip(priors, keys, learned, strict=True)
        ]
        return jnp.concatenate(drawn, axis=1)

    def log_density(phi: Phi, learned: PyTree) -> Scalar:
        pieces = jnp.split(phi, ends[:-1])
        terms = [
            prior.log_density(piece, part)
            for prior, piece, part in zip(priors, pieces, learned, strict=True)
        ]
        return jnp.sum(jnp.stack(terms))

    def moments(learned: PyTree) -> Moments:
        each = [prior.moments(part) for prior, part in zip(priors, learned, strict=True)]
        return Moments(*(jnp.concatenate(column) for column in zip(*each, strict=True)))

    return Prior(
        init=lambda: tuple(prior.init() for prior in priors),
        sample=sample,
        log_density=log_density,
        moments=moments,
        normal=all(prior.normal for prior in priors),
    )

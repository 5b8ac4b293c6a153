"""The continuous ranked probability score, ∫ (F(z) − 1[z ≥ y])² dz = E|X − y| − ½ E|X − X′|.

It is in the units of the targets, and the absolute error if the predictive is a single point. For a
mixture of normals, with A(m, s²) = E|N(m, s²)| = 2 s φ(m/s) + m (2 Φ(m/s) − 1), it is

    Σ_j w_j A(y − m_j, v_j) − ½ Σ_j Σ_k w_j w_k A(m_j − m_k, v_j + v_k).
"""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Num

from partialbayes.metrics._common import AnyArray, Score, align
from partialbayes.prediction._predictive import Predictive
from partialbayes.weights import uniform_log_weights


def crps(predictive: Predictive, targets: Num[AnyArray, "example ..."]) -> Score:
    """Compute the mean continuous ranked probability score (CRPS) of the mixture.

    The CRPS of y is ∫ (F(z) − 1[z ≥ y])² dz, in the units of y; for a point prediction it is the
    absolute error. It is computed in closed form for normal noise, else from samples.

    Args:
        predictive: The result of `predict`.
        targets: Observed targets.

    Returns:
        The score; lower is better.

    Example:
        >>> import partialbayes as pb  # predictive and x as in the example of predict
        >>> bool(pb.metrics.crps(predictive, x) > 0)
        True
    """
    if predictive.model.likelihood.is_classification:
        raise ValueError("crps needs numeric targets, but these are classes; use brier.")
    scale = predictive.target_scale
    if scale is not None and not scale.log:
        # Computed in the units of training, where single precision suffices.
        _, targets = align("mean", predictive.mean, targets)
        each = _each(replace(predictive, target_scale=None), scale.apply(targets))
        return float(np.mean(np.asarray(scale.scale, float) * np.asarray(each, float)))
    return jnp.mean(_each(predictive, targets))


def _each(predictive: Predictive, targets: AnyArray) -> Array:
    """Compute the CRPS of every target."""
    if predictive.model.likelihood.is_gaussian and predictive.target_scale is None:
        means, variances, log_weights = predictive.components()
        _, targets = align("mean", means[0], targets)
        return normal_mixture_crps(means, variances, log_weights, targets)
    samples = predictive.even_sample(jax.random.key(0))
    _, targets = align("samples", samples[0], targets)
    return sample_crps(samples, uniform_log_weights(samples.shape[0]), targets)


@jax.jit
def normal_mixture_crps(
    means: Float[AnyArray, "component *shape"],
    variances: Float[AnyArray, "component *shape"],
    log_weights: Float[AnyArray, " component"],
    targets: Num[AnyArray, "*shape"],
) -> Float[Array, "*shape"]:
    """Compute the CRPS of mixtures of normals in closed form, in time quadratic in the components.

    Args:
        means: Mean of each component.
        variances: Variance of each component.
        log_weights: Normalized log-weights, the same for every target.
        targets: Observed targets.

    Returns:
        The score of each target.

    Example:
        >>> import jax.numpy as jnp, partialbayes as pb
        >>> one = jnp.ones((1, 1))
        >>> score = pb.metrics.normal_mixture_crps(0 * one, one, jnp.zeros(1), jnp.zeros(1))
        >>> round(float(score[0]), 4)  # (√2 − 1) / √π
        0.2337
    """
    means, variances, weights = jnp.asarray(means), jnp.asarray(variances), jnp.exp(log_weights)

    def from_others(component: tuple[Array, Array]) -> Array:
        mean, variance = component
        return jnp.tensordot(weights, _mean_distance(means - mean[None], variances + variance[None]), 1)

    to_target = jnp.tensordot(weights, _mean_distance(jnp.asarray(targets)[None] - means, variances), 1)
    between = jax.lax.map(from_others, (means, variances))
    return to_target - 0.5 * jnp.tensordot(weights, between, 1)


def _mean_distance(mean: Array, variance: Array) -> Array:
    """Compute A(m, s²), the mean of |X| for a normal X."""
    scale = jnp.sqrt(variance)
    z = mean / scale
    # 2 Φ(z) − 1 = erf(z / √2)
    return 2.0 * scale * jax.scipy.stats.norm.pdf(z) + mean * jax.lax.erf(z * jnp.sqrt(0.5))


@jax.jit
def sample_crps(
    samples: Float[AnyArray, "draw *shape"],
    log_weights: Float[AnyArray, " draw"],
    targets: Num[AnyArray, "*shape"],
) -> Float[Array, "*shape"]:
    """Compute the CRPS of the distribution of weighted samples.

    Args:
        samples: Draws from the predictive.
        log_weights: Normalized log-weights of the draws.
        targets: Observed targets.

    Returns:
        The score of each target.

    Example:
        >>> import jax.numpy as jnp, partialbayes as pb
        >>> samples = jnp.array([[0.0], [1.0]])
        >>> float(pb.metrics.sample_crps(samples, jnp.log(jnp.array([0.5, 0.5])), jnp.ones(1))[0])
        0.25
    """
    centered = samples - targets[None]
    weights = jnp.broadcast_to(
        jnp.exp(log_weights).reshape(-1, *[1] * (centered.ndim - 1)), centered.shape
    )
    order = jnp.argsort(centered, axis=0)
    centered, weights = (jnp.take_along_axis(array, order, axis=0) for array in (centered, weights))
    # ½ Σ_j Σ_k w_j w_k |x_j − x_k| = Σ_j w_j x_(j) (C_j + C_{j−1} − 1), with C the cumulative weight.
    cumulative = jnp.cumsum(weights, axis=0)
    spread = jnp.sum(weights * centered * (2.0 * cumulative - weights - 1.0), axis=0)
    return jnp.sum(weights * jnp.abs(centered), axis=0) - spread

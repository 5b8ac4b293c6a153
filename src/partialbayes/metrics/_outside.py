"""Detect out-of-distribution inputs, and abstain from uncertain predictions.

An *uncertainty* is one number per input, larger for stranger inputs. In the arguments, ``inside`` holds
the uncertainties of in-distribution inputs, ``outside`` those of out-of-distribution inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy import special

from partialbayes._utils.checks import require_probability
from partialbayes.metrics._common import AnyArray, as_sorted
from partialbayes.prediction._components import components
from partialbayes.prediction._predictive import Predictive
from partialbayes.types import Scalar


def energy(predictive: Predictive) -> Float[Array, " example"]:
    """Compute the free energy −log Σ_c e^{f_c} of the logits f, averaged over particles first.

    It is high if all logits are low. Averaging energies instead of logits would lower the result where
    particles disagree. It needs one label per example.

    Args:
        predictive: The predictive of a classifier, from `predict`.

    Returns:
        The energy of each input.

    Example:
        >>> import jax, jax.numpy as jnp, partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([2, 5, 3]), "layers/1/*", pb.categorical())
        >>> algorithm = pb.ohsmc(model, num_particles=10)
        >>> posterior = algorithm.posterior(algorithm.init(jax.random.key(0)))  # before training
        >>> pb.metrics.energy(pb.predict(model, posterior, jnp.ones((4, 2)))).shape
        (4,)
    """
    model, posterior = predictive.model, predictive.posterior
    logits = components(model, posterior, predictive.inputs, predictive.chunks.particles)
    if not model.likelihood.is_classification or not isinstance(logits, jax.Array) or logits.ndim > 3:
        raise ValueError("energy needs class logits and one label per example, as with categorical().")
    if logits.ndim == 2:  # one logit: the log-odds of class one
        logits = 0.5 * jnp.stack([-logits, logits], axis=-1)
    weights = jnp.exp(posterior.particles.log_weights.ravel())
    return -jax.nn.logsumexp(jnp.tensordot(weights, logits, 1), axis=-1)


def feature_density(
    features: Float[AnyArray, "row feature"], labels: Int[AnyArray, " row"] | None = None
) -> Callable[[Any], Float[np.ndarray, " example"]]:
    """Fit a mixture of Gaussians to features, and return a function to their negative log-density.

    There is one mean per class and one shared covariance, shrunk slightly toward its diagonal.

    Args:
        features: Features of training inputs, such as ``trunk.features(x)[0]``.
        labels: The classes of those inputs. Defaults to a single class.

    Returns:
        A function from features to uncertainties.

    Example:
        >>> import numpy as np, partialbayes as pb
        >>> rng = np.random.default_rng(0)
        >>> strangeness = pb.metrics.feature_density(rng.normal(size=(100, 2)))
        >>> near, far = strangeness(np.array([[0.0, 0.0], [9.0, 9.0]]))
        >>> bool(far > near)
        True
    """
    rows = np.asarray(features, float)
    if rows.ndim != 2:
        raise ValueError(f"features have shape {rows.shape}; pass (rows, features), flattened.")
    classes = np.zeros(len(rows), int) if labels is None else np.asarray(labels)
    if classes.shape != (len(rows),):
        raise ValueError(
            f"labels have shape {classes.shape}, but there are {len(rows)} rows of features."
        )
    names, places, counts = np.unique(classes, return_inverse=True, return_counts=True)
    means = np.stack([rows[places == place].mean(axis=0) for place in range(len(names))])
    residuals = rows - means[places]
    covariance = residuals.T @ residuals / len(rows)
    width = rows.shape[1]
    share = width / (width + len(rows))
    diagonal = np.diag(covariance)
    floor = 1e-6 * diagonal.mean() + np.finfo(float).tiny
    covariance = (1.0 - share) * covariance + np.diag(share * diagonal + floor)
    factor = np.linalg.cholesky(covariance)
    log_determinant = 2.0 * np.log(np.diag(factor)).sum()
    log_shares = np.log(counts / len(rows))

    def uncertainty(features: Any) -> Float[np.ndarray, " example"]:
        points = np.asarray(features, float)
        white = np.linalg.solve(factor, points.T)
        centers = np.linalg.solve(factor, means.T)
        squares = np.square(white[:, :, None] - centers[:, None, :]).sum(axis=0)
        log_density = special.logsumexp(log_shares[None, :] - 0.5 * squares, axis=1)
        return 0.5 * (log_determinant + width * np.log(2.0 * np.pi)) - log_density

    return uncertainty


def combined(*known: Float[AnyArray, "..."]) -> Callable[..., Float[np.ndarray, " example"]]:
    """Combine several uncertainties into one, −Σ_k log p_k, by Fisher's method.

    p_k is the share of known inputs whose k-th uncertainty is at least as large. So units do not matter,
    and an input that is strange by one uncertainty is strange.

    Args:
        *known: The uncertainties of in-distribution inputs that were not trained on, one array each.

    Returns:
        A function of the same uncertainties of other inputs.

    Example:
        >>> import numpy as np, partialbayes as pb
        >>> rng = np.random.default_rng(0)
        >>> strangeness = pb.metrics.combined(rng.normal(size=99), rng.normal(size=99))
        >>> strangeness(np.array([-9.0, 9.0]), np.array([-9.0, -9.0])).round(2)
        array([0.  , 4.61])
    """
    if not known:
        raise ValueError("known is empty; pass at least one uncertainty of in-distribution inputs.")
    sorted_ones = [np.asarray(as_sorted(f"uncertainty {k}", one)) for k, one in enumerate(known)]

    def uncertainty(*given: Any) -> Float[np.ndarray, " example"]:
        if len(given) != len(sorted_ones):
            raise ValueError(
                f"{len(given)} uncertainties are given, but {len(sorted_ones)} were combined."
            )
        total = np.zeros(len(given[0]))
        for usual, values in zip(sorted_ones, given, strict=True):
            above = len(usual) - np.searchsorted(usual, np.asarray(values), side="left")
            total -= np.log((above + 1) / (len(usual) + 1))
        return total

    return uncertainty


def aupr(inside: Float[AnyArray, " example"], outside: Float[AnyArray, " other"]) -> Scalar:
    """Compute the area under the precision-recall curve of detecting out-of-distribution inputs.

    Guessing gives their share of all inputs, so it depends on the number of each.

    Args:
        inside: Uncertainties of in-distribution inputs.
        outside: Uncertainties of out-of-distribution inputs.

    Returns:
        The average precision, between 0 and 1.

    Example:
        >>> import jax.numpy as jnp, partialbayes as pb
        >>> float(pb.metrics.aupr(jnp.array([0.1, 0.3]), jnp.array([0.2, 0.9])))
        0.8333333730697632
    """
    usual, strange = as_sorted("inside", inside), as_sorted("outside", outside)
    among_strange = strange.size - jnp.searchsorted(strange, strange, side="left")
    among_usual = usual.size - jnp.searchsorted(usual, strange, side="left")
    return jnp.mean(among_strange / (among_strange + among_usual))


def fpr95(
    inside: Float[AnyArray, " example"], outside: Float[AnyArray, " other"], kept: float = 0.95
) -> Scalar:
    """Compute the false-positive rate at the threshold that accepts 95 % of in-distribution inputs.

    Args:
        inside: Uncertainties of in-distribution inputs.
        outside: Uncertainties of out-of-distribution inputs.
        kept: The share of in-distribution inputs to accept.

    Returns:
        The share of out-of-distribution inputs that are accepted.

    Example:
        >>> import jax.numpy as jnp, partialbayes as pb
        >>> float(pb.metrics.fpr95(jnp.linspace(0.0, 1.0, 100), jnp.array([0.5, 0.9, 2.0, 3.0])))
        0.5
    """
    require_probability("kept", kept, "for example kept=0.95.")
    usual, strange = as_sorted("inside", inside), as_sorted("outside", outside)
    threshold = usual[min(usual.size - 1, int(np.ceil(kept * usual.size)) - 1)]
    return jnp.mean(strange <= threshold)


class RiskCoverage(NamedTuple):
    """A risk-coverage curve, from the most certain prediction to all of them.

    Attributes:
        coverage: Share of inputs that are predicted.
        risk: Mean loss of those predictions.
        threshold: The largest uncertainty among them.
    """

    coverage: Float[Array, " example"]
    risk: Float[Array, " example"]
    threshold: Float[Array, " example"]


def risk_coverage(
    uncertainty: Float[AnyArray, " example"], losses: Float[AnyArray, " example"]
) -> RiskCoverage:
    """Compute the risk-coverage curve: the mean loss of the most certain predictions.

    Args:
        uncertainty: The uncertainty of each input.
        losses: The loss of each prediction: 1 for a wrong class and 0 for a right one, or a squared
            error.

    Returns:
        Coverage, risk and threshold, one entry per input.

    Example:
        >>> import jax.numpy as jnp, partialbayes as pb
        >>> wrong = jnp.array([0.0, 1.0, 0.0, 0.0])
        >>> pb.metrics.risk_coverage(jnp.array([0.1, 0.9, 0.2, 0.3]), wrong).risk
        Array([0.  , 0.  , 0.  , 0.25], dtype=float32)
    """
    doubts, costs = jnp.asarray(uncertainty), jnp.asarray(losses, jnp.result_type(float))
    if doubts.ndim != 1 or doubts.shape != costs.shape or doubts.size == 0:
        raise ValueError(
            f"uncertainty has shape {doubts.shape} and losses {costs.shape}; pass one number per input."
        )
    order = jnp.argsort(doubts)
    counts = jnp.arange(1, doubts.size + 1)
    # Equally uncertain inputs are predicted together: each gets the mean of its group.
    ends = jnp.searchsorted(doubts[order], doubts[order], side="right")
    risk = (jnp.cumsum(costs[order]) / counts)[ends - 1]
    return RiskCoverage(ends / doubts.size, risk, doubts[order])


def aurc(uncertainty: Float[AnyArray, " example"], losses: Float[AnyArray, " example"]) -> Scalar:
    """Compute the area under the risk-coverage curve; lower is better.

    Args:
        uncertainty: The uncertainty of each input.
        losses: The loss of each prediction.

    Returns:
        The mean risk over all coverages.

    Example:
        >>> import jax.numpy as jnp, partialbayes as pb
        >>> wrong = jnp.array([0.0, 1.0, 0.0, 0.0])
        >>> float(pb.metrics.aurc(jnp.array([0.1, 0.9, 0.2, 0.3]), wrong))
        0.0625
    """
    return jnp.mean(risk_coverage(uncertainty, losses).risk)


class Selective(NamedTuple):
    """A rule that decides when to predict and when to abstain.

    Attributes:
        threshold: The largest uncertainty at which to predict; minus infinity to abstain always.
        coverage: Share of inputs predicted, on the rows that chose the threshold.
        risk: Mean loss of those predictions.
    """

    threshold: float
    coverage: float
    risk: float


def selective(
    uncertainty: Float[AnyArray, " example"], losses: Float[AnyArray, " example"], risk: float
) -> Selective:
    """Choose the largest threshold whose predictions have at most the given risk.

    Choose it on held-out rows: on training rows most predictions are right.

    Args:
        uncertainty: The uncertainty of each input.
        losses: The loss of each prediction.
        risk: The largest mean loss that is allowed.

    Returns:
        The threshold, with its coverage and risk on these rows.

    Example:
        >>> import jax.numpy as jnp, partialbayes as pb
        >>> wrong = jnp.array([0.0, 1.0, 0.0, 0.0])
        >>> rule = pb.metrics.selective(jnp.array([0.1, 0.9, 0.2, 0.3]), wrong, risk=0.1)
        >>> round(rule.threshold, 2), rule.coverage
        (0.3, 0.75)
    """
    curve = risk_coverage(uncertainty, losses)
    allowed = np.flatnonzero(np.asarray(curve.risk) <= risk)
    if not len(allowed):
        return Selective(-np.inf, 0.0, 0.0)
    last = int(allowed[-1])
    return Selective(*(float(part[last]) for part in (curve.threshold, curve.coverage, curve.risk)))

"""Compare the result of training with the pretrained network it started from."""

from __future__ import annotations

import math
from typing import TypeAlias

import jax
import numpy as np
from jaxtyping import Float

from partialbayes._utils.warn import warn
from partialbayes.algorithms._combinators import at_weights
from partialbayes.errors import DepartureWarning
from partialbayes.prediction import _mixture as mixture
from partialbayes.prediction._mixture import rows_to_score
from partialbayes.results import Departure
from partialbayes.types import Batch, Model, Posterior

Scored: TypeAlias = tuple[Float[np.ndarray, " example"], mixture.MixtureMoments]

_ROWS = 1000  # of the training data, if there are no validation data


def pretrained_posterior(model: Model) -> Posterior:
    """Return the pretrained network as a posterior of one particle.

    `second_stage`, `predict` and `refine` accept it.

    Args:
        model: The model of a network with ``pretrained=True``.

    Returns:
        The posterior, at the weights of the network.

    Raises:
        ValueError: The network is not pretrained.

    Example:
        >>> import jax.numpy as jnp, partialbayes as pb
        >>> weights = {"trunk": jnp.ones((1, 3)), "head": jnp.ones((3, 1)) / 3.0}
        >>> network = pb.from_params(
        ...     weights, lambda p, x: x @ p["trunk"] @ p["head"], pretrained=True
        ... )
        >>> model = pb.partial_bnn(network, "head", pb.gaussian(), freeze="**")
        >>> x = jnp.linspace(-1.0, 1.0, 8)[:, None]
        >>> start = pb.training.pretrained_posterior(model)
        >>> laplace = pb.samplers.laplace(num_particles=10)
        >>> posterior, report = pb.training.second_stage(laplace, model, start, (x, x))
    """
    return at_weights(model)


def departure(
    model: Model, posterior: Posterior, train: Batch | None, held_out: Batch | None
) -> Departure | None:
    """Compare a posterior with the pretrained network; return None if there is none."""
    rows = held_out if held_out is not None else train
    if not model.pretrained or rows is None:
        return None
    if held_out is None:
        inputs, targets, mask = jax.tree.map(lambda leaf: leaf[:_ROWS], rows[:3])
        rows = Batch(inputs, targets, mask, rows.scale)
    before, after = (score(model, one, rows) for one in (at_weights(model), posterior))
    return compare(model, before, after, rows, held_out=held_out is not None)


def compare(model: Model, before: Scored, after: Scored, rows: Batch, *, held_out: bool) -> Departure:
    """Compare two posteriors by their scores of the same rows."""
    counted = np.asarray(rows.mask)
    difference = (before[0] - after[0])[counted]
    count = max(len(difference), 1)
    return Departure(
        nlpd_before=-float(before[0][counted].mean()),
        nlpd_after=-float(after[0][counted].mean()),
        standard_error=float(difference.std() / math.sqrt(count)),
        distance=_distance(model, before[1], after[1], counted),
        held_out=held_out,
    )


def score(model: Model, posterior: Posterior, rows: Batch) -> Scored:
    """Return the log-density of each row, and the moments of its prediction."""
    size = rows_to_score(model, posterior.particles, rows.mask.shape[0])
    chunks = model.chunks._replace(rows=size)
    log_densities = mixture.log_density(model, posterior, rows, chunks)
    return np.asarray(log_densities), mixture.moments(model, posterior, rows.inputs, chunks)


def _distance(
    model: Model, before: mixture.MixtureMoments, after: mixture.MixtureMoments, counted: np.ndarray
) -> float:
    shift = np.asarray(after.mean - before.mean)[counted]
    if model.likelihood.is_classification:
        shift = np.abs(shift)
        return float(shift.mean() if shift.ndim < 2 else 0.5 * shift.sum(axis=-1).mean())
    variance = np.asarray(after.aleatoric_variance + after.epistemic_variance)[counted]
    return float(np.sqrt(np.mean(np.square(shift) / np.maximum(variance, np.finfo(float).tiny))))


def warn_of_departure(found: Departure | None) -> None:
    """Warn if the pretrained network predicted better."""
    if found is None or not found.is_worse:
        return
    warn(worse(found), DepartureWarning)


def worse(found: Departure) -> str:
    """Describe a result that is worse than the pretrained network."""
    rows = "the validation data" if found.held_out else "the training data"
    return (
        f"the result predicts worse than the pretrained network: NLPD {found.nlpd_after:.4g} on {rows}, "
        f"and {found.nlpd_before:.4g} before. Sample at the trained weights instead, "
        "two_stage(model, samplers.nuts()) or bayesianize; or use a narrower prior "
        "(priors.centered_on(network, scale)), smaller moves of the kernel, more epochs, a smaller "
        'learning rate or freeze="**".'
    )

"""Choose the scale of the prior of ψ by rows that were not trained on.

Several scales are tried, each trained to the end of its schedule. The one with the best held-out density
is chosen, after `calibrate` has corrected its noise: noise that is learned with the weights shrinks
with the residuals of the rows they were trained on. No step of a run is chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from partialbayes._engine.settings import Run
from partialbayes._utils.checks import require_positive, require_positive_int
from partialbayes.algorithms import weight_prior
from partialbayes.model._batch import as_batch
from partialbayes.model._partial_bnn import noise_of
from partialbayes.prediction import _mixture as mixture
from partialbayes.prediction._calibrate import calibrate
from partialbayes.results import Fit
from partialbayes.training._fit_many import fit_many
from partialbayes.types import Algorithm, Model, Seed


class PriorFit(NamedTuple):
    """The result of `fit_with_prior`.

    Attributes:
        model: The model, with `likelihoods.calibrated` around its likelihood.
        fit: The run with the chosen prior, its spread corrected on the held-out rows; for ``model``.
        scale: The chosen scale.
        held_out_nlpd: The score of each scale, at the end of its run.
    """

    model: Model
    fit: Fit
    scale: float
    held_out_nlpd: Float[np.ndarray, " scale"]


def fit_with_prior(
    build: Callable[[optax.GradientTransformation], Algorithm],
    data: Any,
    held_out: Any,
    *,
    epochs: int,
    optimizer: optax.GradientTransformation,
    scales: Sequence[float] = (0.3, 1.0, 3.0, 10.0, 30.0),
    batch_size: int | None = None,
    key: Seed = 0,
    progress: bool = True,
) -> PriorFit:
    """Train with priors of ψ of several scales at once, each to the end, and keep the best.

    The score of a scale is that of the end of its run, calibrated on the held-out rows; no step of a run
    is chosen. The learning rate should therefore decay to zero over the run.

    Args:
        build: A function from an optimizer to the method, such as ``lambda optimizer: ohsmc(model,
            optimizer=optimizer)``; the optimizer it gets begins with `weight_prior`.
        data: A pair ``(inputs, targets)``.
        held_out: A pair like ``data``, to choose by.
        epochs: Number of passes through the data.
        optimizer: Any Optax transformation.
        scales: The scales of `weight_prior` to try. They are trained in one program.
        batch_size: M, rows per step; all rows by default.
        key: A ``jax.random.key``, or an integer to make one from; all scales use the same.
        progress: Whether to show a progress bar.

    Returns:
        The calibrated model, its fit, the chosen scale, and the score of each scale.

    Example:
        >>> import jax.numpy as jnp, optax, partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 5, 1]), "layers/1/*", pb.gaussian(pb.learned(0.1)))
        >>> x = jnp.linspace(-1.0, 1.0, 8)[:, None]
        >>> found = pb.training.fit_with_prior(
        ...     lambda optimizer: pb.map_estimate(model, optimizer=optimizer),
        ...     (x, jnp.sin(x)), (x + 0.1, jnp.sin(x + 0.1)),
        ...     epochs=20, optimizer=optax.adam(0.01), scales=(0.3, 1.0), progress=False,
        ... )
        >>> found.scale in (0.3, 1.0)
        True
    """
    require_positive_int("the number of scales", len(scales), "for example scales=(0.3, 1.0, 3.0).")
    require_positive("scales", np.asarray(scales, float))
    model = build(optimizer).model
    batch = as_batch(model, held_out, "held_out")

    def with_scale(scale: Array) -> Algorithm:
        return build(optax.chain(weight_prior(model, scale), optimizer))

    several = jnp.asarray(scales, jnp.result_type(float))
    keys = jax.random.key(int(key)) if isinstance(key, int | np.integer) else key
    same = jnp.broadcast_to(keys, (len(scales),))
    runs = fit_many(
        with_scale,
        data,
        epochs=epochs,
        hyperparameters=several,
        batch_size=batch_size,
        key=same,
        run=Run(progress=progress),
    )
    ends = [calibrate(model, run.posterior, batch) for run in runs]
    scores = [-float(mixture.log_density(*end, batch, model.chunks).mean()) for end in ends]
    best = int(np.nanargmin(scores))
    chosen, posterior = ends[best]
    fitted = runs[best]._replace(posterior=posterior, noise=noise_of(chosen, posterior))
    return PriorFit(chosen, fitted, float(scales[best]), np.asarray(scores))

"""Predict with a trained model: p(y | x) = Σ_j w_j p(y | x, φ_j; ψ)."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, PyTree

from partialbayes._utils.checks import (
    as_float_arrays,
    num_rows,
    require_finite,
    require_instance,
    require_numeric,
    require_positive,
)
from partialbayes._utils.forks import require_not_forked
from partialbayes.model._batch import as_batch
from partialbayes.model._partial_bnn import require_chunks
from partialbayes.parallel._mesh import as_mesh
from partialbayes.parallel._sharding import DATA, num_parts, put_on_mesh, shard_rows
from partialbayes.prediction import _mixture as mixture
from partialbayes.prediction._mixture import rows_to_score
from partialbayes.prediction._predictive import Predictive, rows_to_compute
from partialbayes.prediction._target_scale import TargetScale
from partialbayes.results import Fit
from partialbayes.types import Chunks, Model, Posterior


def predict(
    model: Model,
    posterior: Posterior | Fit,
    inputs: PyTree,
    *,
    target_scale: TargetScale | None = None,
    chunks: Chunks | None = None,
    mesh: Mesh | None = None,
) -> Predictive:
    """Predict new targets by the mixture p(y | x) = Σ_j w_j p(y | x, φ_j; ψ).

    Args:
        model: The trained model.
        posterior: The result of `fit`, or its posterior.
        inputs: New inputs, one row per example.
        target_scale: The scaling of the training targets; predictions are then in the original units.
        chunks: Numbers of rows and particles (of each member of an ensemble) to compute at a time. None
            entries default to the chunks of the model (`with_chunks`), or to sizes that are fast.
        mesh: Devices over which to divide the work, from `parallel.mesh`: particles over its axis
            ``particle`` and rows over ``data``, where they divide evenly. Divided rows are all computed
            at once, unless ``chunks.rows`` is set.

    Returns:
        The predictive mixture, with mean, variance, quantiles, densities, samples and class
        probabilities, each computed when it is first used.

    Example:
        >>> import jax, jax.numpy as jnp, partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 5, 1]), "layers/0/*", pb.gaussian())
        >>> x = jnp.linspace(-1.0, 1.0, 8)[:, None]
        >>> trained = pb.fit(pb.ohsmc(model, num_particles=10), (x, x), epochs=2)
        >>> predictive = pb.predict(model, trained, x)
        >>> predictive.mean.shape
        (8,)
    """
    require_not_forked()
    require_instance("model", model, Model, "predict(model, trained, inputs).")
    posterior = as_posterior(posterior)
    rows = num_rows("inputs", inputs)
    require_numeric("inputs", inputs)
    require_finite("inputs", inputs, "drop those rows or impute them before predicting.")
    mesh = as_mesh(mesh)
    chunks = Chunks() if chunks is None else chunks
    _require_chunks(chunks)
    if chunks.rows is None and num_parts(mesh, DATA) > 1:
        chunks = chunks._replace(rows=rows)
    if target_scale is not None:
        require_positive("target_scale.scale", target_scale.scale)
        if not np.isfinite(np.asarray(target_scale.shift, float)).all():
            raise ValueError(f"target_scale.shift must be finite, not {target_scale.shift!r}.")
        if model.likelihood.kind != "real":
            raise ValueError(
                "target_scale is for real-valued targets; pass None for classes and counts."
            )
    arrays = shard_rows(mesh, as_float_arrays(inputs))
    # By the rows that are computed: then few rows run the program of many, to the same bits.
    chunks = _fill_in(chunks, model, posterior, rows_to_compute(arrays) if mesh is None else rows)
    posterior = put_on_mesh(mesh, posterior)
    return Predictive(model, posterior, arrays, target_scale, chunks)


def log_predictive_density(
    model: Model, posterior: Posterior | Fit, data: Any, *, chunks: Chunks | None = None
) -> Float[Array, " example"]:
    """Compute log Σ_j w_j p(y_i | x_i, φ_j; ψ) for each row of data.

    Args:
        model: The trained model.
        posterior: The result of `fit`, or its posterior.
        data: A pair ``(inputs, targets)``.
        chunks: Numbers of rows and particles (of each member of an ensemble) to compute at a time. None
            entries default to the chunks of the model (`with_chunks`), or to sizes that are fast.

    Returns:
        The log-density of each row, in nats.

    Example:
        >>> import partialbayes as pb  # model, trained and x as in the example of predict
        >>> pb.prediction.log_predictive_density(model, trained, (x, x)).shape
        (8,)
    """
    posterior = as_posterior(posterior)
    batch = as_batch(model, data, "data")
    rows = batch.mask.shape[0]
    chunks = _fill_in(Chunks() if chunks is None else chunks, model, posterior, rows)
    return mixture.log_density(model, posterior, batch, chunks)


def as_posterior(found: Posterior | Fit) -> Posterior:
    """Return the posterior of a `Fit`, or a posterior itself."""
    if isinstance(found, Fit):
        return found.posterior
    require_instance("posterior", found, Posterior, "pass what fit returned.")
    return found


def _require_chunks(chunks: Chunks) -> None:
    require_instance("chunks", chunks, Chunks, "for example chunks=Chunks(particles=50, rows=1000).")
    require_chunks(chunks)


def _fill_in(chunks: Chunks, model: Model, posterior: Posterior, rows: int) -> Chunks:
    """Replace None in chunks by the chunks of the model, or by sizes that are fast."""
    _require_chunks(chunks)
    return Chunks(
        model.chunks.particles if chunks.particles is None else chunks.particles,
        rows_to_score(model, posterior.particles, rows) if chunks.rows is None else chunks.rows,
    )

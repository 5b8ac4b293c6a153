"""Prediction with a trained model: the mixture at new inputs, and densities of whole data sets."""

from __future__ import annotations

from typing import Any

from jax.sharding import Mesh
from jaxtyping import Array, Float, PyTree

from partialbayes._utils.checks import (
    as_float_arrays,
    num_rows,
    require_count,
    require_finite,
    require_numbers,
    require_positive,
)
from partialbayes.model._batch import checked
from partialbayes.parallel._mesh import checked_mesh
from partialbayes.parallel._sharding import DATA, parts_of, placed, rows_placed
from partialbayes.prediction import _mixture as mixture
from partialbayes.prediction._mixture import rows_to_score
from partialbayes.prediction._predictive import Predictive
from partialbayes.prediction._target_scale import TargetScale
from partialbayes.types import Model, Posterior


def predict(
    model: Model,
    posterior: Posterior,
    inputs: PyTree,
    *,
    target_scale: TargetScale | None = None,
    data_chunk: int | None = None,
    particle_chunk: int | None = None,
    mesh: Mesh | None = None,
) -> Predictive:
    """What new targets may be: p(y | x) = Σ_j w_j p(y | x, φ_j; ψ).

    Args:
        model: The model that was trained.
        posterior: From `fit`.
        inputs: New inputs, one row per example.
        target_scale: How the training targets were scaled, so that everything comes back in their
            original units.
        data_chunk: Rows at a time; the model's (`in_chunks`), or as many as run fast, by default.
        particle_chunk: Particles at a time, of every member of an ensemble; the model's, or all, by
            default.
        mesh: Devices to divide the work over, as `parallel.mesh` makes them: the particles over its axis
            ``particle`` and the rows over ``data``, each where it divides their number. Rows that are
            divided are all taken at once, unless ``data_chunk`` is given.

    Returns:
        The predictive mixture, with mean, variance and its parts, quantiles, densities, samples and
        class probabilities, each computed when it is asked for.

    Raises:
        ValueError: ``inputs`` are not numbers, not finite or have no rows; or ``target_scale`` is
            given for classes or counts.

    Example:
        >>> import jax, jax.numpy as jnp, partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 5, 1]), "layers/0/*", pb.gaussian())
        >>> x = jnp.linspace(-1.0, 1.0, 8)[:, None]
        >>> trained = pb.fit(pb.ohsmc(model, num_particles=10), (x, x), epochs=2, progress=False)
        >>> pb.predict(model, trained.posterior, x).mean.shape
        (8,)
    """
    rows = num_rows("inputs", inputs)
    require_numbers("inputs", inputs)
    require_finite("inputs", inputs, "drop those rows or fill the gaps before predicting.")
    mesh = checked_mesh(mesh)
    if data_chunk is None and parts_of(mesh, DATA) > 1:
        data_chunk = rows
    data_chunk, particle_chunk = _chunks(model, posterior, rows, data_chunk, particle_chunk)
    if target_scale is not None:
        require_positive("target_scale.scale", target_scale.scale)
        if model.likelihood.probabilities is not None or model.likelihood.counts:
            raise ValueError(
                "target_scale is for real-valued targets; classes and counts have no units."
            )
    arrays = rows_placed(mesh, as_float_arrays(inputs))
    posterior = placed(mesh, posterior)
    return Predictive(model, posterior, arrays, target_scale, data_chunk, particle_chunk)


def log_predictive_density(
    model: Model,
    posterior: Posterior,
    data: Any,
    *,
    data_chunk: int | None = None,
    particle_chunk: int | None = None,
) -> Float[Array, " example"]:
    """Log Σ_j w_j p(y_i | x_i, φ_j; ψ) for each row: the `log_density` of `predict`.

    Args:
        model: The model that was trained.
        posterior: From `fit`.
        data: A pair ``(inputs, targets)``.
        data_chunk: Rows at a time; the model's (`in_chunks`), or as many as run fast, by default.
        particle_chunk: Particles at a time, of every member of an ensemble; the model's, or all, by
            default.

    Raises:
        ValueError: The data do not fit the network or the likelihood.

    Example:
        >>> import jax.numpy as jnp, partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 5, 1]), "layers/0/*", pb.gaussian())
        >>> x = jnp.linspace(-1.0, 1.0, 8)[:, None]
        >>> trained = pb.fit(pb.map_estimate(model), (x, x), epochs=2, progress=False)
        >>> pb.log_predictive_density(model, trained.posterior, (x, x)).shape
        (8,)
    """
    batch = checked(model, data, "data")
    rows = batch.mask.shape[0]
    data_chunk, particle_chunk = _chunks(model, posterior, rows, data_chunk, particle_chunk)
    return mixture.log_density(model, posterior, batch, data_chunk, particle_chunk)


def _chunks(
    model: Model, posterior: Posterior, rows: int, data_chunk: int | None, particle_chunk: int | None
) -> tuple[int, int | None]:
    """The chunks asked for; those of the model, or such as run fast, where nothing is."""
    for name, chunk in (("data_chunk", data_chunk), ("particle_chunk", particle_chunk)):
        if chunk is not None:
            require_count(name, chunk, "or None for the model's own.")
    return (
        rows_to_score(model, posterior.particles, rows) if data_chunk is None else data_chunk,
        model.chunks.particles if particle_chunk is None else particle_chunk,
    )

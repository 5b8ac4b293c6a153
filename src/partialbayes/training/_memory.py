"""Divide training into the largest chunks that fit a memory budget."""

from __future__ import annotations

import logging
from typing import Any

import jax
import jax.numpy as jnp

from partialbayes._engine.epochs import num_batches, take
from partialbayes._utils.checks import require_instance, require_positive, require_positive_int
from partialbayes.feynman_kac._gradients import one_pass
from partialbayes.model._batch import as_batch
from partialbayes.model._partial_bnn import with_chunks
from partialbayes.types import Batch, Model, Psi

logger = logging.getLogger(__name__)


def with_memory_budget(
    model: Model, data: Any, *, gigabytes: float, num_particles: int, batch_size: int | None = None
) -> Model:
    """Return the model with the largest chunks that keep a training step within a memory budget.

    The compiler reports what a step would need, for smaller and smaller chunks; no step is run. The
    budget is for what a step holds at once, besides the data and the Python process. Validation
    and prediction take as many rows at a time as a step.

    Args:
        model: The model.
        data: The pair ``(inputs, targets)`` to train on.
        gigabytes: The budget, in 10⁹ bytes.
        num_particles: J.
        batch_size: M, as it will be passed to `fit`.

    Returns:
        The model, with its chunks set.

    Raises:
        ValueError: Even one particle on one row does not fit.

    Example:
        >>> import jax.numpy as jnp, partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 5, 1]), "layers/0/*", pb.gaussian())
        >>> x = jnp.linspace(-1.0, 1.0, 8)[:, None]
        >>> model = pb.training.with_memory_budget(model, (x, x), gigabytes=1.0, num_particles=100)
        >>> model.chunks.particles is None  # everything fits
        True
    """
    require_instance("model", model, Model, "for example partial_bnn(network, stochastic, likelihood).")
    require_positive("gigabytes", gigabytes)
    require_positive_int("num_particles", num_particles, "for example num_particles=1000.")
    train = as_batch(model, data, "data")
    rows = train.mask.shape[0]
    batches = num_batches(rows, batch_size)

    def first(train: Batch) -> Batch:
        order = jnp.arange(rows, dtype=jnp.int32)
        return take(train, order, jnp.zeros((), jnp.int32), batches)

    batch = jax.eval_shape(first, train)
    budget = gigabytes * 1e9
    particles, rows_at_once = num_particles, batch.mask.shape[0]
    while True:
        chunked = with_chunks(
            model, particles=particles if particles < num_particles else None, rows=rows_at_once
        )
        needed = bytes_of_a_step(chunked, num_particles, batch)
        logger.info("%d particles, %d rows: %.2f GB", particles, rows_at_once, needed / 1e9)
        if needed <= budget:
            return chunked
        if particles > 1:
            particles = max(1, min(particles // 2, int(0.9 * particles * budget / needed)))
        elif rows_at_once > 1:
            rows_at_once = max(1, rows_at_once // 2)
        else:
            raise ValueError(
                f"gigabytes is {gigabytes}, but a step of {num_particles} particles needs "
                f"{needed / 1e9:.3g} GB with one particle and one row at a time; use fewer particles, "
                "fewer stochastic weights, or more memory."
            )


def bytes_of_a_step(model: Model, num_particles: int, batch: Any) -> int:
    """Return the bytes the compiler reserves for the weights and gradient of a batch, with particles.

    Args:
        model: The model.
        num_particles: J.
        batch: A batch, or its shapes.

    Returns:
        The number of bytes.
    """

    def step(values: jax.Array, psi: Psi, batch: Batch) -> tuple[jax.Array, Psi]:
        log_likelihoods, gradient = one_pass(model, values, psi, batch)
        return log_likelihoods, gradient(jax.nn.softmax(log_likelihoods))

    params = jax.eval_shape(model.init, jax.random.key(0))
    values = jax.eval_shape(lambda: jnp.zeros((num_particles, model.split.dim), params.phi.dtype))
    memory: Any = jax.jit(step).lower(values, params.psi, batch).compile().memory_analysis()
    # The particles before and after a move, and those kept as the best so far.
    copies = 3 * values.size * values.dtype.itemsize
    return int(memory.temp_size_in_bytes + memory.output_size_in_bytes + copies)

"""The one driver: it trains any `Algorithm`, scores it as it goes, and keeps the best.

The work is done by the compiled loop of `loop`, piece by piece (`driver`); between pieces the host
looks in: progress, failures, checkpoints, callbacks, Ctrl-C.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from partialbayes._engine import compiled as loop
from partialbayes._engine.checkpoints import Checkpoints, RunCheckpoint
from partialbayes._engine.epochs import num_batches, permutation
from partialbayes._engine.host import drive
from partialbayes._engine.sources import source_of
from partialbayes._utils.checks import as_key, require_instance, require_positive_int
from partialbayes.callbacks import Callback, Progress
from partialbayes.errors import TrainingDivergedError
from partialbayes.model._batch import as_batch, full_batch
from partialbayes.model._partial_bnn import noise_of
from partialbayes.parallel._hosts import gather_to_host
from partialbayes.parallel._mesh import as_mesh, require_divisible
from partialbayes.parallel._sharding import put_on_mesh, use_mesh
from partialbayes.training._diagnostics import remedy, warn_of_collapse
from partialbayes.training._second_stage import raise_if_stalled
from partialbayes.types import Algorithm, Batch, Fit, History, Model, Posterior, PRNGKey, Seed


def fit(
    algorithm: Algorithm,
    data: Any,
    *,
    epochs: int,
    batch_size: int | None = None,
    validation: Any = None,
    evaluate_every: int | None = None,
    key: Seed = 0,
    progress: bool = True,
    checkpoint: Checkpoints | str | Path | None = None,
    resume: bool = False,
    callbacks: Sequence[Callback] = (),
    validation_rows: int | None = None,
    validation_particles: int | None = None,
    patience: int | None = None,
    mesh: Mesh | None = None,
) -> Fit:
    """Train.

    Ctrl-C ends a run cleanly: the piece at hand is finished and what `fit` would have returned at
    that point is returned.

    Args:
        algorithm: The method, such as ``ohsmc(model)``.
        data: A pair ``(inputs, targets)``, one row per example; or a `data_source`, for data larger
            than memory; or a `Batch`, whose mask says which rows count, so that data sets of
            several sizes share one compiled program.
        epochs: How often to go through the data.
        batch_size: M, rows per step; all of them by default. Where M does not divide N the
            batches are made equal in size, to within one row, and no larger than M.
        validation: A pair like ``data``. The posterior returned is the one with the lowest
            negative log predictive density (NLPD) of the predictive mixture on it; without it,
            the last.
        evaluate_every: Score every so many steps; once an epoch by default.
        key: A ``jax.random.key`` or a whole number to make one from.
        progress: Whether to show a progress bar.
        checkpoint: Where to save the run, once a minute; `Checkpoints` says it more exactly.
        resume: Whether to go on from the checkpoint, where there is one, to the same bits as if
            the run had never stopped.
        callbacks: Called after each piece of the run with a `Progress`; see `csv_log`.
        validation_rows: How many rows of the validation data to score, drawn once for the run; all
            by default. Fewer make scoring cheaper and the choice of the best posterior noisier.
        validation_particles: How many particles to score, drawn by weight each time; all by default.
        patience: Stop early, after so many evaluations without a better one; never by default.
        mesh: Devices to divide the run over, as `parallel.mesh` makes them: particles over its axis
            ``particle``, which must divide their number, the rows of each batch over ``data``, made up
            by rows that do not count. The result is that of one device, up to the order of sums.

    Returns:
        The posterior and the history.

    Raises:
        TrainingDivergedError: The loss became NaN or infinite, or no evaluation gave a finite
            score. It carries the best posterior so far.
        StalledError: A tempered second stage did not get to the posterior. It carries the fit of
            the first.
        CheckpointError: The checkpoint could not be written, or is not of this run.

    Example:
        >>> import jax.numpy as jnp, partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 5, 1]), "layers/0/*", pb.gaussian())
        >>> x = jnp.linspace(-1.0, 1.0, 8)[:, None]
        >>> trained = pb.fit(
        ...     pb.ohsmc(model, num_particles=10), (x, x), epochs=3, batch_size=4, progress=False
        ... )
        >>> trained.history.metrics["ess"].shape
        (6,)
    """
    require_instance("algorithm", algorithm, Algorithm, "for example ohsmc(model).")
    mesh = as_mesh(mesh)
    require_divisible(mesh, algorithm)
    source = source_of(algorithm, data, batch_size, mesh)
    held_out = None if validation is None else as_batch(algorithm.model, validation, "validation")
    plan = make_plan(
        source.num_rows, epochs, source.batch_size, evaluate_every, validation_particles, patience
    )
    require_validation(patience, held_out)
    key = as_key(key)
    if validation_rows is not None:
        held_out = _subset(key, held_out, validation_rows)
    record = RunCheckpoint.of(checkpoint, plan, key, source.whole, held_out)
    carry, done = record.restore(source.start(plan, key), resume)
    carry = put_on_mesh(mesh, carry)
    advance = partial(source.advance, plan, key, held_out)

    warned = False

    def look(carry: loop.Carry, begin: int, end: int) -> str:
        nonlocal warned
        if (bad_step := int(carry.bad_step)) > 0:
            has_best = int(carry.best_step) > 0
            kept = (
                result(algorithm.model, plan, carry, bad_step - 1, held_out is not None)
                if has_best
                else None
            )
            raise TrainingDivergedError(bad_step, kept, remedy(carry.infos, bad_step - 1))
        warned = warned or warn_of_collapse(carry.infos, end, carry.best.particles)
        for callback in callbacks:
            current = partial(algorithm.posterior, carry.state)
            callback(_progress(plan, carry, begin, end, held_out is not None, current))
        return "" if held_out is None else f"best validation NLPD {float(carry.best_score):.4f}"

    stops = [callback.next_stop for callback in callbacks if hasattr(callback, "next_stop")]
    carry, done = drive(advance, look, plan, carry, done, record, progress, stops)
    end = plan.end(carry)
    finished, done = done >= end, min(done, end)
    if int(carry.best_step) == 0:
        if finished:
            raise TrainingDivergedError(
                done,
                None,
                "Check the validation data and the scale of inputs and targets, or use a smaller "
                "learning rate.",
                "no evaluation gave a finite score, so there is no best posterior: the validation NLPD, "
                "or without validation data the posterior, was NaN or infinite every time.",
            )
        carry = carry._replace(best=algorithm.posterior(carry.state))  # stopped before the first
    trained = result(algorithm.model, plan, carry, done, held_out is not None)._replace(
        interrupted=not finished
    )
    if algorithm.finish is None or source.whole is None or not finished:
        return trained
    with use_mesh(mesh):
        found = loop.compiled_finish(algorithm, key, trained.posterior, source.whole)
    posterior, reports = gather_to_host(found)
    for report in reports:
        raise_if_stalled(report, trained)
    return trained._replace(
        posterior=posterior, noise=noise_of(algorithm.model, posterior), reports=reports
    )


def make_plan(
    rows: int,
    epochs: int,
    batch_size: int | None,
    evaluate_every: int | None,
    validation_particles: int | None = None,
    patience: int | None = None,
) -> loop.Plan:
    """The plan of a run, after checks of its numbers."""
    require_positive_int("epochs", epochs, "for example epochs=100.")
    batches = num_batches(rows, batch_size)
    if evaluate_every is None:
        evaluate_every = batches
    require_positive_int("evaluate_every", evaluate_every, "a number of steps.")
    if validation_particles is not None:
        require_positive_int("validation_particles", validation_particles, "or None for all of them.")
    if patience is not None:
        require_positive_int(
            "patience", patience, "a number of evaluations, or None to go on to the end."
        )
    return loop.Plan(batches, epochs * batches, evaluate_every, validation_particles, patience)


def require_validation(patience: int | None, validation: Batch | None) -> None:
    """Refuse patience where nothing could run out of it."""
    if patience is not None and validation is None:
        raise ValueError("patience needs validation=, the data to stop early by.")


def _subset(key: PRNGKey, validation: Batch | None, rows: int) -> Batch:
    """So many rows of the validation data, drawn without replacement."""
    if validation is None:
        raise ValueError("validation_rows needs validation=, the data to draw the rows from.")
    there = validation.mask.shape[0]
    require_positive_int("validation_rows", rows, f"there are {there} rows of validation data.")
    if rows > there:
        raise ValueError(f"validation_rows is {rows}, but validation has only {there} rows.")
    chosen = permutation(jax.random.fold_in(key, 5), validation.mask)[:rows]
    return full_batch(*jax.tree.map(lambda leaf: leaf[chosen], (validation.inputs, validation.targets)))


def _progress(
    plan: loop.Plan,
    carry: loop.Carry,
    begin: int,
    end: int,
    has_validation: bool,
    current: Callable[[], Posterior],
) -> Progress:
    # Copies: the loop goes on in the same memory.
    infos = {name: np.array(values)[begin:end] for name, values in carry.infos.items()}
    scores: dict[int, float] = {}
    if has_validation:
        pairs = zip(plan.eval_steps().tolist(), np.array(carry.scores).tolist(), strict=True)
        scores = {step: score for step, score in pairs if begin < step <= end}
    return Progress(begin, plan.num_steps, infos, scores, int(carry.best_step), carry.best, current)


def result(
    model: Model, plan: loop.Plan, carry: loop.Carry, num_steps: int, has_validation: bool
) -> Fit:
    """What `fit` returns after ``num_steps`` steps."""
    eval_steps = plan.eval_steps()
    eval_steps = eval_steps[eval_steps <= num_steps]
    scores = np.asarray(carry.scores)[: len(eval_steps)] if has_validation else np.zeros(0)
    history = History(
        metrics={name: np.asarray(values)[:num_steps] for name, values in carry.infos.items()},
        eval_steps=eval_steps,
        validation_nlpd=scores,
        best_step=int(carry.best_step),
    )
    posterior = gather_to_host(carry.best)
    return Fit(posterior, history, noise_of(model, posterior))

"""Train one run: check the arguments, start the engine, return its result."""

from __future__ import annotations

from typing import Any

from partialbayes._engine.compiled import Program
from partialbayes._engine.departure import departure, warn_of_departure
from partialbayes._engine.diagnostics import require_rows
from partialbayes._engine.host import Trained, train
from partialbayes._engine.interrupts import Interrupts
from partialbayes._engine.job import Job, end_of, last_step, result
from partialbayes._engine.settings import Run, as_run, as_validation, choose_rows, make_plan
from partialbayes._engine.sources import source_of
from partialbayes._engine.streams import salt
from partialbayes._utils.checks import as_key, require_instance
from partialbayes._utils.compat import is_tracing
from partialbayes.errors import TrainingDivergedError, TrainingInterrupted
from partialbayes.model._batch import as_batch
from partialbayes.model._partial_bnn import noise_of
from partialbayes.parallel._mesh import require_divisible
from partialbayes.results import End, Fit
from partialbayes.training._second_stage import judge
from partialbayes.types import Algorithm, Seed


def fit(
    algorithm: Algorithm,
    data: Any,
    *,
    epochs: int,
    batch_size: int | None = None,
    validation: Any = None,
    key: Seed = 0,
    run: Run | None = None,
) -> Fit:
    """Train a model by an algorithm.

    Args:
        algorithm: The method, such as ``ohsmc(model)``.
        data: A pair ``(inputs, targets)``, one row per example; or a `data_source`, for data larger
            than memory; or a `Batch`, whose mask marks the rows that count, so that data sets of
            several sizes share one compiled program.
        epochs: Number of passes through the data.
        batch_size: M, rows per step; all rows by default. If M does not divide N, the batches have
            equal sizes, to within one row, and no more than M rows.
        validation: A pair like ``data``, or a `Validation`, which also sets how often to score and when
            to stop. The posterior with the lowest negative log predictive density on these data is
            returned; without validation, the last.
        key: A ``jax.random.key``, or an integer to make one from.
        run: A `Run`: checkpoints, callbacks, the progress bar, devices, Ctrl-C, and when a run without
            validation has converged.

    Returns:
        The posterior and the history.

    Raises:
        TrainingDivergedError: The loss became NaN or infinite, or no evaluation gave a finite
            score. It carries the best posterior so far.
        TrainingInterrupted: Ctrl-C was pressed. It is a `KeyboardInterrupt` and carries the fit so far.
        StalledError: A tempered second stage did not reach the posterior. It carries the fit of
            the first.
        CheckpointError: The checkpoint could not be written, or is of a different run.
        TypeError: The function is called inside ``jax.jit``, ``jax.vmap`` or another transformation.

    Example:
        >>> import jax.numpy as jnp, partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 5, 1]), "layers/0/*", pb.gaussian())
        >>> x = jnp.linspace(-1.0, 1.0, 8)[:, None]
        >>> trained = pb.fit(pb.ohsmc(model, num_particles=10), (x, x), epochs=3, batch_size=4)
        >>> trained.history.metrics["loss"].shape
        (6,)
    """
    require_no_transformation("fit")
    require_instance("algorithm", algorithm, Algorithm, "for example ohsmc(model).")
    checked, run = as_validation(validation), as_run(run)
    with Interrupts() as interrupts:
        with interrupts.computing():
            require_divisible(run.mesh, algorithm)
            job = _job(algorithm, data, epochs, batch_size, checked, key, run)
        trained = train(job, run, interrupts)
        fitted = _result(job, trained)
        if fitted.end != "interrupt" and algorithm.finish is not None:
            with interrupts.computing():
                posterior, reports = job.finish(fitted.posterior)
            for report in reports:
                judge(report, fitted)
            noise = noise_of(algorithm.model, posterior)
            fitted = fitted._replace(posterior=posterior, noise=noise, reports=reports)
            if interrupts.noted:
                fitted = fitted._replace(end="interrupt")
        with interrupts.computing():
            fitted = _compared(job, fitted)
    if fitted.end == "interrupt" and run.on_interrupt == "raise":
        raise TrainingInterrupted(trained.done, job.plan.num_steps, fitted)
    return fitted


def _compared(job: Job, trained: Fit) -> Fit:
    """Add the comparison with a pretrained network to the history, and warn if the result is worse."""
    found = departure(job.algorithm.model, trained.posterior, job.source.whole, job.validation)
    warn_of_departure(found)
    return trained._replace(history=trained.history._replace(departure=found))


def require_no_transformation(name: str) -> None:
    """Raise an error inside a transformation, where the host could not stop, report or save.

    Raises:
        TypeError: A transformation is tracing.
    """
    if is_tracing():
        raise TypeError(
            f"{name} was called inside jax.jit, jax.vmap or another transformation, but it compiles its "
            "own program, and stops, reports and saves on the host. For many runs at once use fit_many, "
            "which maps over keys, data sets and hyperparameters; in your own program call "
            "algorithm.init and algorithm.step."
        )


def _job(
    algorithm: Algorithm,
    data: Any,
    epochs: int,
    batch_size: int | None,
    validation: Any,
    key: Seed,
    run: Run,
) -> Job:
    source = source_of(algorithm.model, data, batch_size, run.mesh)
    require_rows(algorithm, source)
    salted = salt(as_key(key))
    held_out = None
    if validation.data is not None:
        held_out = as_batch(algorithm.model, validation.data, "validation")
        held_out = choose_rows(salted, held_out, validation.rows)
    plan = make_plan(epochs, source.batches, validation, run.until)
    program = Program(algorithm, plan, source.draw)
    return Job(program, algorithm, None, salted, source, held_out, run.mesh)


def _result(job: Job, trained: Trained) -> Fit:
    """Return the `Fit` of the trained run, before any second stage."""
    carry = trained.carry
    done = min(trained.done, last_step(job.plan, carry))
    cut_short = trained.stopped or trained.interrupted
    if cut_short and (carry.best_score is None or int(carry.best_step) == 0):
        # Without scores the best posterior is the last one.
        carry = carry._replace(
            best=job.algorithm.posterior(carry.state), best_step=carry.best_step * 0 + done
        )
    if int(carry.best_step) == 0 and not cut_short:
        raise TrainingDivergedError(
            done,
            None,
            "Check the validation data and the scale of inputs and targets, or use a smaller "
            "learning rate.",
            "no evaluation gave a finite score, so there is no best posterior: the validation NLPD, "
            "or without validation data the posterior, was NaN or infinite every time.",
        )
    end: End = end_of(job.plan, carry)
    if cut_short:
        end = "callback" if trained.stopped else "interrupt"
    return result(job, carry, done)._replace(end=end)

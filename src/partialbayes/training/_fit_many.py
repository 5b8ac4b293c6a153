"""Train many runs in one compiled program: seeds, splits of the data, hyperparameters."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PyTree

from partialbayes._engine.compiled import Build, Program, Runs
from partialbayes._engine.diagnostics import require_rows
from partialbayes._engine.host import Trained, train
from partialbayes._engine.interrupts import Interrupts
from partialbayes._engine.job import Job, end_of, last_step, result
from partialbayes._engine.settings import Run, Validation, as_run, as_validation, choose_rows, make_plan
from partialbayes._engine.sources import Arrays, DataSource, Source, source_of
from partialbayes._engine.streams import salt
from partialbayes._utils.checks import as_key, num_rows, require_positive_int
from partialbayes._utils.warn import warn
from partialbayes.errors import DivergedWarning, StalledWarning, TrainingInterrupted
from partialbayes.model._batch import as_batch
from partialbayes.parallel._sweep import sweep
from partialbayes.results import End, Fit, TemperingReport
from partialbayes.training._fit import require_no_transformation
from partialbayes.types import Algorithm, Batch, Model, PRNGKey, Report


def fit_many(
    build: Algorithm | Build,
    data: Any,
    *,
    epochs: int,
    repeats: int | None = None,
    hyperparameters: PyTree = None,
    batch_size: int | None = None,
    validation: Any = None,
    key: PRNGKey | Key[Array, " run"] | int = 0,
    run: Run | None = None,
    n_jobs: int = 1,
) -> list[Fit]:
    """Train R runs at once, in one program mapped over the runs or in several processes.

    Args:
        build: An algorithm, to be run with R keys; or a function from one row of
            ``hyperparameters`` to an algorithm.
        data: The data of `fit`, which all runs share; or a list of R pairs of equal shapes, one per run.
        epochs: Number of passes through the data.
        repeats: R; not needed if ``data`` or ``hyperparameters`` determine it.
        hyperparameters: A pytree of arrays with a leading axis of length R.
        batch_size: M, rows per step; all rows by default.
        validation: The validation of `fit`, or a list of R pairs, also as the data of a `Validation`.
            Patience and `Run.until` end each run individually; the program continues until the last of
            them has ended.
        key: A ``jax.random.key``, or an integer to make one from; each run folds its own from it. Or an
            array of R keys, so that a run does not depend on the other runs.
        run: The `Run`, with one checkpoint for all runs; callbacks and a mesh are for single runs.
        n_jobs: Number of programs to divide the runs into, each a task of a `sweep`: a local process of
            one thread, or a task on the cluster that joblib is configured for. With several there is no
            progress bar and no checkpoint.

    Returns:
        One `Fit` per run. A run that diverged does not stop the others: its history ends with that
        step, its posterior is the best before, and there is a `DivergedWarning`.

    Raises:
        ValueError: The arguments disagree on the number of runs, none of them determines it, or the data
            do not fit the model.
        CheckpointError: The checkpoint could not be written, or is of different runs.
        TrainingInterrupted: Ctrl-C was pressed. It carries the list of fits so far.
        TypeError: The function is called inside ``jax.jit``, ``jax.vmap`` or another transformation.

    Example:
        >>> import jax.numpy as jnp, partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 5, 1]), "layers/0/*", pb.gaussian())
        >>> x = jnp.linspace(-1.0, 1.0, 8)[:, None]
        >>> def build(variance):
        ...     return pb.ohsmc(model, num_particles=10, kernel=pb.kernels.random_walk(variance))
        >>> variances = jnp.array([0.01, 0.1])
        >>> runs = pb.fit_many(build, (x, x), epochs=2, hyperparameters=variances, validation=(x, x))
        >>> best = min(runs, key=lambda run: run.history.validation_nlpd.min())
    """
    require_no_transformation("fit_many")
    require_positive_int("n_jobs", n_jobs, "for example n_jobs=2.")
    checked, run = as_validation(validation), as_run(run)
    for name in ("callbacks", "mesh"):
        if getattr(run, name):
            raise ValueError(f"{name} of run is for a single run; call fit for each, or leave it out.")
    count = _count(repeats, hyperparameters, data, checked.data, key)
    keys = as_key(key)
    if keys.ndim == 0:
        keys = jax.vmap(partial(jax.random.fold_in, keys))(jnp.arange(count))
    if n_jobs > 1:
        if run.checkpoint is not None:
            raise ValueError(
                "checkpoint is for one program; leave out n_jobs, or checkpoint and resume."
            )
        return _split_runs(
            n_jobs,
            keys,
            build=build,
            data=data,
            validation=checked,
            hyperparameters=hyperparameters,
            epochs=epochs,
            batch_size=batch_size,
            run=run._replace(progress=False),
        )
    with Interrupts() as interrupts:
        with interrupts.computing():
            job = _job(build, data, epochs, batch_size, checked, hyperparameters, keys, run)
        trained = train(job, run, interrupts)
        carry = trained.carry
        reports: tuple[Report, ...] = ()
        end: End | None = None
        if trained.interrupted:
            end = "interrupt"
        elif job.algorithm.finish is not None:
            with interrupts.computing():
                best, reports = job.finish(carry.best)
            carry = carry._replace(best=best)
            if interrupts.noted:
                end = "interrupt"
    _warn_of_failures(trained, reports, count)

    def unstack(index: int) -> Fit:
        own, stages = jax.tree.map(lambda leaf: leaf[index], (carry, reports))
        fitted = result(job, own, min(trained.done, last_step(job.plan, own)))
        return fitted._replace(reports=stages, end=end or end_of(job.plan, own))

    fits = [unstack(index) for index in range(count)]
    if end == "interrupt" and run.on_interrupt == "raise":
        raise TrainingInterrupted(trained.done, job.plan.num_steps, fits)
    return fits


def _job(
    build: Algorithm | Build,
    data: Any,
    epochs: int,
    batch_size: int | None,
    validation: Validation,
    hyperparameters: PyTree,
    keys: Key[Array, " run"],
    run: Run,
) -> Job:
    first = None if hyperparameters is None else jax.tree.map(lambda leaf: leaf[0], hyperparameters)
    one = build if isinstance(build, Algorithm) else build(first)
    source: Source
    if isinstance(data, DataSource):
        source = source_of(one.model, data, batch_size)
    else:
        source = Arrays(_as_batches(one.model, data, "data"), batch_size)
    require_rows(one, source)
    salted = salt(keys)
    held_out, is_listed = None, isinstance(validation.data, list)
    if validation.data is not None:
        held_out = _as_batches(one.model, validation.data, "validation")
        if validation.rows is not None:
            choose = partial(choose_rows, rows=validation.rows)
            held_out = jax.vmap(choose, in_axes=(0, 0 if is_listed else None))(salted, held_out)
            is_listed = True
    plan = make_plan(epochs, source.batches, validation, run.until)
    program = Program(build, plan, source.draw, Runs(isinstance(data, list), is_listed))
    return Job(program, one, hyperparameters, salted, source, held_out)


def _warn_of_failures(trained: Trained, reports: tuple[Report, ...], count: int) -> None:
    diverged = np.flatnonzero(np.asarray(trained.carry.bad_step)).tolist()
    if diverged:
        warn(
            f"{len(diverged)} of {count} runs diverged: {diverged}. Each has the best posterior before "
            "that; try a smaller learning rate, or leave these settings out.",
            DivergedWarning,
        )
    for report in reports:
        if isinstance(report, TemperingReport):
            arrived = np.asarray(report.arrived).reshape(count, -1).all(axis=1)
            stalled = np.flatnonzero(~arrived).tolist()
            if stalled:
                warn(
                    f"the second stage of runs {stalled} stalled before the posterior; allow more steps "
                    "or use more particles.",
                    StalledWarning,
                )


def _split_runs(n_jobs: int, keys: Key[Array, " run"], **arguments: Any) -> list[Fit]:
    """Train the runs in several programs, and return them in their order."""
    count = len(keys)
    ends = np.linspace(0, count, min(n_jobs, count) + 1).astype(int).tolist()
    # Typed keys cannot be sent between processes.
    key_data, key_kind = np.asarray(jax.random.key_data(keys)), jax.random.key_impl(keys)
    work = partial(_part, key_data=key_data, key_kind=key_kind, **arguments)
    done = sorted(sweep(work, list(pairwise(ends)), n_jobs=n_jobs), key=lambda pair: pair[0])
    return [fit for _, fits in done for fit in fits]


def _part(
    ends: tuple[int, int],
    *,
    data: Any,
    validation: Validation,
    hyperparameters: PyTree,
    key_data: np.ndarray,
    key_kind: Any,
    **settings: Any,
) -> list[Fit]:
    """Train some of the runs in one program."""
    own = slice(*ends)
    if isinstance(validation.data, list):
        validation = validation._replace(data=validation.data[own])
    return fit_many(
        data=data[own] if isinstance(data, list) else data,
        validation=None if validation.data is None else validation,
        hyperparameters=jax.tree.map(lambda leaf: leaf[own], hyperparameters),
        key=jax.random.wrap_key_data(jnp.asarray(key_data[own]), impl=key_kind),
        **settings,
    )


def _count(repeats: int | None, hyperparameters: PyTree, data: Any, validation: Any, key: Any) -> int:
    """Return R; all arguments that determine it must agree."""
    found = {}
    if repeats is not None:
        require_positive_int("repeats", repeats, "for example repeats=10.")
        found["repeats"] = repeats
    if jax.tree.leaves(hyperparameters):
        found["hyperparameters"] = num_rows("hyperparameters", hyperparameters)
    for name, pairs in (("data", data), ("validation", validation)):
        if isinstance(pairs, list):
            found[name] = len(pairs)
    if np.ndim(key) == 1:
        found["key"] = len(key)
    if not found:
        raise ValueError("set the number of runs: repeats=, hyperparameters=, or a list of data.")
    if len(set(found.values())) > 1:
        counts = ", ".join(f"{name} has {count}" for name, count in found.items())
        raise ValueError(f"the arguments disagree on the number of runs: {counts}.")
    return int(next(iter(found.values())))


def _as_batches(model: Model, data: Any, name: str) -> Batch:
    if not isinstance(data, list):
        return as_batch(model, data, name)
    runs = [as_batch(model, pair, f"{name} of run {index}") for index, pair in enumerate(data)]
    shapes = {str(jax.tree.map(jnp.shape, run)) for run in runs}
    if len(shapes) > 1:
        raise ValueError(f"{name} must have the same shapes in every run; cut the sets to one size.")
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *runs)

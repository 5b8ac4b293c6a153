"""Many runs as one compiled program: seeds, splits of the data, hyperparameters."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key, PyTree

from partialbayes._engine import compiled as loop
from partialbayes._engine.checkpoints import Checkpoints, RunCheckpoint
from partialbayes._engine.epochs import take
from partialbayes._engine.host import drive
from partialbayes._utils.checks import as_key, num_rows, require_positive_int
from partialbayes.model._batch import as_batch
from partialbayes.parallel._sweep import sweep
from partialbayes.training._fit import make_plan, require_validation, result
from partialbayes.types import Algorithm, Batch, Fit, Model, Posterior, PRNGKey, Report, TemperingReport

logger = logging.getLogger(__name__)

Build: TypeAlias = Callable[[Any], Algorithm]


def fit_many(
    build: Algorithm | Build,
    data: Any,
    *,
    epochs: int,
    repeats: int | None = None,
    hyperparameters: PyTree = None,
    batch_size: int | None = None,
    validation: Any = None,
    evaluate_every: int | None = None,
    key: PRNGKey | Key[Array, " run"] | int = 0,
    progress: bool = True,
    checkpoint: Checkpoints | str | Path | None = None,
    resume: bool = False,
    validation_particles: int | None = None,
    patience: int | None = None,
    n_jobs: int = 1,
) -> list[Fit]:
    """Train R times at once, as one program mapped over the runs; or as several, in as many processes.

    Args:
        build: An algorithm, to be run with R keys; or a function from one row of
            ``hyperparameters`` to an algorithm.
        data: A pair ``(inputs, targets)`` that all runs share, or a list of R pairs of equal
            shapes, one for each run.
        epochs: As in `fit`.
        repeats: R; not needed where ``data`` or ``hyperparameters`` say it.
        hyperparameters: A pytree of arrays with a leading axis of length R.
        batch_size: As in `fit`.
        validation: A pair, or a list of R pairs.
        evaluate_every: As in `fit`.
        key: As in `fit`; each run has its own, folded from it. Or an array of R keys, so that a
            run does not depend on which others it is grouped with.
        progress: Whether to show a progress bar.
        checkpoint: As in `fit`, one file for all the runs.
        resume: As in `fit`.
        validation_particles: As in `fit`.
        patience: As in `fit`, for each run; the program goes on until the last of its runs has ended.
        n_jobs: Into how many programs to divide the runs, each a task of a `sweep`: a local process of
            one thread, or a task of the cluster that joblib was told to use. Several have no
            progress bar and no checkpoint.

    Returns:
        One `Fit` per run. A run that diverged does not stop the others: its history holds NaN
        from that step on, its posterior is the best before, and a warning is logged.

    Raises:
        ValueError: What says how many runs there are disagrees, nothing says it, or the data do
            not fit; as in `fit`.
        CheckpointError: As in `fit`.

    Example:
        >>> import jax.numpy as jnp, partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 5, 1]), "layers/0/*", pb.gaussian())
        >>> x = jnp.linspace(-1.0, 1.0, 8)[:, None]
        >>> def build(variance):
        ...     return pb.ohsmc(model, num_particles=10, kernel=pb.kernels.random_walk(variance))
        >>> variances = jnp.array([0.01, 0.1])
        >>> runs = pb.fit_many(
        ...     build, (x, x), epochs=2, hyperparameters=variances, validation=(x, x), progress=False
        ... )
        >>> best = min(runs, key=lambda run: run.history.validation_nlpd.min())
    """
    count = _count(repeats, hyperparameters, data, validation, key)
    first = None if hyperparameters is None else jax.tree.map(lambda leaf: leaf[0], hyperparameters)
    one = _algorithm(build, first)
    train = _as_batches(one.model, data, "data")
    held_out = None if validation is None else _as_batches(one.model, validation, "validation")
    plan = make_plan(
        train.mask.shape[-1], epochs, batch_size, evaluate_every, validation_particles, patience
    )
    require_validation(patience, held_out)
    key = as_key(key)
    keys = jax.vmap(partial(jax.random.fold_in, key))(jnp.arange(count)) if key.ndim == 0 else key
    require_positive_int("n_jobs", n_jobs, "for example n_jobs=2.")
    if n_jobs > 1:
        if checkpoint is not None or resume:
            raise ValueError("checkpoint is of one program; leave out n_jobs, or checkpoint and resume.")
        return _split_runs(
            n_jobs,
            keys,
            build=build,
            data=data,
            validation=validation,
            hyperparameters=hyperparameters,
            epochs=epochs,
            batch_size=batch_size,
            evaluate_every=evaluate_every,
            validation_particles=validation_particles,
            patience=patience,
        )
    mapped = _Mapped(isinstance(data, list), isinstance(validation, list))

    record = RunCheckpoint.of(checkpoint, plan, key, train, held_out)
    carry = _start(build, plan, mapped, hyperparameters, keys, train)
    carry, done = record.restore(carry, resume)

    def advance(carry: loop.Carry, begin: int, end: int) -> loop.Carry:
        return _run(build, plan, mapped, hyperparameters, carry, keys, train, held_out, begin, end)

    def look(carry: loop.Carry, begin: int, end: int) -> str:
        return f"{count} runs at once"

    carry, done = drive(advance, look, plan, carry, done, record, progress)
    diverged = np.flatnonzero(np.asarray(carry.bad_step))
    if diverged.size:
        logger.warning("%d of %d runs diverged: %s", diverged.size, count, diverged.tolist())
    reports: tuple[Report, ...] = ()
    finished = done >= plan.end(carry)
    if one.finish is not None and finished:
        best, reports = _finish(build, mapped, hyperparameters, keys, carry.best, train)
        for report in reports:
            if isinstance(report, TemperingReport):
                arrived = np.asarray(report.arrived).reshape(count, -1)
                stalled = np.flatnonzero(~arrived.all(axis=1))
                if stalled.size:
                    logger.warning("the second stage of runs %s stalled", stalled.tolist())
        carry = carry._replace(best=best)

    def unstack(index: int) -> Fit:
        own, stages = jax.tree.map(lambda leaf: leaf[index], (carry, reports))
        trained = result(one.model, plan, own, min(done, plan.end(own)), held_out is not None)
        return trained._replace(reports=stages, interrupted=not finished)

    return [unstack(index) for index in range(count)]


def _split_runs(n_jobs: int, keys: Key[Array, " run"], **arguments: Any) -> list[Fit]:
    """The same runs by several programs, in their order."""
    count = len(keys)
    ends = np.linspace(0, count, min(n_jobs, count) + 1).astype(int).tolist()
    # Typed keys do not go between processes.
    key_data, key_kind = np.asarray(jax.random.key_data(keys)), jax.random.key_impl(keys)
    work = partial(_part, key_data=key_data, key_kind=key_kind, **arguments)
    done = sorted(sweep(work, list(pairwise(ends)), n_jobs=n_jobs), key=lambda pair: pair[0])
    return [fit for _, fits in done for fit in fits]


def _part(
    ends: tuple[int, int],
    *,
    data: Any,
    validation: Any,
    hyperparameters: PyTree,
    key_data: np.ndarray,
    key_kind: Any,
    **settings: Any,
) -> list[Fit]:
    """Some of the runs, as one program."""
    own = slice(*ends)
    return fit_many(
        data=data[own] if isinstance(data, list) else data,
        validation=validation[own] if isinstance(validation, list) else validation,
        hyperparameters=jax.tree.map(lambda leaf: leaf[own], hyperparameters),
        key=jax.random.wrap_key_data(jnp.asarray(key_data[own]), impl=key_kind),
        progress=False,
        **settings,
    )


class _Mapped(NamedTuple):
    """Which data have a leading axis of runs."""

    data: bool
    validation: bool


def _count(repeats: int | None, hyperparameters: PyTree, data: Any, validation: Any, key: Any) -> int:
    """R, from whatever says it; all that say it must agree."""
    said = {}
    if repeats is not None:
        require_positive_int("repeats", repeats, "for example repeats=10.")
        said["repeats"] = repeats
    if jax.tree.leaves(hyperparameters):
        said["hyperparameters"] = num_rows("hyperparameters", hyperparameters)
    for name, pairs in (("data", data), ("validation", validation)):
        if isinstance(pairs, list):
            said[name] = len(pairs)
    if np.ndim(key) == 1:
        said["key"] = len(key)
    if not said:
        raise ValueError("say how many runs there are: repeats=, hyperparameters=, or a list of data.")
    if len(set(said.values())) > 1:
        told = ", ".join(f"{name} says {count}" for name, count in said.items())
        raise ValueError(f"the number of runs is not clear: {told}.")
    return int(next(iter(said.values())))


def _as_batches(model: Model, data: Any, name: str) -> Batch:
    if not isinstance(data, list):
        return as_batch(model, data, name)
    runs = [as_batch(model, pair, f"{name} of run {index}") for index, pair in enumerate(data)]
    shapes = {str(jax.tree.map(jnp.shape, run)) for run in runs}
    if len(shapes) > 1:
        raise ValueError(f"{name} must have the same shapes in every run; cut the sets to one size.")
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *runs)


def _algorithm(build: Algorithm | Build, hyperparameters: PyTree) -> Algorithm:
    return build if isinstance(build, Algorithm) else build(hyperparameters)


@partial(jax.jit, static_argnames=("build", "plan", "mapped"))
def _start(
    build: Algorithm | Build,
    plan: loop.Plan,
    mapped: _Mapped,
    hyperparameters: PyTree,
    keys: Key[Array, " run"],
    train: Batch,
) -> loop.Carry:
    def one(hyperparameters: PyTree, key: PRNGKey, train: Batch) -> loop.Carry:
        rows = train.mask.shape[0]
        order = jnp.arange(rows, dtype=jnp.int32)
        batch = take(train, order, jnp.zeros((), jnp.int32), plan.batches)
        return loop.start(_algorithm(build, hyperparameters), plan, key, rows, batch)

    return jax.vmap(one, in_axes=(0, 0, 0 if mapped.data else None))(hyperparameters, keys, train)


@partial(jax.jit, static_argnames=("build", "plan", "mapped"), donate_argnames=("carry",))
def _run(
    build: Algorithm | Build,
    plan: loop.Plan,
    mapped: _Mapped,
    hyperparameters: PyTree,
    carry: loop.Carry,
    keys: Key[Array, " run"],
    train: Batch,
    validation: Batch | None,
    begin: Int[Array, ""] | int,
    end: Int[Array, ""] | int,
) -> loop.Carry:
    def one(
        hyperparameters: PyTree,
        carry: loop.Carry,
        key: PRNGKey,
        train: Batch,
        validation: Batch | None,
    ) -> loop.Carry:
        algorithm = _algorithm(build, hyperparameters)
        return loop.run(algorithm, plan, carry, key, train, validation, begin, end)

    axes = (0, 0, 0, 0 if mapped.data else None, 0 if mapped.validation else None)
    return jax.vmap(one, in_axes=axes)(hyperparameters, carry, keys, train, validation)


@partial(jax.jit, static_argnames=("build", "mapped"))
def _finish(
    build: Algorithm | Build,
    mapped: _Mapped,
    hyperparameters: PyTree,
    keys: Key[Array, " run"],
    posteriors: Posterior,
    train: Batch,
) -> tuple[Posterior, Report]:
    def one(
        hyperparameters: PyTree, key: PRNGKey, posterior: Posterior, train: Batch
    ) -> tuple[Posterior, Report]:
        return loop.finish(_algorithm(build, hyperparameters), key, posterior, train)

    axes = (0, 0, 0, 0 if mapped.data else None)
    return jax.vmap(one, in_axes=axes)(hyperparameters, keys, posteriors, train)

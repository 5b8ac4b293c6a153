"""`Validation` and `Run`, the settings of a run, and their checks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
from jax.sharding import Mesh

from partialbayes._engine.compiled import Plan
from partialbayes._engine.epochs import permutation
from partialbayes._engine.settling import Settled, require_settled
from partialbayes._engine.streams import Stream, stream_key
from partialbayes._utils.checks import require_instance, require_positive, require_positive_int
from partialbayes.callbacks import Callback
from partialbayes.model._batch import full_batch
from partialbayes.parallel._mesh import as_mesh
from partialbayes.types import Batch, PRNGKey


class Validation(NamedTuple):
    """The validation of a run: its data, how often and how thoroughly to score, and when to stop.

    `fit` returns the posterior with the lowest negative log predictive density (NLPD) of the predictive
    mixture on these data.

    Attributes:
        data: A pair ``(inputs, targets)``, or a `Batch`; for `fit_many` also a list of them.
        every: Number of steps between scores; by default one score per epoch.
        rows: Number of rows to score, drawn once for the run; all by default. Fewer rows make scoring
            cheaper and the choice of the best posterior noisier.
        particles: Number of particles to score, drawn by weight each time; all by default.
        patience: Number of evaluations without improvement after which the run ends; no limit by
            default.

    Example:
        >>> import jax.numpy as jnp, partialbayes as pb
        >>> x = jnp.linspace(-1.0, 1.0, 8)[:, None]
        >>> validation = pb.Validation((x, x), every=10, patience=20)  # fit(..., validation=validation)
    """

    data: Any
    every: int | None = None
    rows: int | None = None
    particles: int | None = None
    patience: int | None = None


class Checkpoints(NamedTuple):
    """Where and how often to save a run; the shorter of the two intervals counts.

    Attributes:
        path: The file.
        every_seconds: Seconds between saves.
        every_steps: Number of steps between saves; None to save only by time.

    Example:
        >>> import partialbayes as pb
        >>> checkpoint = pb.training.Checkpoints("run.safetensors", every_steps=500)
    """

    path: str | Path
    every_seconds: float = 60.0
    every_steps: int | None = None


class Run(NamedTuple):
    """The settings of a run that do not change the method: files, callbacks, devices, early end.

    Attributes:
        checkpoint: The file to save the run to, once a minute; or `Checkpoints`, for other intervals.
        resume: Whether to resume from the checkpoint, if it exists. The result is exactly that of a run
            that never stopped.
        callbacks: Functions that are called with a `Progress` after each piece of the run. One that
            returns True ends the run, whose result is kept. See `csv_log`.
        progress: Whether to show a progress bar; by default only on a terminal.
        mesh: Devices to divide the run over, as `parallel.mesh` makes them: particles over its axis
            ``particle``, whose size must divide their number, and the rows of each batch over ``data``,
            padded by masked rows. The result is that of one device, up to the order of sums.
        on_interrupt: The effect of Ctrl-C, after the current step is finished and the checkpoint
            written: ``"raise"`` a `TrainingInterrupted`, which carries the fit so far, or ``"return"``
            that fit.
        until: A test that ends the run once the loss and the cloud have settled; see `training.Settled`.

    Example:
        >>> import partialbayes as pb
        >>> run = pb.Run(checkpoint="run.safetensors", resume=True)  # fit(..., run=run)
    """

    checkpoint: Checkpoints | str | Path | None = None
    resume: bool = False
    callbacks: Sequence[Callback] = ()
    progress: bool | None = None
    mesh: Mesh | None = None
    on_interrupt: Literal["raise", "return"] = "raise"
    until: Settled | None = None


def as_validation(validation: Any) -> Validation:
    """Check the ``validation`` of a user, and return it as a `Validation`; data None means none."""
    if not isinstance(validation, Validation):
        return Validation(validation)
    if validation.data is None:
        raise ValueError("validation has no data; pass Validation(data=(inputs, targets), ...).")
    remedies = {
        "every": "or None for once an epoch.",
        "rows": "or None for all of them.",
        "particles": "or None for all of them.",
        "patience": "a number of evaluations, or None to continue to the end.",
    }
    for name, remedy in remedies.items():
        value = getattr(validation, name)
        if value is not None:
            require_positive_int(f"{name} of validation", value, remedy)
    return validation


def as_run(run: Run | None) -> Run:
    """Check the ``run`` of a user, and return it with an explicit checkpoint and mesh."""
    run = Run() if run is None else run
    require_instance("run", run, Run, "for example Run(checkpoint='run.safetensors').")
    checkpoint = run.checkpoint
    if checkpoint is not None and not isinstance(checkpoint, Checkpoints):
        if not isinstance(checkpoint, str | Path):
            raise TypeError(f"checkpoint must be a path or a Checkpoints, not {checkpoint!r:.80}.")
        checkpoint = Checkpoints(checkpoint)
    if checkpoint is None and run.resume:
        raise ValueError("resume=True needs checkpoint=, the file to resume from.")
    if checkpoint is not None:
        require_positive("every_seconds", checkpoint.every_seconds)
        if checkpoint.every_steps is not None:
            require_positive_int("every_steps", checkpoint.every_steps, "or None to save only by time.")
    if run.on_interrupt not in ("raise", "return"):
        raise ValueError(f'on_interrupt must be "raise" or "return", not {run.on_interrupt!r}.')
    for callback in run.callbacks:
        if not callable(callback):
            raise TypeError(f"callbacks must be functions of a Progress, not {callback!r:.80}.")
    require_settled(run.until)
    return run._replace(checkpoint=checkpoint, mesh=as_mesh(run.mesh))


def make_plan(epochs: int, batches: int, validation: Validation, until: Settled | None) -> Plan:
    """Return the plan of a run, after checks of its numbers."""
    require_positive_int("epochs", epochs, "for example epochs=100.")
    every = batches if validation.every is None else validation.every
    return Plan(epochs * batches, every, validation.particles, validation.patience, until)


def choose_rows(key: PRNGKey, data: Batch, rows: int | None) -> Batch:
    """Draw ``rows`` rows of the validation data without replacement; return all of them for None."""
    if rows is None:
        return data
    there = data.mask.shape[0]
    if rows > there:
        raise ValueError(f"rows of validation is {rows}, but its data have only {there} rows.")
    chosen = permutation(stream_key(key, Stream.SCORED_ROWS), data.mask)[:rows]
    return full_batch(*jax.tree.map(lambda leaf: leaf[chosen], (data.inputs, data.targets)))

"""The host loop: about half a second of the compiled loop at a time, then the monitor."""

from __future__ import annotations

import time
from contextlib import ExitStack
from functools import partial
from typing import NamedTuple

import jax

from partialbayes._engine.checkpoints import RunCheckpoint
from partialbayes._engine.compiled import Carry, start
from partialbayes._engine.identity import identity_of
from partialbayes._engine.interrupts import Interrupts
from partialbayes._engine.job import Job, last_step
from partialbayes._engine.monitor import Monitor
from partialbayes._engine.settings import Checkpoints, Run
from partialbayes.parallel._hosts import broadcast_from_process_zero, explain_lost_process
from partialbayes.parallel._sharding import put_on_mesh, use_mesh

_SECONDS_PER_PIECE = 0.5


class Trained(NamedTuple):
    """A run when the host loop has ended.

    Attributes:
        carry: The state of the run.
        done: The number of steps taken; a run that ended on its own may have fewer.
        stopped: Whether a callback ended it.
        interrupted: Whether Ctrl-C ended it.
    """

    carry: Carry
    done: int
    stopped: bool
    interrupted: bool


def train(job: Job, run: Run, interrupts: Interrupts) -> Trained:
    """Train piece by piece, to the end or until something ends the run.

    Args:
        job: The job to train.
        run: The checked settings of the run.
        interrupts: The handler of Ctrl-C, already entered, so that it also works during compilation.

    Returns:
        The run, with the reason why it ended.
    """
    shared = _spans_processes(job)
    settings = run.checkpoint
    assert settings is None or isinstance(settings, Checkpoints)
    with ExitStack() as stack:
        checkpoint = stack.enter_context(RunCheckpoint(settings, job.plan.num_steps, run.resume, shared))
        if shared:
            stack.enter_context(explain_lost_process(checkpoint.how_to_resume))
        with interrupts.computing():
            done = checkpoint.read()
            carry = _begin(job, checkpoint, done)
            if done < last_step(job.plan, carry):
                carry = job.advance(carry, done, done)  # compiles before pieces are timed
        quiet = shared and jax.process_index() > 0
        monitor = stack.enter_context(Monitor(job, run, checkpoint, done, quiet))
        piece = 1
        while done < last_step(job.plan, carry) and not monitor.stopped:
            if broadcast_from_process_zero(interrupts.noted, shared):
                break
            end = min(done + piece, job.plan.num_steps, monitor.next_stop(done))
            end = broadcast_from_process_zero(end, shared)
            before = time.perf_counter()
            with interrupts.computing():
                carry = job.advance(carry, done, end)
                carry.best_step.block_until_ready()
            seconds = time.perf_counter() - before
            monitor.after_piece(carry, done, end)
            steps = end - done  # fewer than planned if a callback requested a stop
            done = end
            piece = max(1, min(16 * steps, int(steps * _SECONDS_PER_PIECE / max(seconds, 1e-6))))
        if done < job.plan.num_steps:
            checkpoint.save(carry, done)
        is_over = done >= last_step(job.plan, carry)
        return Trained(carry, done, monitor.stopped, not is_over and not monitor.stopped)


def _begin(job: Job, checkpoint: RunCheckpoint, done: int) -> Carry:
    """Return the carry before the first step: the saved one, or a new one."""
    rows = job.source.peek(done)
    own = (job.program, job.hyperparameters, job.key)
    identity = partial(identity_of, *own, job.source, rows, job.validation)

    def like() -> Carry:
        with use_mesh(job.mesh):
            shapes: Carry = jax.eval_shape(partial(start, job.program), *own[1:], rows, job.validation)
        return shapes

    saved = checkpoint.restore(identity, like)
    return put_on_mesh(job.mesh, job.start(rows) if saved is None else saved)


def _spans_processes(job: Job) -> bool:
    """Return whether several processes run as one."""
    if job.mesh is None:
        return False
    return any(device.process_index != jax.process_index() for device in job.mesh.devices.flat)

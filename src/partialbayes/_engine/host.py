"""A run piece by piece: the compiled loop does about half a second of it, then the host looks in."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import jax
from tqdm.auto import tqdm

from partialbayes._engine import compiled as loop
from partialbayes._engine.checkpoints import RunCheckpoint
from partialbayes.parallel._hosts import broadcast_from_process_zero, explain_lost_process, is_shared

logger = logging.getLogger(__name__)

_SECONDS_PER_PIECE = 0.5


def drive(
    advance: Callable[[loop.Carry, int, int], loop.Carry],
    look: Callable[[loop.Carry, int, int], str],
    plan: loop.Plan,
    carry: loop.Carry,
    done: int,
    record: RunCheckpoint,
    progress: bool,
    stops: Sequence[Callable[[int], int]] = (),
) -> tuple[loop.Carry, int]:
    """Run to the end, or to Ctrl-C, piece by piece.

    Args:
        advance: ``(carry, begin, end) -> carry``, the compiled loop.
        look: ``(carry, begin, end) -> text``, what the host does after each piece, and what the
            progress bar is to say; it raises to stop the run.
        plan: The plan of the run.
        carry: Where to start from.
        done: Steps done already.
        record: Its checkpoint.
        progress: Whether to show a progress bar.
        stops: ``done -> step``, each a step at which a piece has to end.

    Returns:
        The carry and the steps done.
    """
    # No steps: arrays on the device compile here, so that the first piece is timed right. A source that
    # is read from outside compiles at its first batch, and its first piece is one step.
    carry = advance(carry, done, done)
    piece = 1
    shared = is_shared(carry.best_step)
    quiet = not progress or (shared and jax.process_index() > 0)
    bar = tqdm(total=plan.num_steps, initial=done, disable=quiet, unit="step", leave=False)
    loss = explain_lost_process(record.how_to_go_on) if shared else nullcontext()
    with bar, _deferred_interrupt() as interrupted, loss:
        while done < plan.end(carry) and not broadcast_from_process_zero(interrupted(), shared):
            ends = (stop(done) for stop in (record.next_stop, *stops))
            end = broadcast_from_process_zero(min(done + piece, plan.num_steps, *ends), shared)
            before = time.perf_counter()
            carry = advance(carry, done, end)
            carry.best_step.block_until_ready()
            seconds = time.perf_counter() - before
            bar.set_postfix_str(look(carry, done, end), refresh=False)
            steps = end - done  # may be fewer than planned, when a checkpoint is due
            bar.update(steps)
            done = end
            record.save_if_due(carry, done)
            piece = max(1, min(16 * steps, int(steps * _SECONDS_PER_PIECE / max(seconds, 1e-6))))
    if done < plan.end(carry):
        logger.warning("interrupted after %d of %d steps; the best so far is kept", done, plan.num_steps)
    if done < plan.num_steps:
        record.save(carry, done)
    return carry, done


@contextmanager
def _deferred_interrupt() -> Iterator[Callable[[], bool]]:
    """Note the first Ctrl-C instead of raising it in the middle of a step; a second one raises."""
    noted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield noted.is_set
        return
    previous = signal.getsignal(signal.SIGINT)

    def note(number: int, frame: Any) -> None:
        if noted.is_set():
            raise KeyboardInterrupt
        noted.set()

    signal.signal(signal.SIGINT, note)
    try:
        yield noted.is_set
    finally:
        signal.signal(signal.SIGINT, previous)

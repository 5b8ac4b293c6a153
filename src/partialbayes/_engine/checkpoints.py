"""Save a training run to a checkpoint, and resume it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from partialbayes._engine.compiled import Carry
from partialbayes._engine.identity import require_same_run
from partialbayes._engine.settings import Checkpoints
from partialbayes._utils.atomic import clear_unfinished
from partialbayes._utils.locks import FileLock
from partialbayes.errors import CheckpointError
from partialbayes.io._parts import require_sound
from partialbayes.io._pytree_file import as_tree, read_file, save_tree
from partialbayes.parallel._hosts import broadcast_from_process_zero


def lock_file(path: str | Path) -> FileLock:
    """Lock a checkpoint, and remove temporary files that killed runs left beside it.

    Raises:
        CheckpointError: Another run has locked it, or its folder cannot be written to.
    """
    own = Path(os.path.realpath(path))  # two links to one file share its lock
    lock = FileLock(own)
    try:
        is_free = lock.acquire()
    except OSError as error:
        raise CheckpointError(
            f"the checkpoint {path} could not be written ({error.strerror or error}); choose another "
            "folder."
        ) from error
    if not is_free:
        raise CheckpointError(
            f"another run is using the checkpoint {path} now; give each run its own file."
        )
    clear_unfinished(own)
    return lock


class RunCheckpoint:
    """The checkpoint of one run, locked as long as the run lasts; without settings it does nothing.

    Args:
        settings: The file, and how often to save.
        num_steps: Number of steps of the whole run.
        resume: Whether to resume from an existing file.
        shared: Whether several processes run as one.
    """

    def __init__(self, settings: Checkpoints | None, num_steps: int, resume: bool, shared: bool) -> None:
        self._settings = settings
        self._num_steps = num_steps
        self._resume = resume
        self._shared = shared
        self._identity: dict[str, Any] = {}
        self._saved: tuple[dict[str, Any], dict[str, Any]] | None = None
        self._lock: FileLock | None = None
        self._saved_at = time.monotonic()
        self.saved_step = 0

    def __enter__(self) -> RunCheckpoint:
        """Lock the path."""
        if self._settings is None or (self._shared and jax.process_index() > 0):
            return self
        self._lock = lock_file(self._settings.path)
        return self

    def __exit__(self, *error: object) -> None:
        """Unlock the path."""
        if self._lock is not None:
            self._lock.release()

    def read(self) -> int:
        """Return the number of steps done: that of the file, if there is one to resume from."""
        if self._settings is None:
            return 0
        path = Path(self._settings.path)
        exists = path.exists()
        if broadcast_from_process_zero(exists, self._shared) != exists:
            raise CheckpointError(
                f"{path} exists for one process and not for another; put it where all hosts can read it."
            )
        if not exists:
            return 0
        if not self._resume:
            raise CheckpointError(
                f"there is a checkpoint at {path} already; pass resume=True to resume from it, or "
                "remove it to start from the beginning."
            )
        self._saved = read_file(path)
        step = self._saved[1].get("step")
        if isinstance(step, bool) or not isinstance(step, int) or not step >= 0:
            raise CheckpointError(f"{path} is not the checkpoint of a training run: it has no step.")
        self.saved_step = step
        return step

    def restore(self, identity: Callable[[], dict[str, Any]], like: Callable[[], Any]) -> Carry | None:
        """Return the carry to resume from; None to start from the beginning.

        Args:
            identity: ``() -> fields`` of this run; called only if there is a checkpoint.
            like: ``() ->`` the shapes of its carry.

        Returns:
            The carry, or None.
        """
        if self._settings is None:
            return None
        self._identity = identity()
        if self._saved is None:
            return None
        (arrays, description), path = self._saved, self._settings.path
        self._saved = None
        require_same_run(path, description.get("run"), self._identity)
        if self.saved_step > self._num_steps:
            raise CheckpointError(
                f"{path} is of step {self.saved_step}, but this run has {self._num_steps} steps."
            )
        carry: Carry = as_tree(path, arrays, like())
        _require_sound(path, carry)
        return carry

    def next_stop(self, done: int) -> int:
        """Return the step at which the next piece must end for a save by steps to be on time."""
        if self._settings is None or self._settings.every_steps is None:
            return np.iinfo(np.int32).max
        return (done // self._settings.every_steps + 1) * self._settings.every_steps

    def save_if_due(self, carry: Carry, done: int) -> None:
        """Save if enough time or steps have passed, or the run is over."""
        if self._settings is None:
            return
        every_steps = self._settings.every_steps
        due = (
            time.monotonic() - self._saved_at >= self._settings.every_seconds
            or (every_steps is not None and done - self.saved_step >= every_steps)
            or done == self._num_steps
        )
        if broadcast_from_process_zero(due, self._shared):
            self.save(carry, done)

    def save(self, carry: Carry, done: int) -> None:
        """Save now, unless this step is saved already."""
        if self._settings is None or (done == self.saved_step and done > 0):
            return
        save_tree(self._settings.path, carry, {"run": self._identity, "step": done})
        self._saved_at, self.saved_step = time.monotonic(), done

    def how_to_resume(self) -> str:
        """Return what to do about a run that was cut off."""
        if self._settings is None:
            return (
                "there is no checkpoint, so start from the beginning; checkpoint= would have kept one."
            )
        if self.saved_step == 0:
            return "it was before the first checkpoint, so start from the beginning."
        return (
            f"the checkpoint {self._settings.path} is of step {self.saved_step}: start all processes "
            "again with resume=True."
        )


def _require_sound(path: Any, carry: Carry) -> None:
    """Raise an error for best posteriors that no run keeps; those of many runs lie side by side."""
    best_step = np.asarray(carry.best_step)
    for run in np.argwhere(best_step > 0):
        best = jax.tree.map(lambda leaf, run=tuple(run): np.asarray(leaf)[run], carry.best)
        require_sound(best, f"the best posterior in {path}")

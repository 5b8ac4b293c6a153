"""Checkpoints of a training run: what `fit` saves, when, and how it takes a run up again."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Key

from partialbayes._engine import compiled as loop
from partialbayes._utils.checks import require_positive, require_positive_int
from partialbayes.errors import CheckpointError
from partialbayes.io._pytree_file import fingerprint, load_tree, save_tree
from partialbayes.parallel._hosts import broadcast_from_process_zero, is_shared
from partialbayes.types import Batch


class Checkpoints(NamedTuple):
    """Where and how often to save a run. Whichever of the two intervals ends first counts.

    Attributes:
        path: The file.
        every_seconds: Seconds between two saves.
        every_steps: Steps between two saves; None for none of it.

    Example:
        >>> import partialbayes as pb
        >>> checkpoint = pb.training.Checkpoints("run.safetensors", every_steps=500)
    """

    path: str | Path
    every_seconds: float = 60.0
    every_steps: int | None = None


class RunCheckpoint:
    """The checkpoint of one run; with no settings, one that does nothing."""

    def __init__(
        self, settings: Checkpoints | None, num_steps: int, description: dict[str, Any]
    ) -> None:
        self._settings = settings
        self._num_steps = num_steps
        self._description = description
        self._saved_at = time.monotonic()
        self._saved_step = 0

    @classmethod
    def of(
        cls,
        checkpoint: Checkpoints | str | Path | None,
        plan: loop.Plan,
        key: Key[Array, "*run"],
        train: Batch | None,
        validation: Batch | None,
    ) -> RunCheckpoint:
        """The record of a run with these settings, key and data."""
        if checkpoint is None:
            return cls(None, plan.num_steps, {})
        settings = checkpoint if isinstance(checkpoint, Checkpoints) else Checkpoints(checkpoint)
        require_positive("every_seconds", settings.every_seconds)
        if settings.every_steps is not None:
            require_positive_int("every_steps", settings.every_steps, "or None for saves by time alone.")
        description = {
            "kind": "training run",
            # Without what was not there in earlier versions, unless it is used.
            "the plan (epochs, batch_size, evaluate_every)": [
                *plan[:4],
                *(value for value in plan[4:] if value is not None),
            ],
            "the key": np.asarray(jax.random.key_data(key)).tolist(),
            "the data": None if train is None else fingerprint(train),
            "the validation data": None if validation is None else fingerprint(validation),
        }
        return cls(settings, plan.num_steps, description)

    def restore(self, carry: loop.Carry, resume: bool) -> tuple[loop.Carry, int]:
        """The carry to go on from and the steps done: the saved ones where there are any."""
        if self._settings is None:
            if resume:
                raise ValueError("resume=True needs checkpoint=, the file to resume from.")
            return carry, 0
        path = Path(self._settings.path)
        exists = path.exists()
        if broadcast_from_process_zero(exists, is_shared(carry.best_step)) != exists:
            raise CheckpointError(
                f"{path} is there for one process and not for another; put it where every host reads it."
            )
        if not exists:
            return carry, 0
        if not resume:
            raise CheckpointError(
                f"there is a checkpoint at {path} already; pass resume=True to go on from it, or "
                "remove it to start anew."
            )
        saved, description = load_tree(path, carry)
        for name, value in self._description.items():
            if description.get(name) != value:
                raise CheckpointError(
                    f"{path} is of another run: {name} differs. Resume with what the run was started "
                    "with, or start anew under another name."
                )
        self._saved_step = int(description["step"])
        return saved, self._saved_step

    def next_stop(self, done: int) -> int:
        """The step at which the next piece must end for a save by steps to be on time."""
        if self._settings is None or self._settings.every_steps is None:
            return np.iinfo(np.int32).max
        return (done // self._settings.every_steps + 1) * self._settings.every_steps

    def save_if_due(self, carry: loop.Carry, done: int) -> None:
        """Save if enough time or steps have passed, or the run is over."""
        if self._settings is None:
            return
        every_steps = self._settings.every_steps
        due = (
            time.monotonic() - self._saved_at >= self._settings.every_seconds
            or (every_steps is not None and done - self._saved_step >= every_steps)
            or done == self._num_steps
        )
        if broadcast_from_process_zero(due, is_shared(carry.best_step)):
            self.save(carry, done)

    def how_to_go_on(self) -> str:
        """What to do about a run that was cut off."""
        if self._settings is None:
            return "there is no checkpoint, so start anew; checkpoint= would have kept one."
        if self._saved_step == 0:
            return "it was before the first checkpoint, so start anew."
        return (
            f"the checkpoint {self._settings.path} is of step {self._saved_step}: start all processes "
            "again with resume=True."
        )

    def save(self, carry: loop.Carry, done: int) -> None:
        """Save now."""
        if self._settings is None:
            return
        save_tree(self._settings.path, carry, self._description | {"step": done})
        self._saved_at, self._saved_step = time.monotonic(), done

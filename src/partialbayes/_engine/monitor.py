"""What the host does between two pieces: progress, divergence, collapse, callbacks, checkpoints."""

from __future__ import annotations

from functools import partial
from types import TracebackType

import numpy as np
from tqdm.auto import tqdm

from partialbayes._engine.checkpoints import RunCheckpoint
from partialbayes._engine.compiled import Carry, Plan
from partialbayes._engine.diagnostics import remedy, warn_of_collapse
from partialbayes._engine.job import Job, result
from partialbayes._engine.settings import Run
from partialbayes.callbacks import Progress
from partialbayes.errors import TrainingDivergedError


class Monitor:
    """Looks at a run after each piece, in this order: is it sound, who wants to know, is it saved.

    Args:
        job: What is trained.
        run: How.
        checkpoint: Its checkpoint.
        done: Steps done already.
        quiet: Whether another process shows the progress.

    Attributes:
        stopped: Whether a callback asked for the end.
    """

    def __init__(self, job: Job, run: Run, checkpoint: RunCheckpoint, done: int, quiet: bool) -> None:
        self.stopped = False
        self._job = job
        self._callbacks = run.callbacks
        self._checkpoint = checkpoint
        self._has_warned = False
        # None: tqdm looks whether there is a terminal to show a bar on.
        disable = True if quiet else None if run.progress is None else not run.progress
        total = job.plan.num_steps
        self._bar = tqdm(total=total, initial=done, disable=disable, unit="step", leave=False)

    def __enter__(self) -> Monitor:
        """Nothing more: the bar is there."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Take the bar away."""
        self._bar.close()

    def next_stop(self, done: int) -> int:
        """Return the step at which the next piece must end, for somebody to be on time."""
        stops = [callback.next_stop for callback in self._callbacks if hasattr(callback, "next_stop")]
        return min(stop(done) for stop in (self._checkpoint.next_stop, *stops))

    def look(self, carry: Carry, begin: int, end: int) -> None:
        """Do all there is to do after the steps from ``begin`` to ``end``."""
        if self._job.is_one_run:
            self.raise_if_diverged(carry)
            self.warn_of_collapse(carry, end)
            self.call(carry, begin, end)
        self.show(carry, end - begin)
        self._checkpoint.save_if_due(carry, end)

    def raise_if_diverged(self, carry: Carry) -> None:
        """Raise where the loss was not finite, with the best posterior before that."""
        bad_step = int(carry.bad_step)
        if bad_step == 0:
            return
        kept = result(self._job, carry, bad_step - 1) if int(carry.best_step) > 0 else None
        raise TrainingDivergedError(bad_step, kept, remedy(carry.infos, bad_step - 1))

    def warn_of_collapse(self, carry: Carry, end: int) -> None:
        """Warn once where the particles, or their moves, have stopped doing anything."""
        if not self._has_warned:
            self._has_warned = warn_of_collapse(carry.infos, end, carry.best.particles)

    def call(self, carry: Carry, begin: int, end: int) -> None:
        """Call the callbacks; one that returns True has asked for the end."""
        for callback in self._callbacks:
            if callback(self._progress(carry, begin, end)) is True:
                self.stopped = True

    def show(self, carry: Carry, steps: int) -> None:
        """Move the bar on."""
        if self._bar.disable:
            return
        text = ""
        if not self._job.is_one_run:
            text = f"{self._job.key.shape[0]} runs at once"
        elif carry.best_score is not None:
            text = f"best validation NLPD {float(carry.best_score):.4f}"
        self._bar.set_postfix_str(text, refresh=False)
        self._bar.update(steps)

    def _progress(self, carry: Carry, begin: int, end: int) -> Progress:
        plan: Plan = self._job.plan
        # Copies: the loop goes on in the same memory.
        infos = {name: np.array(values)[begin:end] for name, values in carry.infos.items()}
        scores: dict[int, float] = {}
        if carry.scores is not None:
            pairs = zip(plan.eval_steps().tolist(), np.array(carry.scores).tolist(), strict=True)
            scores = {step: score for step, score in pairs if begin < step <= end}
        current = partial(self._job.algorithm.posterior, carry.state)
        best_step = int(carry.best_step)
        return Progress(begin, plan.num_steps, infos, scores, best_step, carry.best, current)

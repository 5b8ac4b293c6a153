"""Handle a run between two pieces: divergence, collapse, callbacks, progress, checkpoints."""

from __future__ import annotations

from functools import partial

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
    """The checks and calls after each piece: divergence, collapse, callbacks, progress, checkpoint.

    Args:
        job: The job that is trained.
        run: The settings of the run.
        checkpoint: The checkpoint of the run.
        done: Number of steps done already.
        quiet: Whether another process shows the progress.

    Attributes:
        stopped: Whether a callback requested the end.
    """

    def __init__(self, job: Job, run: Run, checkpoint: RunCheckpoint, done: int, quiet: bool) -> None:
        self.stopped = False
        self._job = job
        self._callbacks = run.callbacks
        self._checkpoint = checkpoint
        self._has_warned = False
        # With None, tqdm shows a bar only on a terminal.
        disable = True if quiet else None if run.progress is None else not run.progress
        total = job.plan.num_steps
        self._bar = tqdm(total=total, initial=done, disable=disable, unit="step", leave=False)

    def __enter__(self) -> Monitor:
        """Return the monitor; the progress bar exists already."""
        return self

    def __exit__(self, *error: object) -> None:
        """Remove the progress bar."""
        self._bar.close()

    def next_stop(self, done: int) -> int:
        """Return the step at which the next piece must end, for the checkpoint or a callback."""
        stops = [callback.next_stop for callback in self._callbacks if hasattr(callback, "next_stop")]
        return min(stop(done) for stop in (self._checkpoint.next_stop, *stops))

    def after_piece(self, carry: Carry, begin: int, end: int) -> None:
        """Check, report and save the run after the steps from ``begin`` to ``end``."""
        if self._job.is_one_run:
            self.raise_if_diverged(carry)
            self.warn_of_collapse(carry, end)
            self.call(carry, begin, end)
        self.show(carry, end - begin)
        self._checkpoint.save_if_due(carry, end)

    def raise_if_diverged(self, carry: Carry) -> None:
        """Raise an error if the loss was not finite, with the best posterior before that."""
        bad_step = int(carry.bad_step)
        if bad_step == 0:
            return
        kept = result(self._job, carry, bad_step - 1) if int(carry.best_step) > 0 else None
        raise TrainingDivergedError(bad_step, kept, remedy(carry.infos, bad_step - 1))

    def warn_of_collapse(self, carry: Carry, end: int) -> None:
        """Warn once if the particles have collapsed or stopped moving."""
        if not self._has_warned:
            self._has_warned = warn_of_collapse(carry.infos, end, carry.best.particles)

    def call(self, carry: Carry, begin: int, end: int) -> None:
        """Call the callbacks; one that returns True ends the run."""
        for callback in self._callbacks:
            if callback(self._progress(carry, begin, end)) is True:
                self.stopped = True

    def show(self, carry: Carry, steps: int) -> None:
        """Advance the progress bar."""
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
        # Copies: the loop continues in the same memory.
        infos = {name: np.array(values)[begin:end] for name, values in carry.infos.items()}
        scores: dict[int, float] = {}
        if carry.scores is not None:
            pairs = zip(plan.eval_steps().tolist(), np.array(carry.scores).tolist(), strict=True)
            scores = {step: score for step, score in pairs if begin < step <= end}
        current = partial(self._job.algorithm.posterior, carry.state)
        best_step = int(carry.best_step)
        return Progress(begin, plan.num_steps, infos, scores, best_step, carry.best, current)

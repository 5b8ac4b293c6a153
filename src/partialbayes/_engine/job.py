"""Hold what one run, or many runs at once, compute with, and make the `Fit` of each."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Key, PyTree

from partialbayes._engine.compiled import (
    Carry,
    Plan,
    Program,
    compiled_finish,
    compiled_run,
    compiled_start,
)
from partialbayes._engine.sources import Source
from partialbayes.model._partial_bnn import noise_of
from partialbayes.parallel._hosts import gather_to_host
from partialbayes.parallel._sharding import use_mesh
from partialbayes.results import End, Fit, History
from partialbayes.types import Algorithm, Batch, Posterior, Report


class Job(NamedTuple):
    """One run, or many at once: program, data and keys, and the three compiled functions on them.

    Attributes:
        program: The program that is compiled.
        algorithm: The algorithm; that of the first run if there are hyperparameters.
        hyperparameters: The hyperparameters of many runs, with a leading axis; None if there are none.
        key: The salted key, or one per run.
        source: The source of the batches.
        validation: The rows to score; None for none.
        mesh: The devices.
    """

    program: Program
    algorithm: Algorithm
    hyperparameters: PyTree
    key: Key[Array, "*run"]
    source: Source
    validation: Batch | None
    mesh: Mesh | None = None

    @property
    def plan(self) -> Plan:
        """Plan of the run."""
        return self.program.plan

    @property
    def is_one_run(self) -> bool:
        """True if there is no axis of runs."""
        return self.program.runs is None

    def start(self, rows: Any) -> Carry:
        """Return the carry before the first step."""
        with use_mesh(self.mesh):
            return compiled_start(self.program, self.hyperparameters, self.key, rows, self.validation)

    def advance(self, carry: Carry, begin: int, end: int) -> Carry:
        """Take the steps from ``begin`` to ``end``; equal numbers only compile."""
        for rows, first, last in self.source.pieces(begin, end):
            with use_mesh(self.mesh):
                carry = compiled_run(
                    self.program,
                    carry,
                    self.hyperparameters,
                    self.key,
                    rows,
                    self.validation,
                    first,
                    last,
                )
        return carry

    def finish(self, posterior: Posterior) -> tuple[Posterior, tuple[Report, ...]]:
        """Run the second stages."""
        with use_mesh(self.mesh):
            found = compiled_finish(
                self.program, self.hyperparameters, self.key, self.source.whole, posterior
            )
        posterior, reports = gather_to_host(jax.block_until_ready(found))  # type: ignore[no-untyped-call]
        return posterior, reports


def last_step(plan: Plan, carry: Carry) -> int:
    """Return the step with which a run ends, as far as known; of several runs the latest."""
    own, bad = np.asarray(carry.end_step), np.asarray(carry.bad_step)
    ends = np.where(own > 0, own, np.where(bad > 0, bad, plan.num_steps))
    return int(ends.max())


def end_of(plan: Plan, carry: Carry) -> End:
    """Return the reason why a run ended, if nothing outside ended it."""
    end, best = int(carry.end_step), int(carry.best_step)
    if end == 0:
        return "epochs"
    ran_out = plan.patience is not None and end - best >= plan.patience * plan.evaluate_every
    return "patience" if ran_out else "settled"


def result(job: Job, carry: Carry, num_steps: int) -> Fit:
    """Return the `Fit` of one run after ``num_steps`` steps."""
    eval_steps = job.plan.eval_steps()
    eval_steps = eval_steps[eval_steps <= num_steps]
    scores = np.zeros(0) if carry.scores is None else np.asarray(carry.scores)[: len(eval_steps)]
    history = History(
        metrics={name: np.asarray(values)[:num_steps] for name, values in carry.infos.items()},
        eval_steps=eval_steps,
        validation_nlpd=scores,
        best_step=int(carry.best_step),
    )
    posterior = gather_to_host(carry.best)
    return Fit(posterior, history, noise_of(job.algorithm.model, posterior))

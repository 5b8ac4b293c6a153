"""The compiled loop: pure functions from `Carry` to `Carry`, for one run or, mapped, for many.

Training is one loop over steps, with data and validation inside and run-time bounds, so a run of any
length, in pieces of any length, compiles once. The random key of each step is folded from the number of
the step, so a run does not depend on how it was cut into pieces, and can be resumed at any step.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from partialbayes._engine.settling import Settled, Settling, check, nothing_seen
from partialbayes._engine.streams import Stream, stream_key
from partialbayes.parallel._sharding import constrain
from partialbayes.prediction import _mixture as mixture
from partialbayes.prediction._mixture import rows_to_score
from partialbayes.resampling import subsample
from partialbayes.types import Algorithm, Batch, Info, Posterior, PRNGKey, Report, Scalar

Build: TypeAlias = Callable[[Any], Algorithm]


@runtime_checkable
class Draw(Protocol):
    """A pure function, hashed by its settings, that makes the batch of a step from rows."""

    def order(self, rows: Any) -> PyTree:
        """Return what the draw carries from step to step, before the first step."""

    def __call__(
        self, key: PRNGKey, rows: Any, order: PyTree, step: Int[Array, ""]
    ) -> tuple[Batch, PyTree]:
        """Return the batch of a step, and what is carried to the next step."""


class Plan(NamedTuple):
    """The numbers that are fixed when the loop is compiled.

    Attributes:
        num_steps: Number of steps of the whole run.
        evaluate_every: Number of steps between evaluations.
        particles: Number of particles, drawn by weight, that are scored; None for all.
        patience: Number of evaluations without improvement after which the run ends; None for no limit.
        until: When the run has settled; None for no test.
    """

    num_steps: int
    evaluate_every: int
    particles: int | None = None
    patience: int | None = None
    until: Settled | None = None

    def eval_steps(self) -> Int[np.ndarray, " evaluation"]:
        """Return the steps, counted from 1, with an evaluation after them: every k-th, and the last."""
        regular = np.arange(self.evaluate_every, self.num_steps + 1, self.evaluate_every)
        return np.union1d(regular, [self.num_steps])


class Runs(NamedTuple):
    """Whether data and validation have a leading axis of runs; states and keys always have."""

    data: bool
    validation: bool


class Program(NamedTuple):
    """All that determines the compiled program, besides shapes.

    Attributes:
        build: The algorithm, or a function from hyperparameters to it.
        plan: The plan.
        draw: The function that makes batches.
        runs: How to map over runs; None for one run.
    """

    build: Algorithm | Build
    plan: Plan
    draw: Draw
    runs: Runs | None = None

    def algorithm(self, hyperparameters: PyTree) -> Algorithm:
        """Return the algorithm of these hyperparameters."""
        return self.build if isinstance(self.build, Algorithm) else self.build(hyperparameters)

    def over_runs(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Map a function of (hyperparameters, key, rows, validation, anything per run) over the runs."""
        if self.runs is None:
            return function(*arguments)
        data, validation = (0 if mapped else None for mapped in self.runs)
        axes = (0, 0, data, validation, *(0 for _ in arguments[4:]))
        return jax.vmap(function, in_axes=axes)(*arguments)


class Carry(NamedTuple):
    """The state of a run at a step; with the key and the data it determines the rest of the run.

    Attributes:
        state: The algorithm's state.
        order: What the source's draw carries, such as the order of the rows in this epoch.
        best: The best posterior so far; without validation data the last finite one.
        best_score: The validation NLPD of the best posterior; None without validation data.
        best_step: The step of the best posterior, counted from 1; 0 if there is none yet.
        bad_step: The first step, counted from 1, whose loss was not finite; 0 if there is none.
        end_step: The step at which patience ran out, or the run settled; 0 if neither has happened.
        infos: The values that each step reported; NaN for later steps.
        scores: The score of each evaluation, NaN for later ones; None without validation data.
        settling: The memory of the test of convergence; None without the test.
    """

    state: Any
    order: PyTree
    best: Posterior
    best_score: Scalar | None
    best_step: Int[Array, ""]
    bad_step: Int[Array, ""]
    end_step: Int[Array, ""]
    infos: dict[str, Float[Array, " step"]]
    scores: Float[Array, " evaluation"] | None
    settling: Settling | None


def step_on(
    algorithm: Algorithm,
    draw: Draw,
    key: PRNGKey,
    rows: Any,
    state: Any,
    order: PyTree,
    step: Int[Array, ""],
) -> tuple[Any, PyTree, Info]:
    """Draw the batch of a step and take the step; all training shares this function."""
    batch, order = draw(key, rows, order, step)
    state, info = algorithm.step(stream_key(key, Stream.STEP, step), state, batch)
    return state, order, info


def start(
    program: Program,
    hyperparameters: PyTree,
    key: Key[Array, "*run"],
    rows: Any,
    validation: Batch | None,
) -> Carry:
    """Return the carry before the first step; only the shapes of rows and validation are used."""

    def one(hyperparameters: PyTree, key: PRNGKey, rows: Any, validation: Batch | None) -> Carry:
        algorithm, plan = program.algorithm(hyperparameters), program.plan
        state, order = algorithm.init(stream_key(key, Stream.INIT)), program.draw.order(rows)
        step = partial(step_on, algorithm, program.draw)
        _, _, info = jax.eval_shape(step, key, rows, state, order, jnp.zeros((), jnp.int32))
        if "loss" not in info:
            raise ValueError(
                "the algorithm's step must report 'loss', its objective per row, but reports "
                f"{sorted(info)}."
            )
        # A copy, because the state is donated to the loop and must not share its buffers.
        best = jax.tree.map(jnp.copy, algorithm.posterior(state))
        return Carry(
            state=state,
            order=order,
            best=best,
            best_score=None if validation is None else jnp.asarray(jnp.inf, jnp.result_type(float)),
            best_step=jnp.zeros((), jnp.int32),
            bad_step=jnp.zeros((), jnp.int32),
            end_step=jnp.zeros((), jnp.int32),
            infos={name: jnp.full(plan.num_steps, jnp.nan, leaf.dtype) for name, leaf in info.items()},
            scores=None if validation is None else jnp.full(len(plan.eval_steps()), jnp.nan),
            settling=None if plan.until is None else nothing_seen(best),
        )

    return constrain(program.over_runs(one, hyperparameters, key, rows, validation))


def run(
    program: Program,
    carry: Carry,
    hyperparameters: PyTree,
    key: Key[Array, "*run"],
    rows: Any,
    validation: Batch | None,
    begin: Int[Array, ""] | int,
    end: Int[Array, ""] | int,
) -> Carry:
    """Take the steps from ``begin`` to ``end − 1`` on rows that are on the device."""
    first, last = jnp.asarray(begin, jnp.int32), jnp.asarray(end, jnp.int32)

    def one(
        hyperparameters: PyTree, key: PRNGKey, rows: Any, validation: Batch | None, carry: Carry
    ) -> Carry:
        algorithm = program.algorithm(hyperparameters)

        def body(step: Int[Array, ""], carry: Carry) -> Carry:
            state, order, info = step_on(
                algorithm, program.draw, key, rows, carry.state, carry.order, step
            )
            failed = ~jnp.isfinite(info["loss"]) & (carry.bad_step == 0)
            carry = carry._replace(
                state=state,
                order=order,
                bad_step=jnp.where(failed, step + 1, carry.bad_step),
                infos={name: carry.infos[name].at[step].set(info[name]) for name in carry.infos},
            )
            plan = program.plan
            # The condition depends only on the step, so it stays a branch when mapped over runs.
            due = ((step + 1) % plan.evaluate_every == 0) | (step + 1 == plan.num_steps)
            carry = jax.lax.cond(
                due, lambda: _evaluate(algorithm, plan, carry, key, validation, step), lambda: carry
            )
            return constrain(carry)

        return jax.lax.fori_loop(first, last, body, carry)

    return program.over_runs(one, hyperparameters, key, rows, validation, carry)


def _evaluate(
    algorithm: Algorithm,
    plan: Plan,
    carry: Carry,
    key: PRNGKey,
    validation: Batch | None,
    step: Int[Array, ""],
) -> Carry:
    """Score the posterior, keep it if it is the best, and test whether the run should end."""
    posterior = algorithm.posterior(carry.state)
    # Steps after the end do not count, even if the host notices the end late.
    better: Bool[Array, ""] = (carry.bad_step == 0) & (carry.end_step == 0)
    best_score, scores = carry.best_score, carry.scores
    if validation is None or best_score is None or scores is None:
        better &= _is_finite(posterior)  # the last one counts
    else:
        value = _score(algorithm, plan, posterior, key, validation, step).astype(best_score.dtype)
        better &= value < best_score
        best_score = jnp.where(better, value, best_score)
        scores = scores.at[step // plan.evaluate_every].set(value)
    best_step = jnp.where(better, step + 1, carry.best_step)
    over = jnp.zeros((), bool)
    if plan.patience is not None:
        waited = step + 1 - best_step
        over |= (best_step > 0) & (waited >= plan.patience * plan.evaluate_every)
    settling = carry.settling
    if plan.until is not None and settling is not None:
        size = min(plan.evaluate_every, plan.num_steps)
        loss = jax.lax.dynamic_slice_in_dim(carry.infos["loss"], step + 1 - size, size).mean()
        settling, has_settled = check(plan.until, settling, loss, posterior)
        over |= has_settled
    over &= (carry.end_step == 0) & (carry.bad_step == 0)
    return carry._replace(
        best=jax.tree.map(partial(jnp.where, better), posterior, carry.best),
        best_score=best_score,
        best_step=best_step,
        end_step=jnp.where(over, step + 1, carry.end_step),
        scores=scores,
        settling=settling,
    )


def _is_finite(posterior: Posterior) -> Bool[Array, ""]:
    leaves = [leaf for leaf in jax.tree.leaves(posterior) if jnp.issubdtype(leaf.dtype, jnp.floating)]
    return jnp.stack([~jnp.isnan(leaf).any() for leaf in leaves]).all()


def _score(
    algorithm: Algorithm,
    plan: Plan,
    posterior: Posterior,
    key: PRNGKey,
    validation: Batch,
    step: Int[Array, ""],
) -> Scalar:
    """Return the NLPD of the rows that count."""
    if plan.particles is not None:
        key_thin = stream_key(key, Stream.SCORED_PARTICLES, step)
        posterior = posterior._replace(
            particles=subsample(key_thin, posterior.particles, plan.particles)
        )
    model = algorithm.model
    rows = rows_to_score(model, posterior.particles, validation.mask.shape[0])
    log_densities = mixture.log_density(model, posterior, validation, model.chunks._replace(rows=rows))
    return -jnp.where(validation.mask, log_densities, 0.0).sum() / validation.mask.sum()


def finish(
    program: Program, hyperparameters: PyTree, key: Key[Array, "*run"], rows: Any, posterior: Posterior
) -> tuple[Posterior, tuple[Report, ...]]:
    """Run the algorithm's second stages on the best posterior; there must be at least one."""

    def one(
        hyperparameters: PyTree, key: PRNGKey, rows: Any, validation: None, posterior: Posterior
    ) -> tuple[Posterior, tuple[Report, ...]]:
        stages = program.algorithm(hyperparameters).finish
        assert stages is not None
        return stages(stream_key(key, Stream.FINISH), posterior, rows)

    return program.over_runs(one, hyperparameters, key, rows, None, posterior)


# It runs once, so compiling it costs more than running it: level 1 halves the work of LLVM.
compiled_start = jax.jit(
    start, static_argnames=("program",), compiler_options={"xla_backend_optimization_level": 1}
)
compiled_run = jax.jit(run, static_argnames=("program",), donate_argnames=("carry",))
compiled_finish = jax.jit(finish, static_argnames=("program",))

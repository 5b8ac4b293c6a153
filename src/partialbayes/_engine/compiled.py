"""The compiled training loop: pure functions from `Carry` to `Carry`.

Training is one loop over steps, data and validation inside, with run-time bounds: a run of any
length, in pieces of any length, compiles once. Each step's random key is folded from the step's
number, so a run does not depend on how it was cut into pieces, and can be taken up again at any.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from partialbayes._engine.epochs import permutation, take
from partialbayes.parallel._sharding import constrain
from partialbayes.prediction import _mixture as mixture
from partialbayes.prediction._mixture import rows_to_score
from partialbayes.resampling import subsample
from partialbayes.types import Algorithm, Batch, Posterior, PRNGKey, Report, Scalar


class Plan(NamedTuple):
    """What is fixed when the loop is compiled.

    Attributes:
        batches: Batches in an epoch.
        num_steps: Steps in the whole run.
        evaluate_every: Steps between two evaluations.
        validation_particles: How many particles, drawn by weight, are scored; None for all.
        patience: After how many evaluations without a better one to give up; None for never.
    """

    batches: int
    num_steps: int
    evaluate_every: int
    validation_particles: int | None = None
    patience: int | None = None

    def end(self, carry: Carry) -> int:
        """The step a run ends with, as things stand: the last, or where patience runs out.

        Of several runs that of the longest; one that diverged has ended.
        """
        if self.patience is None:
            return self.num_steps
        best, bad = np.asarray(carry.best_step), np.asarray(carry.bad_step)
        ends = np.where(best > 0, best + self.patience * self.evaluate_every, self.num_steps)
        return min(self.num_steps, int(np.where(bad > 0, np.minimum(ends, bad), ends).max()))

    def eval_steps(self) -> Int[np.ndarray, " evaluation"]:
        """The steps, counted from 1, after which there is an evaluation: every k-th, and the last."""
        regular = np.arange(self.evaluate_every, self.num_steps + 1, self.evaluate_every)
        return np.union1d(regular, [self.num_steps])


class Carry(NamedTuple):
    """All there is to know of a run at a step: with the key and the data, its whole future.

    Attributes:
        state: The algorithm's state.
        order: The order of the rows in this epoch.
        best: The best posterior so far.
        best_score: Its validation NLPD; without validation data, minus its step.
        best_step: The step it was found after, counted from 1; 0 if there is none yet.
        bad_step: The first step, counted from 1, whose loss was not finite; 0 if there is none.
        infos: What each step reported; NaN for steps to come.
        scores: What each evaluation gave; NaN for those to come.
    """

    state: Any
    order: Int[Array, " row"]
    best: Posterior
    best_score: Scalar
    best_step: Int[Array, ""]
    bad_step: Int[Array, ""]
    infos: dict[str, Float[Array, " step"]]
    scores: Float[Array, " evaluation"]


def start(algorithm: Algorithm, plan: Plan, key: PRNGKey, rows: int, batch: Batch) -> Carry:
    """The carry before the first step; ``batch`` is used for its shapes alone."""
    state = algorithm.init(jax.random.fold_in(key, 0))
    _, info = jax.eval_shape(algorithm.step, key, state, batch)
    carry = Carry(
        state=state,
        order=jnp.arange(rows, dtype=jnp.int32),
        # A copy, because the state is donated to the loop and must not share its buffers.
        best=jax.tree.map(jnp.copy, algorithm.posterior(state)),
        best_score=jnp.asarray(jnp.inf, jnp.result_type(float)),
        best_step=jnp.zeros((), jnp.int32),
        bad_step=jnp.zeros((), jnp.int32),
        infos={name: jnp.full(plan.num_steps, jnp.nan, leaf.dtype) for name, leaf in info.items()},
        scores=jnp.full(len(plan.eval_steps()), jnp.nan),
    )
    return constrain(carry)


def advance(
    algorithm: Algorithm,
    plan: Plan,
    carry: Carry,
    key: PRNGKey,
    batch: Batch,
    validation: Batch | None,
    step: Int[Array, ""] | int,
) -> Carry:
    """One step on one batch, and the evaluation if it is due."""
    step = jnp.asarray(step, jnp.int32)
    key_step = jax.random.fold_in(jax.random.fold_in(key, 2), step)
    state, info = algorithm.step(key_step, carry.state, batch)
    failed = ~jnp.isfinite(info["loss"]) & (carry.bad_step == 0)
    carry = carry._replace(
        state=state,
        bad_step=jnp.where(failed, step + 1, carry.bad_step),
        infos={name: carry.infos[name].at[step].set(info[name]) for name in carry.infos},
    )
    # The condition depends on the step alone: mapped over many runs it is still a branch.
    due = ((step + 1) % plan.evaluate_every == 0) | (step + 1 == plan.num_steps)
    carry = jax.lax.cond(
        due,
        lambda: _evaluate(algorithm, plan, carry, key, validation, step),
        lambda: carry,
    )
    return constrain(carry)


def _evaluate(
    algorithm: Algorithm,
    plan: Plan,
    carry: Carry,
    key: PRNGKey,
    validation: Batch | None,
    step: Int[Array, ""],
) -> Carry:
    posterior = algorithm.posterior(carry.state)
    if validation is None:
        # The later the better, as long as it is finite.
        leaves = [
            leaf for leaf in jax.tree.leaves(posterior) if jnp.issubdtype(leaf.dtype, jnp.floating)
        ]
        finite = jnp.stack([~jnp.isnan(leaf).any() for leaf in leaves]).all()
        value = jnp.where(finite, -(step + 1).astype(carry.best_score.dtype), jnp.nan)
    else:
        scored = posterior
        if plan.validation_particles is not None:
            key_thin = jax.random.fold_in(jax.random.fold_in(key, 4), step)
            scored = posterior._replace(
                particles=subsample(key_thin, posterior.particles, plan.validation_particles)
            )
        model = algorithm.model
        rows = rows_to_score(model, scored.particles, validation.mask.shape[0])
        log_densities = mixture.log_density(model, scored, validation, model.chunks._replace(rows=rows))
        mean = jnp.where(validation.mask, log_densities, 0.0).sum() / validation.mask.sum()
        value = -mean.astype(carry.best_score.dtype)
    better: Bool[Array, ""] = (value < carry.best_score) & (carry.bad_step == 0)
    if plan.patience is not None:
        # What comes after the end does not count, however late the host notices that it was the end.
        waited = step + 1 - carry.best_step
        better &= (carry.best_step == 0) | (waited <= plan.patience * plan.evaluate_every)
    keep = partial(jax.tree.map, partial(jnp.where, better))
    return carry._replace(
        best=keep(posterior, carry.best),
        best_score=jnp.where(better, value, carry.best_score),
        best_step=jnp.where(better, step + 1, carry.best_step),
        scores=carry.scores.at[step // plan.evaluate_every].set(value),
    )


def run(
    algorithm: Algorithm,
    plan: Plan,
    carry: Carry,
    key: PRNGKey,
    train: Batch,
    validation: Batch | None,
    begin: Int[Array, ""] | int,
    end: Int[Array, ""] | int,
) -> Carry:
    """Steps ``begin`` to ``end − 1`` on data that are on the device."""

    def body(step: Int[Array, ""], carry: Carry) -> Carry:
        epoch, index = step // plan.batches, step % plan.batches
        key_epoch = jax.random.fold_in(jax.random.fold_in(key, 1), epoch)
        order = jax.lax.cond(index == 0, lambda: permutation(key_epoch, train.mask), lambda: carry.order)
        batch = take(train, order, index, plan.batches)
        return advance(algorithm, plan, carry._replace(order=order), key, batch, validation, step)

    begin, end = jnp.asarray(begin, jnp.int32), jnp.asarray(end, jnp.int32)
    return jax.lax.fori_loop(begin, end, body, carry)


def finish(
    algorithm: Algorithm, key: PRNGKey, posterior: Posterior, train: Batch
) -> tuple[Posterior, Report]:
    """The algorithm's second stage; only called where there is one."""
    assert algorithm.finish is not None
    return algorithm.finish(jax.random.fold_in(key, 3), posterior, train)


compiled_start = jax.jit(start, static_argnames=("algorithm", "plan", "rows"))
compiled_run = jax.jit(run, static_argnames=("algorithm", "plan"), donate_argnames=("carry",))
compiled_advance = jax.jit(advance, static_argnames=("algorithm", "plan"), donate_argnames=("carry",))
compiled_finish = jax.jit(finish, static_argnames=("algorithm",))

"""The one driver: it trains any `Algorithm`, scores it as it goes, and keeps the best.

Training is one compiled loop over steps, data and validation inside, with run-time bounds: a run
of any length, in pieces of any length, compiles once. Each step's random key is folded from the
step's number, so that a run does not depend on how it was cut into pieces.
"""

from __future__ import annotations

import logging
import time
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from tqdm.auto import tqdm

from partialbayes.batches import checked, num_batches, permutation, take
from partialbayes.checks import require_count
from partialbayes.diagnostics import remedy, warn_of_collapse
from partialbayes.predict import _log_density
from partialbayes.types import Algorithm, Batch, Posterior, PRNGKey, Report, Scalar

logger = logging.getLogger(__name__)

_SECONDS_PER_PIECE = 0.5  # how often the host looks in: progress, failures


class History(NamedTuple):
    """What happened, step by step.

    Attributes:
        steps: Every scalar of the algorithm's info, one value per step.
        evaluated: The steps after which validation was scored (counted from 1).
        validation_nlpd: The score there; empty if there was no validation data.
        best_step: The step whose posterior was returned.
    """

    steps: dict[str, Float[np.ndarray, " step"]]
    evaluated: Int[np.ndarray, " evaluation"]
    validation_nlpd: Float[np.ndarray, " evaluation"]
    best_step: int


class Fit(NamedTuple):
    """The result of training.

    Attributes:
        posterior: The best posterior, after the algorithm's second stage if it has one.
        history: What happened, step by step.
        report: What the second stage has to say (R-hat, acceptance, evidence, …); empty without.
    """

    posterior: Posterior
    history: History
    report: Report


class TrainingDivergedError(RuntimeError):
    """The loss became NaN or infinite.

    Attributes:
        step: The first step at which it did.
        fit: The best posterior before that, and the history up to it; None if there is none.
    """

    def __init__(self, step: int, fit: Fit | None, remedy: str) -> None:
        kept = (
            f"the best posterior before it, of step {fit.history.best_step}, is in this error's `fit`"
            if fit
            else "it was before the first evaluation, so there is no earlier posterior to keep"
        )
        super().__init__(f"the loss became NaN or infinite at step {step}; {kept}. {remedy}")
        self.step = step
        self.fit = fit


class _Plan(NamedTuple):
    """What is fixed when the loop is compiled."""

    batches: int
    num_steps: int
    evaluate_every: int
    has_validation: bool


class _Carry(NamedTuple):
    state: Any
    order: Int[Array, " row"]
    best: Posterior
    best_score: Scalar
    best_step: Int[Array, ""]
    bad_step: Int[Array, ""]
    infos: dict[str, Float[Array, " step"]]
    scores: Float[Array, " evaluation"]


def fit(
    algorithm: Algorithm,
    data: Any,
    *,
    epochs: int,
    batch_size: int | None = None,
    validation: Any = None,
    evaluate_every: int | None = None,
    key: PRNGKey | int = 0,
    progress: bool = True,
) -> Fit:
    """Train.

    Args:
        algorithm: The method, such as ``ohsmc(model)``.
        data: A pair ``(inputs, targets)``, one row per example.
        epochs: How often to go through the data.
        batch_size: M, rows per step; all of them by default. Where M does not divide N the
            batches are made equal in size, to within one row, and no larger than M.
        validation: A pair like ``data``. The posterior returned is the one with the lowest
            negative log predictive density (NLPD) of the predictive mixture on it; without it,
            the last.
        evaluate_every: Score every so many steps; once an epoch by default.
        key: A ``jax.random.key`` or a whole number to make one from.
        progress: Whether to show a progress bar.

    Returns:
        The posterior and the history.

    Raises:
        TrainingDivergedError: The loss became NaN or infinite. It carries the best posterior
            so far.

    Example:
        >>> import jax.numpy as jnp, partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 5, 1]), "layers/0/*", pb.gaussian())
        >>> x = jnp.linspace(-1.0, 1.0, 8)[:, None]
        >>> trained = pb.fit(
        ...     pb.ohsmc(model, num_particles=10), (x, x), epochs=3, batch_size=4, progress=False
        ... )
        >>> trained.history.steps["ess"].shape
        (6,)
    """
    model = algorithm.model
    train = checked(model, data, "data")
    held_out = None if validation is None else checked(model, validation, "validation")
    require_count("epochs", epochs, "for example epochs=100.")
    batches = num_batches(train.mask.shape[0], batch_size)
    if evaluate_every is None:
        evaluate_every = batches
    require_count("evaluate_every", evaluate_every, "a number of steps.")
    plan = _Plan(batches, epochs * batches, evaluate_every, held_out is not None)
    if isinstance(key, int):
        key = jax.random.key(key)

    carry = _start(algorithm, plan, key, train)
    logger.debug("training for %d steps, recording %s", plan.num_steps, ", ".join(carry.infos))
    carry = _run(algorithm, plan, carry, key, train, held_out, 0, 0)  # no steps: compiles
    done, piece, warned = 0, 1, False
    with tqdm(total=plan.num_steps, disable=not progress, unit="step", leave=False) as bar:
        while done < plan.num_steps:
            stop = min(done + piece, plan.num_steps)
            before = time.perf_counter()
            carry = _run(algorithm, plan, carry, key, train, held_out, done, stop)
            bad_step = int(carry.bad_step)  # waits for the piece to end
            seconds = time.perf_counter() - before
            if bad_step >= 0:
                fit_so_far = _result(plan, carry, bad_step) if int(carry.best_step) > 0 else None
                raise TrainingDivergedError(bad_step + 1, fit_so_far, remedy(carry.infos, bad_step))
            num_particles = carry.best.particles.log_weights.shape[-1]
            warned = warned or warn_of_collapse(carry.infos, stop, num_particles)
            bar.update(stop - done)
            if plan.has_validation and np.isfinite(score := float(carry.best_score)):
                bar.set_postfix_str(f"best validation NLPD {score:.4f}", refresh=False)
            done = stop
            piece = max(1, min(16 * piece, int(piece * _SECONDS_PER_PIECE / max(seconds, 1e-6))))
    trained = _result(plan, carry, plan.num_steps)
    if algorithm.finish is None:
        return trained
    posterior, report = _finish(algorithm, jax.random.fold_in(key, 3), trained.posterior, train)
    return trained._replace(posterior=posterior, report=report)


def _result(plan: _Plan, carry: _Carry, num_steps: int) -> Fit:
    evaluated = _evaluated_steps(plan)
    evaluated = evaluated[evaluated <= num_steps]
    scores = np.asarray(carry.scores)[: len(evaluated)] if plan.has_validation else np.zeros(0)
    history = History(
        steps={name: np.asarray(values)[:num_steps] for name, values in carry.infos.items()},
        evaluated=evaluated,
        validation_nlpd=scores,
        best_step=int(carry.best_step),
    )
    return Fit(carry.best, history, {})


def _evaluated_steps(plan: _Plan) -> Int[np.ndarray, " evaluation"]:
    """Every k-th step, and the last."""
    regular = np.arange(plan.evaluate_every, plan.num_steps + 1, plan.evaluate_every)
    return np.union1d(regular, [plan.num_steps])


@partial(jax.jit, static_argnames=("algorithm",))
def _finish(
    algorithm: Algorithm, key: PRNGKey, posterior: Posterior, train: Batch
) -> tuple[Posterior, Report]:
    assert algorithm.finish is not None
    return algorithm.finish(key, posterior, train)


@partial(jax.jit, static_argnames=("algorithm", "plan"))
def _start(algorithm: Algorithm, plan: _Plan, key: PRNGKey, train: Batch) -> _Carry:
    state = algorithm.init(jax.random.fold_in(key, 0))
    order = jnp.arange(train.mask.shape[0], dtype=jnp.int32)
    batch = take(train, order, jnp.zeros((), jnp.int32), plan.batches)
    _, info = jax.eval_shape(algorithm.step, key, state, batch)
    return _Carry(
        state=state,
        order=order,
        best=jax.tree.map(jnp.copy, algorithm.posterior(state)),
        best_score=jnp.asarray(jnp.inf, jnp.result_type(float)),
        best_step=jnp.zeros((), jnp.int32),
        bad_step=-jnp.ones((), jnp.int32),
        infos={name: jnp.full(plan.num_steps, jnp.nan, x.dtype) for name, x in info.items()},
        scores=jnp.full(len(_evaluated_steps(plan)), jnp.nan),
    )


@partial(jax.jit, static_argnames=("algorithm", "plan"), donate_argnames=("carry",))
def _run(
    algorithm: Algorithm,
    plan: _Plan,
    carry: _Carry,
    key: PRNGKey,
    train: Batch,
    validation: Batch | None,
    start: Int[Array, ""] | int,
    stop: Int[Array, ""] | int,
) -> _Carry:
    rows = train.mask.shape[0]

    def score(posterior: Posterior, step: Int[Array, ""]) -> Scalar:
        if validation is None:
            # The later the better, as long as it is finite.
            finite = jnp.isfinite(posterior.particles.values).all()
            return jnp.where(finite, -(step + 1).astype(carry.best_score.dtype), jnp.nan)
        log_densities = _log_density(algorithm.model, posterior, validation, None, None)
        return -jnp.mean(log_densities).astype(carry.best_score.dtype)

    def evaluate(carry: _Carry, step: Int[Array, ""]) -> _Carry:
        posterior = algorithm.posterior(carry.state)
        value = score(posterior, step)
        better: Bool[Array, ""] = value < carry.best_score
        keep = partial(jax.tree.map, partial(jnp.where, better))
        return carry._replace(
            best=keep(posterior, carry.best),
            best_score=jnp.where(better, value, carry.best_score),
            best_step=jnp.where(better, step + 1, carry.best_step),
            scores=carry.scores.at[step // plan.evaluate_every].set(value),
        )

    def body(step: Int[Array, ""], carry: _Carry) -> _Carry:
        epoch, index = step // plan.batches, step % plan.batches
        key_epoch = jax.random.fold_in(jax.random.fold_in(key, 1), epoch)
        key_step = jax.random.fold_in(jax.random.fold_in(key, 2), step)
        order = jax.lax.cond(index == 0, lambda: permutation(key_epoch, rows), lambda: carry.order)
        batch = take(train, order, index, plan.batches)
        state, info = algorithm.step(key_step, carry.state, batch)
        failed = ~jnp.isfinite(info["loss"]) & (carry.bad_step < 0)
        carry = carry._replace(
            state=state,
            order=order,
            bad_step=jnp.where(failed, step, carry.bad_step),
            infos={name: carry.infos[name].at[step].set(info[name]) for name in carry.infos},
        )
        due = ((step + 1) % plan.evaluate_every == 0) | (step + 1 == plan.num_steps)
        return jax.lax.cond(due & (carry.bad_step < 0), evaluate, lambda carry, step: carry, carry, step)

    start, stop = jnp.asarray(start, jnp.int32), jnp.asarray(stop, jnp.int32)
    return jax.lax.fori_loop(start, stop, body, carry)

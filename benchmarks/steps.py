"""A training step: time and memory against the naive one, against VB and MAP, and against the limit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

import partialbayes as pb
from benchmarks.measure import Row, interleaved, row, temporary_bytes
from benchmarks.naive import bare_passes, naive_ohsmc
from benchmarks.problems import Problem, mnist, regression, two_moons, uci_size
from partialbayes._engine.epochs import take
from partialbayes.model._batch import as_batch

GOALS = {
    ("two moons", 100): ">= 4",
    ("two moons", 1000): ">= 8",
    ("regression", 1000): ">= 2.5",
    ("MNIST network", 100): ">= 5",
}


def batches_of(problem: Problem) -> list[pb.types.Batch]:
    """One epoch, batch by batch, as a Python loop would be given it."""
    train = as_batch(problem.model, problem.train, "data")
    rows = train.mask.shape[0]
    count = -(-rows // problem.batch_size)
    cut = jax.jit(take, static_argnames="batches")
    return [cut(train, jnp.arange(rows), jnp.asarray(i), batches=count) for i in range(count)]


def our_steps(algorithm: pb.types.Algorithm, problem: Problem, steps: int) -> Callable[[], Any]:
    """So many steps of an algorithm in one compiled loop, as `fit` runs them."""
    train = as_batch(problem.model, problem.train, "data")
    rows = train.mask.shape[0]
    count = -(-rows // problem.batch_size)

    @jax.jit
    def run(state: Any) -> Any:
        def body(index: jax.Array, state: Any) -> Any:
            batch = take(train, jnp.arange(rows), index % count, count)
            return algorithm.step(jax.random.fold_in(jax.random.key(1), index), state, batch)[0]

        return jax.lax.fori_loop(0, jnp.asarray(steps), body, state)

    state = jax.jit(algorithm.init)(jax.random.key(0))
    return partial(run, state)


def naive_steps(problem: Problem, num_particles: int, steps: int) -> Callable[[], Any]:
    """So many calls of the naive step, one for each batch."""
    init, step = naive_ohsmc(problem.reference, num_particles)
    compiled = jax.jit(step)
    start = jax.jit(init)(jax.random.key(0))
    batches = batches_of(problem)

    def run() -> Any:
        state = start
        for index in range(steps):
            key = jax.random.fold_in(jax.random.key(1), index)
            state = compiled(key, state, batches[index % len(batches)])
        return state

    return run


def bare(problem: Problem, num_particles: int, steps: int) -> Callable[[], Any]:
    """As many bare forward and backward passes, in one compiled loop."""
    params = problem.model.init(jax.random.key(0))
    values = problem.model.sample_prior(jax.random.key(1), params.psi, num_particles)
    passes, batch = bare_passes(problem.model), batches_of(problem)[0]

    @jax.jit
    def run(values: jax.Array) -> jax.Array:
        def body(_: Any, values: jax.Array) -> jax.Array:
            total, gradient = passes(values, params.psi, batch)
            # Each pass depends on the one before, so that none is left out.
            used = total + sum(leaf.sum() for leaf in jax.tree.leaves(gradient))
            return values + 1e-20 * used

        return jax.lax.fori_loop(0, jnp.asarray(steps), body, values)

    return partial(run, values)


def against_naive(quick: bool) -> Iterator[Row]:
    """Step time and memory of OHSMC on every problem."""
    cases = [(two_moons(), 100, 100), (two_moons(), 1000, 50), (regression(), 100, 100)]
    cases += [(regression(), 1000, 50), (uci_size(), 100, 50), (uci_size(), 1000, 20)]
    cases += [(mnist(), 100, 1)]
    for problem, num_particles, steps in cases:
        label = f"{problem.name}, J={num_particles}"
        large = problem.name == "MNIST network"
        if quick:
            steps = 1 if large else 5
        repeats = (2 if large else 3) if quick else (5 if large else 21)
        algorithm = pb.ohsmc(
            problem.model, num_particles=num_particles, kernel=pb.kernels.random_walk(0.01)
        )
        still = pb.ohsmc(problem.model, num_particles=num_particles, kernel=pb.kernels.identity())
        times = interleaved(
            {
                "ours": our_steps(algorithm, problem, steps),
                "naive": naive_steps(problem, num_particles, steps),
                "bare": bare(problem, num_particles, steps),
                "still": our_steps(still, problem, steps),
            },
            repeats,
        )
        ratio, spread = times.ratio("naive", "ours")
        goal = GOALS.get((problem.name, num_particles))
        yield row(f"step, {label}: naive / ours", ratio, "times", "naive OHSMC", goal, spread)
        for name in ("ours", "naive", "bare", "still"):
            title = {"bare": "bare passes", "still": "ours, without noise"}.get(name, name)
            milliseconds = times.median(name) / steps * 1e3
            spread = round(times.spread(name) / steps * 1e3, 4)
            yield row(f"step, {label}: {title}", milliseconds, "ms", spread=spread)
        yield from memory(problem, num_particles, label)


def memory(problem: Problem, num_particles: int, label: str) -> Iterator[Row]:
    """Temporary memory of one step."""
    batch, key = batches_of(problem)[0], jax.random.key(0)
    init, step = naive_ohsmc(problem.reference, num_particles)
    naive = temporary_bytes(step, key, jax.eval_shape(init, key), batch)
    algorithm = pb.ohsmc(problem.model, num_particles=num_particles, kernel=pb.kernels.random_walk(0.01))
    ours = temporary_bytes(algorithm.step, key, jax.eval_shape(algorithm.init, key), batch)
    goal = "<= 0.2" if problem.name == "MNIST network" else None
    yield row(f"memory of a step, {label}: ours / naive", ours / naive, "times", "naive OHSMC", goal)
    yield row(f"memory of a step, {label}: ours", ours / 1e6, "MB")


def against_methods(quick: bool) -> Iterator[Row]:
    """OHSMC beside VB with as many samples, and beside MAP."""
    for problem, num_particles, steps in ((two_moons(), 100, 100), (two_moons(), 1000, 50)):
        steps = 5 if quick else steps
        methods = {
            "ohsmc": pb.ohsmc(
                problem.model, num_particles=num_particles, kernel=pb.kernels.random_walk(0.01)
            ),
            "forgetting": pb.ohsmc(
                problem.model, num_particles=num_particles, kernel=pb.kernels.forgetting("diagonal")
            ),
            "vb": pb.algorithms.mean_field_vb(problem.model, num_samples=num_particles),
            "map": pb.map_estimate(problem.model),
        }
        jobs = {name: our_steps(method, problem, steps) for name, method in methods.items()}
        times = interleaved(jobs, 3 if quick else 21)
        label = f"{problem.name}, J={num_particles}"
        ratio, spread = times.ratio("ohsmc", "vb")
        yield row(f"step, {label}: OHSMC / VB", ratio, "times", "our VB", "<= 1.2", spread)
        ratio, spread = times.ratio("forgetting", "vb")
        yield row(f"step, {label}: OHSMC, forgetting / VB", ratio, "times", "our VB", spread=spread)
        ratio, spread = times.ratio("ohsmc", "map")
        yield row(f"step, {label}: OHSMC / MAP", ratio, "times", "our MAP", spread=spread)


def scaling(quick: bool) -> Iterator[Row]:
    """How a step grows with J, d (the stochastic layer), w (all weights), M, and not with N."""

    def step(problem: Problem, num_particles: int, steps: int, chunk: int | None = None) -> float:
        algorithm = pb.ohsmc(
            pb.model.with_chunks(problem.model, chunk),
            num_particles=num_particles,
            kernel=pb.kernels.random_walk(0.01),
        )
        steps = 2 if quick else steps
        times = interleaved({"step": our_steps(algorithm, problem, steps)}, 3 if quick else 7)
        return times.median("step") / steps * 1e3

    for power, steps in ((2, 200), (3, 50), (4, 5), (5, 1)):
        yield row(f"scaling, J = {10**power}", step(two_moons(), 10**power, steps), "ms")
    yield row("scaling, J = 100000, in chunks of 10000", step(two_moons(), 10**5, 1, 10**4), "ms")
    for width in (5, 20, 80):
        problem = two_moons(widths=(100, 20, width))
        yield row(f"scaling, d = {problem.model.split.dim}", step(problem, 1000, 20), "ms")
    for width in (100, 1000, 10000):
        problem = two_moons(widths=(width, 20, 5))
        total = sum(leaf.size for leaf in problem.model.split.leaves)
        yield row(f"scaling, w = {total} weights", step(problem, 1000, 20), "ms")
    for size in (20, 80, 320):
        yield row(f"scaling, M = {size} rows", step(two_moons(1280, size), 1000, 20), "ms")
    for rows in (100, 1000, 10000):
        yield row(f"scaling, N = {rows} rows of data, M = 20", step(two_moons(rows), 1000, 20), "ms")

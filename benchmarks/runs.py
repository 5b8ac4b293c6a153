"""Whole runs: validation, many seeds at once, time to a score, checkpoints, compilation, memory."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

import partialbayes as pb
from benchmarks.measure import Row, interleaved, row
from benchmarks.naive import naive_ohsmc
from benchmarks.problems import Problem, regression, two_moons
from benchmarks.steps import batches_of
from partialbayes.model._batch import as_batch
from partialbayes.prediction import _mixture as mixture


def train(
    problem: Problem, algorithm: pb.types.Algorithm, epochs: int, **settings: Any
) -> pb.results.Fit:
    return pb.fit(
        algorithm,
        problem.train,
        epochs=epochs,
        batch_size=problem.batch_size,
        **settings,
    )


def validation(quick: bool) -> Iterator[Row]:
    """What it costs to score the validation data once an epoch."""
    epochs = 3 if quick else 60
    for problem in (two_moons(), regression()):
        algorithm = pb.ohsmc(problem.model, num_particles=1000, kernel=pb.kernels.random_walk(0.01))

        def run(held_out: Any, problem: Problem = problem, algorithm: Any = algorithm) -> Any:
            return train(problem, algorithm, epochs, validation=held_out).posterior

        times = interleaved(
            {
                "with": lambda run=run, problem=problem: run(problem.validation),
                "without": lambda run=run: run(None),
                "on 250 particles": lambda run=run, problem=problem: run(
                    pb.Validation(problem.validation, particles=250)
                ),
            },
            3 if quick else 9,
        )
        ratio, spread = times.ratio("with", "without")
        label = f"epoch, {problem.name}, J=1000: with validation / without"
        yield row(label, ratio, "times", "no validation", "<= 1.2", spread)
        ratio, spread = times.ratio("on 250 particles", "without")
        yield row(f"{label}, 250 particles scored", ratio, "times", "no validation", None, spread)


def many_seeds(quick: bool) -> Iterator[Row]:
    """16 runs as one program against 16 in sequence."""
    problem, epochs = two_moons(), 2 if quick else 20
    for num_particles in (100, 1000):
        algorithm = pb.ohsmc(
            problem.model, num_particles=num_particles, kernel=pb.kernels.random_walk(0.01)
        )

        def together(algorithm: pb.types.Algorithm = algorithm) -> Any:
            runs = pb.fit_many(
                algorithm,
                problem.train,
                epochs=epochs,
                repeats=16,
                batch_size=problem.batch_size,
            )
            return [run.posterior for run in runs]

        def in_turn(algorithm: pb.types.Algorithm = algorithm) -> Any:
            return [train(problem, algorithm, epochs, key=seed).posterior for seed in range(16)]

        times = interleaved({"together": together, "in turn": in_turn}, 3 if quick else 5)
        ratio, spread = times.ratio("in turn", "together")
        name = f"16 seeds, two moons, J={num_particles}: in sequence / at once"
        yield row(name, ratio, "times", "16 calls of fit", None, spread)


def time_to_score(quick: bool) -> Iterator[Row]:
    """Seconds until the validation NLPD of two moons first falls below 0.35, compilation apart.

    Both validate after every epoch; the same kernel, optimizer and number of particles.
    """
    problem, goal, epochs = two_moons(), 0.35, 5 if quick else 60
    algorithm = pb.ohsmc(problem.model, num_particles=1000, kernel=pb.kernels.random_walk(0.01))
    seeds = range(1 if quick else 5)
    train(problem, algorithm, epochs, validation=problem.validation)  # compiles
    seconds: dict[str, list[float]] = {"ours": [], "naive": []}
    for seed in seeds:
        begin = time.perf_counter()
        run = train(problem, algorithm, epochs, validation=problem.validation, key=seed)
        jax.block_until_ready(run.posterior)
        whole = time.perf_counter() - begin
        reached = np.flatnonzero(run.history.validation_nlpd < goal)
        share = (reached[0] + 1) / epochs if reached.size else np.inf
        seconds["ours"].append(whole * share)
        seconds["naive"].append(_naive_time_to(problem, goal, epochs, seed))
    missed = {name: int(np.isinf(values).sum()) for name, values in seconds.items()}
    ours, naive = (np.median(seconds[name]) for name in ("ours", "naive"))
    title = f"time to validation NLPD {goal}, two moons, J=1000"
    if np.isfinite(ours):
        yield row(f"{title}: ours", ours, "s")
    if np.isfinite(ours) and np.isfinite(naive):
        yield row(f"{title}: naive / ours", naive / ours, "times", "naive OHSMC")
    yield row(f"{title}: seeds that never got there, ours", missed["ours"], f"of {len(seeds)}")
    yield row(f"{title}: seeds that never got there, naive", missed["naive"], f"of {len(seeds)}")


def _naive_time_to(problem: Problem, goal: float, epochs: int, seed: int) -> float:
    init, step = naive_ohsmc(problem.model, 1000)
    compiled = jax.jit(step)
    batches = batches_of(problem)
    held_out = as_batch(problem.model, problem.validation, "validation")
    for attempt in range(2):  # the first compiles
        state = init(jax.random.key(seed))
        begin = time.perf_counter()
        for epoch in range(epochs if attempt else 1):
            order = np.random.default_rng([seed, epoch]).permutation(len(batches))
            for place, index in enumerate(order):
                key = jax.random.fold_in(jax.random.key(seed), 1000 * epoch + place)
                state = compiled(key, state, batches[index])
            posterior = pb.types.Posterior(
                state.psi, pb.types.Particles(state.values, state.log_weights)
            )
            score = -float(
                mixture.log_density(problem.model, posterior, held_out, pb.types.Chunks()).mean()
            )
            if attempt and score < goal:
                return time.perf_counter() - begin
    return np.inf


def checkpoints(quick: bool) -> Iterator[Row]:
    """A save, as a share of the minute between two of them; and what it takes to go on from one."""
    problem = two_moons()
    algorithm = pb.ohsmc(problem.model, num_particles=1000, kernel=pb.kernels.random_walk(0.01))
    epochs = 3 if quick else 100
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.safetensors"

        def run(**settings: Any) -> Any:
            path.unlink(missing_ok=True)
            return train(problem, algorithm, epochs, **settings).posterior

        saving = pb.Run(checkpoint=pb.training.Checkpoints(path, every_steps=50))
        times = interleaved(
            {
                "plain": run,
                "saved": lambda: run(run=saving),
            },
            3 if quick else 9,
        )
        extra = times.seconds["saved"] - times.seconds["plain"]
        per_save = float(np.median(extra)) / (epochs * 5 // 50 or 1)
        yield row("checkpoint, two moons, J=1000: one save", per_save * 1e3, "ms")
        share = per_save / 60.0
        name = "checkpoints at the default of one a minute: share of the time"
        yield row(name, 100 * max(share, 0.0), "%", "no checkpoints", "<= 2")
        begin = time.perf_counter()
        train(problem, algorithm, epochs, run=pb.Run(checkpoint=path, resume=True))
        yield row("resume of a finished run, two moons", (time.perf_counter() - begin) * 1e3, "ms")


_START = """
import json, sys, time
import jax
import partialbayes as pb
from benchmarks.problems import two_moons
problem = two_moons()
algorithm = pb.ohsmc(problem.model, num_particles=1000, kernel=pb.kernels.random_walk(0.01))
spent = []
def note(event, seconds, **_):
    if event.endswith("backend_compile_duration"):
        spent.append(seconds)
jax.monitoring.register_event_duration_secs_listener(note)
begin = time.perf_counter()
with pb.io.compilation_cache(sys.argv[1]):
    pb.fit(algorithm, problem.train, epochs=1, batch_size=20, validation=problem.validation)
print(json.dumps([time.perf_counter() - begin, sum(spent)]))
"""


def compilation(quick: bool) -> Iterator[Row]:
    """Compile time of a first start, and of a second with the compilation cache."""

    def start(folder: str) -> tuple[float, float]:
        command = [sys.executable, "-c", _START, folder]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return tuple(json.loads(done.stdout.splitlines()[-1]))

    ratios, whole, firsts = [], [], []
    for _ in range(1 if quick else 3):
        with tempfile.TemporaryDirectory() as folder:
            first, second = start(folder), start(folder)
        firsts.append(first)
        ratios.append(second[1] / first[1])
        whole.append(second[0] / first[0])
    name = "compilation, two moons, J=1000"
    yield row(f"{name}: first start", np.median([first[1] for first in firsts]), "s")
    yield row(
        f"{name}: second start / first, with the cache",
        np.median(ratios),
        "times",
        "first start",
        "<= 0.2",
    )
    title = f"{name}: a whole short fit, second start / first (tracing is not cached)"
    yield row(title, np.median(whole), "times", "first start")


_LARGE = """
import json, sys, time
import numpy as np
import partialbayes as pb
from benchmarks.measure import peak_memory
from benchmarks.problems import mnist, two_moons
name, num_particles, gigabytes = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
problem = {"two moons": two_moons, "MNIST network": mnist}[name]()
model = pb.training.with_memory_budget(
    problem.model, problem.train, gigabytes=gigabytes, num_particles=num_particles,
    batch_size=problem.batch_size,
)
algorithm = pb.ohsmc(model, num_particles=num_particles, kernel=pb.kernels.random_walk(0.01))
rows = problem.batch_size
begin = time.perf_counter()
x, y = problem.train
trained = pb.fit(
    algorithm, (x[: 2 * rows], y[: 2 * rows]), epochs=1, batch_size=rows,
    validation=(x[:100], y[:100]),
)
assert np.isfinite(trained.history.metrics["loss"]).all()
seconds = time.perf_counter() - begin
print(json.dumps([peak_memory() / 1e9, model.chunks.particles or num_particles, seconds]))
"""


def memory_bound(quick: bool) -> Iterator[Row]:
    """Peak memory of a whole process that trains with very many particles, Python included."""
    cases = (("two moons", 2000 if quick else 100_000), ("MNIST network", 4 if quick else 1000))
    for name, num_particles in cases:
        command = [sys.executable, "-c", _LARGE, name, str(num_particles), "2.5"]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        peak, chunk, seconds = json.loads(done.stdout.splitlines()[-1])
        title = f"peak memory, {name}, J={num_particles}, chunk of {chunk}"
        yield row(title, peak, "GB", None, "<= 4")
        yield row(f"two steps and a validation, {name}, J={num_particles}, compiled too", seconds, "s")

"""Is a posterior right? Kernels and methods on models whose posterior and evidence are known.

``walks`` (the default): OHSMC's kernels on y_n = φ + N(0, 1), φ ~ N(0, 1), N = 300 rows in batches of
M = 50, where the posterior of φ is N(Σy / 301, 1/301). For each kernel, after burn-in:

- spread: mean over steps of the particles' variance, over the posterior variance;
- jitter: standard deviation over steps of the particles' mean, in posterior standard deviations.

Beside the spread stands what theory gives: the fixed point of the Kalman recursion.

``kernels``: exact draws of N(0, I), moved 50 times by the kernels that adapt themselves; the variance
they settle at, which should be 1.

``evidence``: the methods that report an evidence, at their defaults, on y = X φ + N(0, 0.1 I),
φ ~ N(0, I), X of 2 d rows of standard normal numbers. Over independent runs:

- error: mean of log Ẑ − log Z, and of Ẑ/Z;
- reported: mean of the standard error that a run reports; spread: what log Ẑ really scatters by;
- covered: share of runs with |log Ẑ − log Z| below 1.96 reported standard errors;
- variance: of the particles over the exact one, mean over directions, and the squared error of their
  mean in posterior variances.

``ranks``: simulation-based calibration of `smc` at its defaults, d = 10: 12 times the variance of the
rank of the truth among the particles, where 1 is right and more is a posterior too narrow.

Run: python benchmarks/calibration.py [walks | kernels | evidence | ranks] [--runs 40] [--dims 10]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import partialbayes as pb
from partialbayes._engine.epochs import permutation, take
from partialbayes.model._batch import full_batch
from partialbayes.weights import (
    uniform_log_weights,
    weighted_covariance,
    weighted_mean,
    weighted_variance,
)

ROWS, BATCH, PARTICLES, EPOCHS, BURN_IN = 300, 50, 4000, 220, 20


def location_model() -> pb.types.Model:
    """One stochastic number, the mean of normal targets."""
    network = pb.types.Network(
        init=lambda key: {"location": jnp.zeros(1)},
        apply=lambda params, inputs: jnp.broadcast_to(params["location"], inputs.shape[:1]),
    )
    return pb.partial_bnn(network, "location", pb.gaussian(1.0))


def measure(algorithm: pb.types.Algorithm, targets: jax.Array) -> tuple[float, float]:
    """Spread and jitter of one method."""
    data = full_batch(jnp.zeros((ROWS, 1)), targets)
    batches = ROWS // BATCH

    def step(state, index):
        key_order = jax.random.fold_in(jax.random.key(1), index // batches)
        batch = take(data, permutation(key_order, data.mask), index % batches, batches)
        state, _ = algorithm.step(jax.random.fold_in(jax.random.key(2), index), state, batch)
        particles = algorithm.posterior(state).particles
        return state, (weighted_mean(particles)[0], weighted_variance(particles)[0])

    @jax.jit
    def run():
        state = algorithm.init(jax.random.key(0))
        return jax.lax.scan(step, state, jnp.arange(EPOCHS * batches))[1]

    means, variances = run()
    kept = slice(BURN_IN * batches, None)
    variance = 1.0 / (1.0 + ROWS)
    return float(variances[kept].mean() / variance), float(means[kept].std() / variance**0.5)


def settled(predict) -> float:
    """Where the Kalman recursion's variance settles, over the posterior variance."""
    variance = 1.0
    for _ in range(10_000):
        variance = 1.0 / (1.0 / predict(variance) + BATCH)
    return variance * (1.0 + ROWS)


def methods() -> dict[str, tuple[pb.types.Algorithm, float]]:
    """Every method with the spread that theory gives it."""
    model, share = location_model(), BATCH / ROWS

    def ohsmc(kernel: pb.types.Kernel) -> pb.types.Algorithm:
        return pb.ohsmc(model, num_particles=PARTICLES, kernel=kernel, optimizer=optax.set_to_zero())

    def forget(variance: float) -> float:
        return 1.0 / ((1.0 - share) / variance + share)

    # The variance at which a random walk happens to be right, known here and nowhere else.
    lucky = BATCH / ((1 + ROWS) * (1 + ROWS - BATCH))
    decay = np.exp(-0.1)
    return {
        "random walk 0.01": (ohsmc(pb.kernels.random_walk(0.01)), settled(lambda p: p + 0.01)),
        "random walk q*": (ohsmc(pb.kernels.random_walk(lucky)), settled(lambda p: p + lucky)),
        "guided Langevin 0.01": (ohsmc(pb.kernels.guided_langevin(0.01)), settled(lambda p: p + 0.01)),
        "Ornstein-Uhlenbeck 0.1": (
            ohsmc(pb.kernels.ornstein_uhlenbeck(0.1)),
            settled(lambda p: decay * p + 1.0 - decay),
        ),
        "forgetting, full": (ohsmc(pb.kernels.forgetting()), settled(forget)),
        "forgetting, diagonal": (ohsmc(pb.kernels.forgetting("diagonal")), settled(forget)),
        "extended Kalman": (
            pb.algorithms.ekf(model, num_particles=PARTICLES, optimizer=optax.set_to_zero()),
            settled(forget),
        ),
    }


def walks() -> None:
    targets = jnp.asarray(np.random.default_rng(0).normal(0.5, 1.0, ROWS), float)
    print(f"N = {ROWS}, M = {BATCH}, J = {PARTICLES}, {EPOCHS} epochs less {BURN_IN} of burn-in")
    print(f"{'method':<24}{'spread':>8}{'theory':>8}{'jitter':>8}")
    for name, (algorithm, theory) in methods().items():
        spread, jitter = measure(algorithm, targets)
        print(f"{name:<24}{spread:>8.3f}{theory:>8.3f}{jitter:>8.3f}")


def settled_variance(kernel: pb.types.Kernel, dim: int, num_particles: int, runs: int) -> np.ndarray:
    """Of exact draws of N(0, I) after fifty moves, one number for each run."""
    target = pb.types.Target(
        log_density=lambda phi: -0.5 * jnp.sum(jnp.square(phi)),
        log_potential=lambda phi: 0.0 * jnp.sum(phi),
        prior=pb.types.Moments(jnp.zeros(dim), jnp.ones(dim)),
        fraction=jnp.ones(()),
    )
    log_weights = uniform_log_weights(num_particles)

    def one(key: jax.Array) -> jax.Array:
        key_start, key_moves = jax.random.split(key)
        start = jax.random.normal(key_start, (num_particles, dim))

        def move(carry, key):
            values, state = carry
            moved = kernel.step(key, pb.types.Particles(values, log_weights), target, state)
            return (moved.values, moved.state), weighted_variance(
                pb.types.Particles(moved.values, log_weights)
            ).mean()

        state = kernel.init(pb.types.Particles(start, log_weights))
        _, variances = jax.lax.scan(move, (start, state), jax.random.split(key_moves, 50))
        return variances[25:].mean()

    return np.asarray(jax.lax.map(jax.jit(one), jax.random.split(jax.random.key(0), runs)), float)


def kernels() -> None:
    cases = (("adapted_hamiltonian", {}), ("adapted_metropolis", {"num_steps": 20}))
    print(f"{'kernel':<24}{'d':>5}{'J':>6}{'variance':>10}{'±':>8}")
    for name, settings in cases:
        kernel = getattr(pb.kernels, name)(**settings)
        for dim, num_particles in ((10, 1000), (10, 4000), (50, 1000), (50, 200), (10, 100)):
            found = settled_variance(kernel, dim, num_particles, 10)
            error = found.std(ddof=1) / len(found) ** 0.5
            print(f"{name:<24}{dim:>5}{num_particles:>6}{found.mean():>10.4f}{error:>8.4f}", flush=True)


class Linear(NamedTuple):
    """A linear-Gaussian model with its data, posterior and log-evidence."""

    model: pb.types.Model
    inputs: jax.Array
    targets: jax.Array
    mean: np.ndarray
    covariance: np.ndarray
    log_evidence: float


NOISE = 0.1


def linear(dim: int, seed: int = 0) -> Linear:
    """y = X φ + noise, drawn from itself."""
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(2 * dim, dim))
    targets = inputs @ rng.normal(size=dim) + NOISE**0.5 * rng.normal(size=2 * dim)
    network = pb.types.Network(
        init=lambda key: {"head": jnp.zeros(dim)}, apply=lambda params, x: x @ params["head"]
    )
    covariance = np.linalg.inv(inputs.T @ inputs / NOISE + np.eye(dim))
    marginal = NOISE * np.eye(2 * dim) + inputs @ inputs.T
    log_determinant = np.linalg.slogdet(2 * np.pi * marginal)[1]
    return Linear(
        pb.partial_bnn(network, "head", pb.gaussian(NOISE)),
        jnp.asarray(inputs, float),
        jnp.asarray(targets, float),
        covariance @ inputs.T @ targets / NOISE,
        covariance,
        float(-0.5 * (targets @ np.linalg.solve(marginal, targets) + log_determinant)),
    )


Run = Callable[[jax.Array, Linear], tuple[jax.Array, jax.Array, pb.types.Particles]]


def tempered(**settings) -> Run:
    """log Ẑ, its standard error and the particles of a tempered sampler, as `refine` calls it."""

    def run(key: jax.Array, problem: Linear):
        psi = problem.model.init(jax.random.key(0)).psi
        start = pb.types.Particles(jnp.asarray(problem.mean, float)[None], jnp.zeros(1))
        sampler = pb.samplers.tempered_smc(**settings)
        batch = full_batch(problem.inputs, problem.targets)
        posterior, report = sampler(key, problem.model, pb.types.Posterior(psi, start), batch)
        return report.log_evidence, report.standard_error, posterior.particles

    return run


def by_smc(**settings) -> Run:
    """The same of one step of `smc`."""

    def run(key: jax.Array, problem: Linear):
        algorithm = pb.smc(problem.model, **settings)
        state = algorithm.init(jax.random.key(0))
        state, info = algorithm.step(key, state, full_batch(problem.inputs, problem.targets))
        error = jnp.sqrt(jnp.maximum(info["log_evidence_variance"], 0.0))
        return info["log_evidence_increment"], error, algorithm.posterior(state).particles

    return run


def compare(name: str, run: Run, dim: int, runs: int) -> None:
    """One line of the table."""
    problem = linear(dim)
    whiten = jnp.asarray(np.linalg.inv(np.linalg.cholesky(problem.covariance)), float)

    @jax.jit
    def one(key):
        log_evidence, error, particles = run(key, problem)
        white = particles._replace(
            values=(particles.values - jnp.asarray(problem.mean, float)[None]) @ whiten.T
        )
        variance = jnp.trace(weighted_covariance(white)) / dim
        return log_evidence, error, variance, jnp.mean(jnp.square(weighted_mean(white)))

    begin = time.perf_counter()
    found = np.asarray([one(key) for key in jax.random.split(jax.random.key(1), runs)], float)
    seconds = (time.perf_counter() - begin) / runs
    error, reported, variance, mean = found.T
    error = error - problem.log_evidence
    root = runs**0.5
    ratio = np.exp(error)
    covered = np.mean(np.abs(error) < 1.96 * reported)
    print(
        f"{name:<26}{dim:>4} {error.mean():>+7.3f} ± {error.std(ddof=1) / root:.3f}"
        f" {ratio.mean():>7.3f} ± {ratio.std(ddof=1) / root:.3f} {reported.mean():>8.3f}"
        f" {error.std(ddof=1):>7.3f} {covered:>8.2f} {variance.mean():>8.3f} ±"
        f" {variance.std(ddof=1) / root:.3f} {mean.mean():>7.3f} {seconds:>7.2f}",
        flush=True,
    )


def evidence(runs: int, dims: list[int]) -> None:
    waste_free = {"waste_free": 50, "kernel": pb.kernels.adapted_metropolis()}
    cases: list[tuple[str, Run, int]] = [
        ("tempered_smc", tempered(), 10),
        ("tempered_smc", tempered(), 50),
        ("tempered_smc", tempered(), 105),
        ("tempered_smc, J = 100", tempered(num_particles=100), 10),
        ("waste_free=50, Metropolis", tempered(**waste_free), 10),
        ("smc", by_smc(), 10),
        ("smc", by_smc(), 50),
        ("smc", by_smc(), 105),
    ]
    print(
        f"{'method':<27}{'d':>3} {'error':>15} {'Ẑ/Z':>15} {'reported':>8} {'spread':>7} {'covered':>8}"
        f" {'variance':>16} {'mean':>7} {'seconds':>7}"
    )
    for name, run, dim in cases:
        if dim in dims:
            compare(name, run, dim, runs)


def ranks(runs: int) -> None:
    """The truth is a draw of the posterior: its rank among the particles is uniform."""
    dim = 10
    problem = linear(dim)
    algorithm = pb.smc(problem.model)
    psi = problem.model.init(jax.random.key(0)).psi

    @jax.jit
    def one(key):
        key_truth, key_noise, key_run = jax.random.split(key, 3)
        truth = problem.model.sample_prior(key_truth, psi, 1)[0]
        noise = NOISE**0.5 * jax.random.normal(key_noise, problem.targets.shape)
        batch = full_batch(problem.inputs, problem.inputs @ truth + noise)
        state, _ = algorithm.step(key_run, algorithm.init(jax.random.key(0)), batch)
        values, log_weights = algorithm.posterior(state).particles
        return jnp.exp(log_weights) @ (values < truth[None]).astype(float)

    found = np.asarray([one(key) for key in jax.random.split(jax.random.key(2), runs)], float)
    spread = 12.0 * np.square(found - 0.5).mean(axis=1)
    print(f"12 var(rank) {spread.mean():.3f} ± {spread.std(ddof=1) / runs**0.5:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "part", nargs="?", default="walks", choices=("walks", "kernels", "evidence", "ranks")
    )
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--dims", type=int, nargs="+", default=[10, 50, 105], help="of evidence")
    arguments = parser.parse_args()
    if arguments.part == "walks":
        walks()
    elif arguments.part == "kernels":
        kernels()
    elif arguments.part == "evidence":
        evidence(arguments.runs, arguments.dims)
    else:
        ranks(10 * arguments.runs)


if __name__ == "__main__":
    main()

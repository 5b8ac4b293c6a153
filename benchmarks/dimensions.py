"""Does OHSMC hold the posterior as φ grows? Its kernels at J = 4 d, against the exact posterior.

Linear-Gaussian models have it in closed form; of logistic regression it comes from many chains of
Hamiltonian Monte Carlo in coordinates whitened by Laplace's approximation. ψ has nothing to learn.
For each kernel, at the ends of epochs, averaged over the second half of a run and over several runs:

- variance: that of the cloud over the exact one, averaged over directions; 1 is right;
- mean: the squared error of the cloud's mean in posterior variances per dimension; 0 is right.

± is the standard error over the runs. ``all`` stands for every kernel of `KERNELS`.

Run: python benchmarks/dimensions.py [linear,logistic] [5,20,51,105] [epochs] [transport | all]
"""

from __future__ import annotations

import sys
import time
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import optax

import partialbayes as pb
from partialbayes._engine.epochs import num_batches, permutation, take
from partialbayes.model._batch import full_batch
from partialbayes.weights import weighted_covariance, weighted_mean

ROWS = {5: 100, 20: 300, 51: 500, 105: 1000, 300: 3000}
RUNS = {5: 16, 20: 8, 51: 4, 105: 3}
BATCH = 32
KERNELS = {
    "transport": pb.kernels.transport,
    "affine_langevin": pb.kernels.affine_langevin,
    "forgetting diagonal": lambda: pb.kernels.forgetting("diagonal"),
    "forgetting": pb.kernels.forgetting,
}


def draw(kind: str, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows with correlated inputs, and targets of the model itself."""
    rng = np.random.default_rng(0)
    mixing = np.eye(dim) + 0.5 * rng.normal(size=(dim, dim)) / np.sqrt(dim)
    inputs = rng.normal(size=(ROWS[dim], dim)) @ mixing
    weights = rng.normal(size=dim)
    if kind == "linear":
        return inputs, inputs @ weights + rng.normal(size=ROWS[dim])
    inputs *= 2.0 / np.sqrt(dim)
    return inputs, (rng.random(ROWS[dim]) < 1.0 / (1.0 + np.exp(-inputs @ weights))).astype(int)


def linear_model(kind: str, dim: int) -> pb.types.Model:
    """All weights of a linear predictor random, with a standard normal prior."""
    network = pb.types.Network(
        init=lambda key: {"slope": jnp.zeros(dim)}, apply=lambda params, x: x @ params["slope"]
    )
    return pb.partial_bnn(network, "slope", pb.gaussian(1.0) if kind == "linear" else pb.bernoulli())


def exact(kind: str, inputs: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of the posterior."""
    dim = inputs.shape[1]
    if kind == "linear":
        covariance = np.linalg.inv(np.eye(dim) + inputs.T @ inputs)
        return covariance @ inputs.T @ targets, covariance
    return _by_chains(inputs, targets)


def _by_chains(inputs, targets, num_chains=64, num_draws=1500, num_steps=6):
    mode = np.zeros(inputs.shape[1])
    for _ in range(50):
        share = 1.0 / (1.0 + np.exp(-inputs @ mode))
        precision = (inputs * (share * (1.0 - share))[:, None]).T @ inputs + np.eye(len(mode))
        mode += np.linalg.solve(precision, inputs.T @ (targets - share) - mode)
    lower = np.linalg.cholesky(np.linalg.inv(precision))
    x, y = jnp.asarray(inputs, float), jnp.asarray(targets, float)
    center, factor = jnp.asarray(mode, float), jnp.asarray(lower, float)

    def log_density(z):
        phi = center + factor @ z
        outputs = x @ phi
        return jnp.sum(y * outputs - jax.nn.softplus(outputs)) - 0.5 * phi @ phi

    value, slope = jax.vmap(log_density), jax.vmap(jax.grad(log_density))
    longest = 0.9 / len(mode) ** 0.25

    def step(z, key):
        key_momentum, key_step, key_accept = jax.random.split(key, 3)
        length = longest * jax.random.uniform(key_step, (), minval=0.8, maxval=1.2)
        momentum = jax.random.normal(key_momentum, z.shape)
        before = value(z) - 0.5 * jnp.sum(momentum**2, axis=1)
        place, momentum = z, momentum + 0.5 * length * slope(z)
        for leap in range(num_steps):
            place = place + length * momentum
            momentum = momentum + length * (1.0 if leap < num_steps - 1 else 0.5) * slope(place)
        after = value(place) - 0.5 * jnp.sum(momentum**2, axis=1)
        accepted = jnp.log(jax.random.uniform(key_accept, before.shape)) < after - before
        z = jnp.where(accepted[:, None], place, z)
        return z, z

    @jax.jit
    def run(key):
        key_start, key_steps = jax.random.split(key)
        start = jax.random.normal(key_start, (num_chains, len(mode)))
        return jax.lax.scan(step, start, jax.random.split(key_steps, num_draws))[1]

    draws = np.asarray(run(jax.random.key(0))[100:], np.float64).reshape(-1, len(mode))
    draws = mode + draws @ lower.T
    return draws.mean(axis=0), np.cov(draws.T)


def measure(
    algorithm: pb.types.Algorithm, data: pb.types.Batch, posterior, epochs: int, num_runs: int
) -> tuple[np.ndarray, np.ndarray, float]:
    """Variance and mean of every run, and milliseconds per step."""
    mean, covariance = posterior
    precision = jnp.asarray(np.linalg.inv(covariance), float)
    mean = jnp.asarray(mean, float)
    rows, dim = len(data.mask), len(mean)
    batches = num_batches(rows, BATCH)

    def epoch(state, key):
        key_order, key_steps = jax.random.split(key)
        order = permutation(key_order, data.mask)

        def step(state, index):
            batch = take(data, order, index, batches)
            return algorithm.step(jax.random.fold_in(key_steps, index), state, batch)[0], None

        state, _ = jax.lax.scan(step, state, jnp.arange(batches))
        particles = algorithm.posterior(state).particles
        error = weighted_mean(particles) - mean
        spread = jnp.trace(precision @ weighted_covariance(particles)) / dim
        return state, (spread, error @ precision @ error / dim)

    @jax.jit
    def run(key):
        key_start, key_epochs = jax.random.split(key)
        return jax.lax.scan(epoch, algorithm.init(key_start), jax.random.split(key_epochs, epochs))[1]

    keys = jax.random.split(jax.random.key(1), num_runs)
    run = run.lower(keys[0]).compile()
    before = time.perf_counter()
    found = np.asarray([jax.block_until_ready(run(key)) for key in keys])
    spent = time.perf_counter() - before
    spreads, errors = found[:, :, epochs // 2 :].mean(axis=2).T
    return spreads, errors, 1e3 * spent / epochs / batches / len(keys)


def with_error(values: np.ndarray) -> str:
    """The mean over runs ± its standard error, where there are several."""
    error = f"± {values.std(ddof=1) / len(values) ** 0.5:.3f}" if len(values) > 1 else "       "
    return f"{values.mean():>8.3f} {error}"


def main(
    kinds: str = "linear,logistic",
    dims: str = "5,20,51,105",
    epochs: str = "40",
    kernels: str = "transport,affine_langevin",
) -> None:
    chosen = list(KERNELS) if kernels == "all" else kernels.split(",")
    warnings.simplefilter("ignore", pb.errors.FewParticlesWarning)
    print(f"{'model':<10}{'d':>5}{'J':>6}  {'kernel':<22}{'variance':>16}{'mean':>16}{'ms/step':>9}")
    for kind in kinds.split(","):
        for dim in map(int, dims.split(",")):
            inputs, targets = draw(kind, dim)
            posterior = exact(kind, inputs, targets)
            model = linear_model(kind, dim)
            dtype = float if kind == "linear" else int
            data = full_batch(jnp.asarray(inputs, float), jnp.asarray(targets, dtype))
            for name in chosen:
                algorithm = pb.ohsmc(
                    model, num_particles=4 * dim, kernel=KERNELS[name](), optimizer=optax.set_to_zero()
                )
                spread, error, spent = measure(algorithm, data, posterior, int(epochs), RUNS.get(dim, 1))
                sizes = f"{kind:<10}{dim:>5}{4 * dim:>6}"
                figures = f"{with_error(spread)}{with_error(error)}{spent:>9.2f}"
                print(f"{sizes}  {name:<22}{figures}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

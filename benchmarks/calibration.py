"""How wide is OHSMC's posterior? Its kernels on a model whose posterior is known.

y_n = φ + N(0, 1), φ ~ N(0, 1), N = 300 rows in batches of M = 50: the posterior of φ is
N(Σy / 301, 1/301). For each kernel, after burn-in:

- spread: mean over steps of the particles' variance, over the posterior variance;
- jitter: standard deviation over steps of the particles' mean, in posterior standard deviations.

Beside the spread stands what theory gives: the fixed point of the Kalman recursion.

Run: python benchmarks/calibration.py
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax

import partialbayes as pb
from partialbayes._engine.epochs import permutation, take
from partialbayes.model._batch import full_batch
from partialbayes.weights import weighted_mean, weighted_variance

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
        batch = take(data, permutation(key_order, ROWS), index % batches, batches)
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


def main() -> None:
    targets = jnp.asarray(np.random.default_rng(0).normal(0.5, 1.0, ROWS), float)
    print(f"N = {ROWS}, M = {BATCH}, J = {PARTICLES}, {EPOCHS} epochs less {BURN_IN} of burn-in")
    print(f"{'method':<24}{'spread':>8}{'theory':>8}{'jitter':>8}")
    for name, (algorithm, theory) in methods().items():
        spread, jitter = measure(algorithm, targets)
        print(f"{name:<24}{spread:>8.3f}{theory:>8.3f}{jitter:>8.3f}")


if __name__ == "__main__":
    main()

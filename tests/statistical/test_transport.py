"""OHSMC without weights holds the posterior with a few particles per random weight."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from benchmarks.dimensions import draw, exact, linear_model, measure
from scipy import optimize

import partialbayes as pb
from partialbayes.model._batch import full_batch
from partialbayes.types import Moments, Particles, Slopes, Target
from partialbayes.weights import uniform_log_weights
from tests.oracles import conjugate


def held(kind, dim, kernel, num_particles=None, epochs=30):
    """Variance (1 is right) and squared error of the mean (0 is right), in posterior variances."""
    inputs, targets = draw(kind, dim)
    data = full_batch(
        jnp.asarray(inputs, float), jnp.asarray(targets, float if kind == "linear" else int)
    )
    algorithm = pb.ohsmc(
        linear_model(kind, dim),
        num_particles=num_particles or 4 * dim,
        kernel=kernel,
        optimizer=optax.set_to_zero(),
    )
    return measure(algorithm, data, exact(kind, inputs, targets), epochs, num_runs=1)[:2]


def test_default_holds_a_linear_posterior_at_four_particles_per_weight():
    variance, mean = held("linear", 20, None, epochs=16)
    assert abs(variance - 1.0) < 0.05
    assert mean < 0.1


def test_affine_langevin_holds_a_linear_posterior():
    variance, mean = held("linear", 20, pb.kernels.affine_langevin(), epochs=60)
    assert abs(variance - 1.0) < 0.08  # chance of 80 particles
    assert mean < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["linear", "logistic"])
@pytest.mark.parametrize("dim", [5, 20, 51, 105])
def test_default_at_four_particles_per_weight(kind, dim):
    variance, mean = held(kind, dim, None)
    assert abs(variance - 1.0) < 0.05
    assert mean < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["linear", "logistic"])
@pytest.mark.parametrize("dim", [20, 51])
def test_affine_langevin_at_four_particles_per_weight(kind, dim):
    variance, mean = held(kind, dim, pb.kernels.affine_langevin(), epochs=60)
    assert abs(variance - 1.0) < 0.08
    assert mean < 0.1


def test_psi_is_learned_at_the_maximum_of_the_evidence():
    """Noise and prior scale of the conjugate model; with equal weights the noise is 9 % too large."""
    oracle = conjugate(num_data=60, dim=8)

    def still(updates, state, params=None):
        still = jax.tree.map(jnp.zeros_like, updates.psi.network)
        return updates._replace(psi=updates.psi._replace(network=still)), state

    frozen = optax.GradientTransformation(lambda params: (), still)
    rate = optax.chain(optax.adam(optax.cosine_decay_schedule(0.03, 900, 0.02)), frozen)
    algorithm = pb.ohsmc(oracle.model, num_particles=40, optimizer=rate)
    data = (oracle.inputs, oracle.targets)
    trained = pb.fit(algorithm, data, epochs=150, batch_size=10).posterior.psi
    features, targets = map(np.asarray, (oracle.features(trained), oracle.targets))

    def cost(logs):
        covariance = np.exp(logs[0]) * np.eye(60) + np.exp(2 * logs[1]) * features @ features.T
        return np.linalg.slogdet(covariance)[1] + targets @ np.linalg.solve(covariance, targets)

    noise, scale = optimize.minimize(cost, np.zeros(2)).x
    assert abs(float(trained.likelihood) - noise) < 0.03
    assert abs(float(trained.prior) - scale) < 0.05


DIM, COUNT = 40, 16
PRECISION = np.geomspace(1.0, 400.0, DIM)


def separate(center):
    """Independent coordinates: a batch of an eighth of the data, with the prior N(0, I)."""
    batch = jnp.asarray((PRECISION - 1.0) / 8.0, float)

    def log_potential(phi):
        return -0.5 * jnp.sum(batch * jnp.square(phi - center))

    def log_density(phi):
        return -0.5 * jnp.sum(jnp.square(phi)) + 8.0 * log_potential(phi)

    return Target(log_density, log_potential, Moments(jnp.zeros(DIM), jnp.ones(DIM)), jnp.asarray(0.125))


def settle(kernel, steps, kept, target):
    """Moments of a cloud of fewer particles than weights, averaged over its last steps."""
    values = jax.random.normal(jax.random.key(0), (COUNT, DIM))

    def step(values, key):
        particles = Particles(values, uniform_log_weights(COUNT))
        values = kernel.step(key, particles, target, kernel.init(particles)).values
        return values, (values.mean(axis=0), values.var(axis=0))

    keys = jax.random.split(jax.random.key(1), steps)
    means, variances = jax.jit(lambda: jax.lax.scan(step, values, keys)[1])()
    return np.asarray(means[-kept:].mean(axis=0)), np.asarray(variances[-kept:].mean(axis=0))


@pytest.mark.parametrize(
    ("kernel", "steps", "tolerance"),
    [(pb.kernels.transport, 80, 0.01), (pb.kernels.affine_langevin, 4000, 0.12)],
    ids=["transport", "affine_langevin"],
)
def test_fewer_particles_than_weights_hold_independent_coordinates(kernel, steps, tolerance):
    mean, variance = settle(kernel(), steps, steps // 2, separate(2.0))
    expected = 2.0 * (PRECISION - 1.0) / PRECISION
    ratio = variance * PRECISION
    assert abs(ratio.mean() - 1.0) < tolerance, ratio
    assert np.all(np.abs(ratio - 1.0) < 5 * tolerance), ratio
    assert np.all(np.abs(mean - expected) < 0.3 / np.sqrt(PRECISION))


def test_chance_correlations_average_out():
    """With correlated data the nearest law of independent weights has the variances 1 / P_ii."""
    inputs = np.random.default_rng(0).normal(size=(80, DIM))
    precision = 2.0 * inputs.T @ inputs + np.eye(DIM)
    batch = jnp.asarray((precision - np.eye(DIM)) / 8.0, float)

    def log_potential(phi):
        return -0.5 * (phi - 2.0) @ batch @ (phi - 2.0)

    def log_density(phi):
        return -0.5 * phi @ phi + 8.0 * log_potential(phi)

    target = separate(2.0)._replace(log_density=log_density, log_potential=log_potential)
    mean, variance = settle(pb.kernels.transport(), 800, 400, target)
    exact = np.linalg.solve(precision, 2.0 * (precision - np.eye(DIM)).sum(axis=1))
    assert np.sqrt(np.mean((variance * np.diag(precision) - 1.0) ** 2)) < 0.04
    assert np.all(np.abs(mean - exact) * np.sqrt(np.diag(precision)) < 0.1)


def one_step(kernel, values, slopes, fraction=0.25):
    particles = Particles(values, uniform_log_weights(values.shape[0]))
    prior = Moments(jnp.zeros(values.shape[1]), jnp.ones(values.shape[1]))
    flat = lambda phi: jnp.zeros(())  # noqa: E731
    target = Target(flat, flat, prior, jnp.asarray(fraction), slopes=slopes)
    step = jax.jit(lambda key, cloud: kernel.step(key, cloud, target, kernel.init(cloud)))
    return step(jax.random.key(0), particles).values


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_negative_curvature_widens_the_cloud_by_no_more_than_forgetting_does(covariance):
    values = jax.random.normal(jax.random.key(0), (60, 3))
    outward = Slopes(100.0 * values, jnp.zeros_like(values), 100.0 * values)
    moved = one_step(pb.kernels.transport(covariance), values, outward)
    np.testing.assert_allclose(moved.var(axis=0) / values.var(axis=0), 1.0 / 0.75, rtol=1e-3)


@pytest.mark.parametrize("kernel", [pb.kernels.transport, pb.kernels.affine_langevin])
@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_a_slope_without_end_does_not_throw_the_cloud_away(kernel, covariance):
    values = jax.random.normal(jax.random.key(0), (60, 3))
    steep = jnp.full_like(values, 1e9)
    moved = one_step(kernel(covariance), values, Slopes(steep, 0.0 * steep, steep))
    assert float(jnp.abs(moved.mean(axis=0) - values.mean(axis=0)).max()) < 5.0


def test_langevin_holds_its_step_back_far_out():
    """Draws of the prior under a posterior a thousand times as narrow in every one of 30 directions."""
    target = Target(
        lambda phi: -0.5e6 * jnp.sum(jnp.square(phi)),
        lambda phi: -0.5e5 * jnp.sum(jnp.square(phi)),
        Moments(jnp.zeros(30), jnp.ones(30)),
        jnp.asarray(0.1),
    )
    kernel = pb.kernels.affine_langevin()
    values = jax.random.normal(jax.random.key(0), (120, 30))

    def step(values, key):
        cloud = Particles(values, uniform_log_weights(120))
        moved = kernel.step(key, cloud, target, kernel.init(cloud)).values
        return moved, moved.std()

    keys = jax.random.split(jax.random.key(1), 600)
    spreads = np.asarray(jax.jit(lambda: jax.lax.scan(step, values, keys)[1])())
    assert spreads.max() < 1.1
    assert 0.8e-3 < spreads[-1] < 1.2e-3


def test_too_few_particles_are_refused():
    for kernel in (pb.kernels.transport, pb.kernels.affine_langevin):
        with pytest.raises(ValueError, match="3 particles have no full covariance in 3 dimensions"):
            one_step(kernel("full"), jnp.ones((3, 3)), None)
        with pytest.raises(ValueError, match="a single particle has none"):
            one_step(kernel(), jnp.ones((1, 3)), None)

"""OHSMC with the forgetting kernel settles at the posterior."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import partialbayes as pb
from partialbayes._engine.epochs import take
from partialbayes.model._batch import full_batch
from partialbayes.types import Moments, Target
from partialbayes.weights import uniform_log_weights, weighted_covariance, weighted_mean

BATCHES, PARTICLES, STEPS, BURN_IN = 6, 2000, 700, 100
SCALE = np.array([1.5, 0.8])
PRIOR = Moments(np.array([0.5, -1.0, 0.2]), np.array([1.5, 0.8, 1.1]) ** 2)
CORRELATED = np.array([[1.0, 0.7], [0.7, 1.0]])


def regression(gram: np.ndarray):
    """y = x φ + N(0, 1): 60 rows, the same 10 inputs in every batch, with XᵀX = 10 · gram."""
    root = np.linalg.cholesky(gram).T * np.sqrt(5.0)
    inputs = np.tile(np.concatenate([root, -root, np.zeros((6, 2))]), (BATCHES, 1))
    inputs = jnp.asarray(inputs, float)
    targets = inputs @ jnp.asarray([1.0, -2.0]) + jnp.asarray(
        np.random.default_rng(1).normal(size=len(inputs)), float
    )
    network = pb.types.Network(
        init=lambda key: {"slope": jnp.zeros(2)}, apply=lambda params, x: x @ params["slope"]
    )
    model = pb.partial_bnn(network, "slope", pb.gaussian(1.0), pb.priors.normal(scale=SCALE))
    precision = np.diag(1 / SCALE**2) + np.asarray(inputs.T @ inputs)
    covariance = np.linalg.inv(precision)
    return model, full_batch(inputs, targets), covariance @ np.asarray(inputs.T @ targets), covariance


def average(kernel, model, data):
    """Mean and covariance of the particles, averaged over the steps after burn-in."""
    algorithm = pb.ohsmc(model, num_particles=PARTICLES, kernel=kernel, optimizer=optax.set_to_zero())
    order = jnp.arange(len(data.mask), dtype=jnp.int32)

    def step(state, index):
        batch = take(data, order, index % BATCHES, BATCHES)
        state, _ = algorithm.step(jax.random.fold_in(jax.random.key(2), index), state, batch)
        return state, (weighted_mean(state.particles), weighted_covariance(state.particles))

    @jax.jit
    def run():
        return jax.lax.scan(step, algorithm.init(jax.random.key(0)), jnp.arange(STEPS))[1]

    means, covariances = run()
    return np.asarray(means[BURN_IN:].mean(axis=0)), np.asarray(covariances[BURN_IN:].mean(axis=0))


@pytest.mark.parametrize(
    ("kernel", "gram"),
    [
        (pb.kernels.forgetting("full"), CORRELATED),
        pytest.param(pb.kernels.forgetting("full"), np.eye(2), marks=pytest.mark.slow),
        (pb.kernels.forgetting("diagonal"), np.eye(2)),
    ],
    ids=["full, correlated", "full", "diagonal"],
)
def test_reaches_the_posterior_within_three_percent(kernel, gram):
    model, data, mean, covariance = regression(gram)
    found_mean, found = average(kernel, model, data)
    ratio = np.diag(found) / np.diag(covariance)
    assert np.all(np.abs(ratio - 1.0) < 0.03), ratio
    assert np.all(np.abs(found_mean - mean) < 0.1 * np.sqrt(np.diag(covariance)))
    correlation = found[0, 1] / np.sqrt(found[0, 0] * found[1, 1])
    expected = covariance[0, 1] / np.sqrt(covariance[0, 0] * covariance[1, 1])
    assert abs(correlation - expected) < 0.02


@pytest.mark.parametrize(
    "kernel",
    [
        pb.kernels.forgetting("diagonal"),
        pytest.param(pb.kernels.random_walk(0.01), marks=pytest.mark.slow),
    ],
)
def test_of_the_test_kernels_that_miss_the_correlations_miss_the_posterior(kernel):
    model, data, _, covariance = regression(CORRELATED)
    _, found = average(kernel, model, data)
    assert np.any(np.abs(np.diag(found) / np.diag(covariance) - 1.0) > 0.1)


def one_step(values, fraction, covariance="full"):
    num, dim = values.shape
    particles = pb.types.Particles(values, uniform_log_weights(num))
    prior = Moments(*(jnp.asarray(moment[:dim], float) for moment in PRIOR))
    target = Target(lambda phi: 0.0, lambda phi: 0.0, prior, jnp.asarray(fraction))
    kernel = pb.kernels.forgetting(covariance)
    step = jax.jit(lambda key: kernel.step(key, particles, target, kernel.init(particles)).values)
    return np.asarray(step(jax.random.key(1))), prior


@pytest.mark.parametrize("width", [0.3, 5.0], ids=["noise is added", "the cloud is drawn together"])
@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_moments_after_one_step(width, covariance):
    """P'⁻¹ = (1−ε) P⁻¹ + ε S⁻¹ and m' = P' ((1−ε) P⁻¹ m + ε S⁻¹ m₀), computed as they stand."""
    rng = np.random.default_rng(0)
    # In three dimensions: in two the matrix of axes may be its own transpose.
    mixing = np.diag([1.0, 0.7, 0.9])
    if covariance == "full":
        mixing += np.array([[0.0, 0.6, -0.3], [0.0, 0.0, 0.5], [0.0, 0.0, 0.0]])
    values = jnp.asarray(width * rng.normal(size=(40_000, 3)) @ mixing + 2.0, float)
    moved, prior = one_step(values, 0.25, covariance)
    mean, before = np.mean(values, axis=0), np.cov(values.T)
    if covariance == "diagonal":
        before = np.diag(np.diag(before))
    toward = np.diag(1.0 / np.asarray(prior.variance))
    after = np.linalg.inv(0.75 * np.linalg.inv(before) + 0.25 * toward)
    center = after @ (0.75 * np.linalg.solve(before, mean) + 0.25 * toward @ np.asarray(prior.mean))
    deviation = np.sqrt(np.diag(after))
    assert np.all(np.abs(moved.mean(axis=0) - center) < 4.5 * deviation / np.sqrt(len(moved)))
    assert np.allclose(np.cov(moved.T), after, atol=0.03 * deviation.max() ** 2)


def test_forgetting_everything_leaves_the_prior():
    values = jax.random.normal(jax.random.key(0), (20_000, 2)) * 0.1 + 3.0
    for start in (values, jnp.ones((20_000, 2))):
        moved, prior = one_step(start, 1.0)
        assert np.allclose(moved.mean(axis=0), prior.mean, atol=0.05)
        assert np.allclose(moved.std(axis=0), SCALE, rtol=0.03)


def test_full_covariance_needs_more_particles_than_weights():
    with pytest.raises(ValueError, match=r"2 particles .* 2 dimensions; use forgetting\(\"diagonal\"\)"):
        one_step(jnp.ones((2, 2)), 0.5)

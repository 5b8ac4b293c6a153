"""Log-weights against plain linear arithmetic."""

import jax
import jax.numpy as jnp
import numpy as np

import partialbayes as pb
from partialbayes.resampling import stratified_indices
from partialbayes.weights import (
    cumulative,
    effective_sample_size,
    reweight,
    uniform_log_weights,
    weighted_covariance,
    weighted_mean,
    weighted_quantile,
    weighted_variance,
)

RNG = np.random.default_rng(0)
VALUES = jnp.asarray(RNG.normal(size=(50, 3)), float)
WEIGHTS = RNG.dirichlet(np.ones(50))
CLOUD = pb.types.Particles(VALUES, jnp.asarray(np.log(WEIGHTS), float))


def test_moments():
    np.testing.assert_allclose(
        weighted_mean(CLOUD), np.average(VALUES, axis=0, weights=WEIGHTS), rtol=1e-4
    )
    expected = np.cov(np.asarray(VALUES).T, aweights=WEIGHTS, ddof=0)
    np.testing.assert_allclose(weighted_covariance(CLOUD), expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(weighted_variance(CLOUD), np.diag(expected), rtol=1e-4)


def test_reweight_returns_the_log_of_the_mean_potential():
    potentials = jnp.asarray(RNG.normal(size=50), float)
    after, increment = reweight(CLOUD, potentials)
    np.testing.assert_allclose(increment, np.log(WEIGHTS @ np.exp(potentials)), rtol=1e-5)
    np.testing.assert_allclose(jax.nn.logsumexp(after.log_weights), 0.0, atol=1e-6)


def test_reweight_survives_potentials_that_would_underflow():
    after, increment = reweight(CLOUD, jnp.full(50, -1e4))
    np.testing.assert_allclose(increment, -1e4, rtol=1e-6)
    np.testing.assert_allclose(after.log_weights, CLOUD.log_weights, atol=2e-3)


def test_effective_sample_size():
    np.testing.assert_allclose(effective_sample_size(uniform_log_weights(7)), 7.0, rtol=1e-5)
    np.testing.assert_allclose(
        effective_sample_size(CLOUD.log_weights), 1 / np.sum(WEIGHTS**2), rtol=1e-4
    )
    one = jnp.array([0.0, -jnp.inf, -jnp.inf])
    np.testing.assert_allclose(effective_sample_size(one), 1.0)


def test_quantiles():
    quantiles = weighted_quantile(CLOUD, jnp.array([0.0, 0.5, 1.0]))
    np.testing.assert_array_equal(quantiles[0], VALUES.min(axis=0))
    np.testing.assert_array_equal(quantiles[2], VALUES.max(axis=0))
    below = (np.asarray(VALUES) < np.asarray(quantiles[1])[None, :]) * WEIGHTS[:, None]
    assert (below.sum(axis=0) < 0.5).all()
    copies = pb.types.Particles(jnp.array([[1.0], [2.0], [3.0]]), jnp.log(jnp.array([0.2, 0.5, 0.3])))
    np.testing.assert_array_equal(weighted_quantile(copies, jnp.array([0.1, 0.3, 0.9]))[:, 0], [1, 2, 3])


def test_cumulative_sums_of_many_weights_never_fall_and_stand_still_at_zero():
    """Of a million in 32 bits plain sums do neither, and particles of weight zero were copied."""
    rng = np.random.default_rng(0)
    weights = np.where(rng.uniform(size=1_000_000) < 0.5, 0.0, rng.exponential(size=1_000_000))
    weights = jnp.asarray(weights / weights.sum(), jnp.float32)
    steps = np.diff(np.asarray(cumulative(weights)))
    assert steps.min() >= 0.0
    assert np.all(steps[np.asarray(weights[1:]) == 0.0] == 0.0)
    drawn = stratified_indices(jax.random.key(0), weights, 1_000_000)
    assert float(weights[drawn].min()) > 0.0

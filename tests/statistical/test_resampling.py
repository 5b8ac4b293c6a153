"""Resampling is unbiased: E[copies of j] = J w_j (SPEC 9.1)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partialbayes as pb

LOG_WEIGHTS = jax.nn.log_softmax(jnp.array([0.3, -2.0, 1.4, 0.0, -0.7, 2.1, -5.0, 0.9]))
SCHEMES = {"stratified": pb.stratified, "systematic": pb.systematic}
every_scheme = pytest.mark.parametrize("scheme", SCHEMES.values(), ids=SCHEMES.keys())


def counts(scheme, log_weights, replicates=10_000):
    """Copies of each particle, replicate by replicate."""
    size = log_weights.shape[0]
    particles = pb.Particles(jnp.arange(size, dtype=float)[:, None], log_weights)

    def copies(key):
        resampled, ancestors = scheme(key, particles)
        return jnp.bincount(ancestors, length=size), resampled

    number, resampled = jax.jit(jax.vmap(copies))(jax.random.split(jax.random.key(0), replicates))
    return np.asarray(number), resampled


def worst_z(number, log_weights):
    expected = len(log_weights) * np.exp(log_weights)
    error = number.std(axis=0) / len(number) ** 0.5
    # A scheme may give some particle the same count always; then it must be the right one.
    return np.max(np.abs(number.mean(axis=0) - expected) / np.maximum(error, 1e-5))


@every_scheme
def test_expected_counts(scheme):
    number, resampled = counts(scheme, LOG_WEIGHTS)
    assert worst_z(number, np.asarray(LOG_WEIGHTS)) < 4.5
    assert np.allclose(resampled.log_weights, -np.log(8), atol=1e-6)


@every_scheme
def test_values_follow_the_ancestors(scheme):
    particles = pb.Particles(jnp.arange(16.0).reshape(8, 2), LOG_WEIGHTS)
    resampled, ancestors = scheme(jax.random.key(0), particles)
    assert np.array_equal(resampled.values, particles.values[ancestors])


def test_the_test_of_counts_can_fail():
    tilted = jax.nn.log_softmax(1.05 * LOG_WEIGHTS)
    number, _ = counts(pb.stratified, tilted)
    assert worst_z(number, np.asarray(LOG_WEIGHTS)) > 4.5


def test_systematic_counts_are_floor_or_ceiling():
    number, _ = counts(pb.systematic, LOG_WEIGHTS)
    expected = 8 * np.exp(np.asarray(LOG_WEIGHTS, np.float64))
    assert (number >= np.floor(expected - 1e-5)).all()
    assert (number <= np.ceil(expected + 1e-5)).all()


def test_only_when_ess_is_below():
    resample = pb.when_ess_below(0.5)
    even = pb.Particles(jnp.arange(8.0)[:, None], jnp.full(8, -jnp.log(8.0)))
    kept, ancestors = resample(jax.random.key(0), even)
    assert np.array_equal(kept.values, even.values)
    assert np.array_equal(ancestors, np.arange(8))
    skewed = even._replace(log_weights=jax.nn.log_softmax(jnp.array([9.0, 0, 0, 0, 0, 0, 0, 0])))
    resampled, ancestors = resample(jax.random.key(0), skewed)
    assert np.allclose(resampled.log_weights, -np.log(8), atol=1e-6)
    assert (np.asarray(ancestors) == 0).sum() >= 7


@pytest.mark.parametrize("threshold", [0.0, -0.5, 1.5, float("nan")])
def test_threshold_outside_its_range(threshold):
    with pytest.raises(ValueError, match=r"threshold must be in \(0, 1\]"):
        pb.when_ess_below(threshold)

"""Resampling is unbiased: E[copies of j] = J w_j."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partialbayes as pb
from partialbayes.resampling import stratified_indices
from partialbayes.weights import weighted_mean, weighted_variance

LOG_WEIGHTS = jax.nn.log_softmax(jnp.array([0.3, -2.0, 1.4, 0.0, -0.7, 2.1, -5.0, 0.9]))
SCHEMES = {
    "stratified": pb.resampling.stratified,
    "systematic": pb.resampling.systematic,
    "multinomial": pb.resampling.multinomial,
    "residual": pb.resampling.residual,
}
every_scheme = pytest.mark.parametrize("scheme", SCHEMES.values(), ids=SCHEMES.keys())


def counts(scheme, log_weights, replicates=10_000):
    """Copies of each particle, replicate by replicate."""
    size = log_weights.shape[0]
    particles = pb.types.Particles(jnp.arange(size, dtype=float)[:, None], log_weights)

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
    particles = pb.types.Particles(jnp.arange(16.0).reshape(8, 2), LOG_WEIGHTS)
    resampled, ancestors = scheme(jax.random.key(0), particles)
    assert np.array_equal(resampled.values, particles.values[ancestors])


def test_the_test_of_counts_can_fail():
    tilted = jax.nn.log_softmax(1.05 * LOG_WEIGHTS)
    number, _ = counts(pb.resampling.stratified, tilted)
    assert worst_z(number, np.asarray(LOG_WEIGHTS)) > 4.5


def test_systematic_counts_are_floor_or_ceiling():
    number, _ = counts(pb.resampling.systematic, LOG_WEIGHTS)
    expected = 8 * np.exp(np.asarray(LOG_WEIGHTS, np.float64))
    assert (number >= np.floor(expected - 1e-5)).all()
    assert (number <= np.ceil(expected + 1e-5)).all()


def test_the_strata_are_drawn_from_independently():
    """Of two strata each is split in halves: all four outcomes occur, where one draw has two."""
    weights = jnp.array([0.25, 0.5, 0.25])
    keys = jax.random.split(jax.random.key(0), 64)
    pairs = jax.jit(jax.vmap(lambda key: stratified_indices(key, weights, 2)))(keys)
    assert set(map(tuple, pairs.tolist())) == {(0, 1), (0, 2), (1, 1), (1, 2)}


def test_only_when_ess_is_below():
    resample = pb.resampling.when_ess_below(0.5)
    even = pb.types.Particles(jnp.arange(8.0)[:, None], jnp.full(8, -jnp.log(8.0)))
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
        pb.resampling.when_ess_below(threshold)


def test_residual_keeps_the_whole_part_of_every_count():
    number, _ = counts(pb.resampling.residual, LOG_WEIGHTS)
    expected = 8 * np.exp(np.asarray(LOG_WEIGHTS, np.float64))
    assert (number >= np.floor(expected - 1e-5)).all()


def test_residual_of_whole_counts_draws_nothing():
    log_weights = jnp.log(jnp.array([3.0, 1.0, 0.0, 2.0, 1.0, 1.0, 0.0, 0.0]) / 8.0)
    number, _ = counts(pb.resampling.residual, log_weights, replicates=100)
    assert (number == np.array([3, 1, 0, 2, 1, 1, 0, 0])).all()


@every_scheme
def test_a_particle_without_weight_is_never_copied(scheme):
    """Not even the first or the last one, where rounding leads to."""
    middle = jnp.full(998, -jnp.log(998.0))
    log_weights = jnp.concatenate([jnp.array([-jnp.inf]), middle, jnp.array([-jnp.inf])])
    number, _ = counts(scheme, log_weights, replicates=1000)
    assert number[:, [0, -1]].sum() == 0


class TestOptimalTransport:
    particles = pb.types.Particles(
        jax.random.normal(jax.random.key(1), (400, 2)) * jnp.array([[1.0, 3.0]]),
        jax.nn.log_softmax(2.0 * jax.random.normal(jax.random.key(2), (400,))),
    )

    def moved(self, particles, **settings):
        return jax.jit(pb.resampling.optimal_transport(**settings))(jax.random.key(0), particles)

    def test_mean_and_variances_are_kept_and_weights_are_equal(self):
        resampled, ancestors = self.moved(self.particles)
        assert np.allclose(weighted_mean(resampled), weighted_mean(self.particles), atol=1e-5)
        exact = weighted_variance(self.particles)
        assert np.allclose(weighted_variance(resampled), exact, rtol=1e-4)
        assert np.allclose(resampled.log_weights, -np.log(400), atol=1e-6)
        assert len(np.unique(ancestors)) > 20

    def test_the_law_is_nearly_kept(self):
        """Third moments and the correlation, which nothing has been done about."""
        resampled, _ = self.moved(self.particles, entropy=0.02)

        def moments(particles):
            center, variance = weighted_mean(self.particles), weighted_variance(self.particles)
            values = np.asarray((particles.values - center[None]) / jnp.sqrt(variance)[None])
            weights = np.exp(np.asarray(particles.log_weights))
            return np.array([*(weights @ values**3), weights @ values.prod(axis=1)])

        assert np.allclose(moments(resampled), moments(self.particles), atol=0.15)

    def test_equal_weights_stay_nearly_where_they_are(self):
        even = self.particles._replace(log_weights=jnp.full(400, -jnp.log(400.0)))
        resampled, ancestors = self.moved(even, entropy=1e-3)
        assert np.abs(resampled.values - even.values).mean() < 0.05
        assert (np.asarray(ancestors) == np.arange(400)).mean() > 0.9

    def test_weights_of_zero_and_clouds_of_one_point(self):
        dead = self.particles.log_weights.at[:50].set(-jnp.inf)
        resampled, ancestors = self.moved(self.particles._replace(log_weights=jax.nn.log_softmax(dead)))
        assert np.isfinite(resampled.values).all()
        assert (np.asarray(ancestors) >= 50).all()
        point = pb.types.Particles(jnp.ones((400, 2)), self.particles.log_weights)
        resampled, _ = self.moved(point)
        assert np.allclose(resampled.values, 1.0, atol=1e-5)

    def test_it_can_be_triggered_by_the_effective_sample_size(self):
        resample = pb.resampling.when_ess_below(0.9, pb.resampling.optimal_transport(num_iterations=5))
        resampled, _ = jax.jit(resample)(jax.random.key(0), self.particles)
        assert not np.allclose(resampled.values, self.particles.values)

    def test_wrong_settings(self):
        with pytest.raises(ValueError, match="entropy must be positive"):
            pb.resampling.optimal_transport(0.0)

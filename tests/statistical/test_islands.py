"""Resampling on islands: what it must leave alone, with and without exchange."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partialbayes as pb
from tests.statistical.test_smc import (
    BATCHES,
    METROPOLIS,
    TEMPERATURES,
    evidence_and_mean_scores,
    many_runs,
)

NUM_KEYS = 4000
CLOUD = pb.types.Particles(
    jnp.arange(12.0)[:, None],
    jax.nn.log_softmax(jnp.sin(jnp.arange(12.0) * 2.0) * 3.0).at[4:8].add(-4.0),
)
CLOUD = CLOUD._replace(log_weights=jax.nn.log_softmax(CLOUD.log_weights))


def often(function, num_keys, seed):
    """The results for many keys."""
    keys = jax.random.split(jax.random.key(seed), num_keys)
    # The checker takes a branch inside vmap for a reuse of its key.
    with jax.debug_key_reuse(False):
        return jax.tree.map(np.asarray, jax.jit(jax.vmap(function))(keys))


def expected_weights(resample):
    """Z-scores of the weight that each particle of the cloud has after resampling."""

    def one(key):
        resampled, ancestors = resample(key, CLOUD)
        return jnp.zeros(12).at[ancestors].add(jnp.exp(resampled.log_weights))

    drawn = often(one, NUM_KEYS, seed=0).astype(float)
    error = drawn.mean(axis=0) - np.exp(np.asarray(CLOUD.log_weights, float))
    return error / (drawn.std(axis=0, ddof=1) / np.sqrt(NUM_KEYS) + 1e-7)


@pytest.mark.parametrize("scheme", [pb.resampling.stratified, pb.resampling.multinomial])
def test_every_particle_keeps_its_weight_on_average(scheme):
    assert np.abs(expected_weights(pb.resampling.islands(3, every=4, scheme=scheme))).max() < 4.5


def test_that_test_sees_islands_whose_weight_is_forgotten():
    resample = pb.resampling.islands(3, every=10**6)

    def forgetful(key, particles):
        resampled, ancestors = resample(key, particles)
        return resampled._replace(log_weights=jnp.full(12, -jnp.log(12.0))), ancestors

    assert np.abs(expected_weights(forgetful)).max() > 100.0


def test_nothing_leaves_an_island_but_at_an_exchange():
    resample = pb.resampling.islands(3, every=4)
    resampled, ancestors = often(lambda key: resample(key, CLOUD), 400, seed=1)
    stayed = ancestors // 4 == np.arange(12) // 4
    # After an exchange the heavy islands have taken places of the light one.
    assert 0.15 < 1.0 - stayed.all(axis=1).mean() < 0.35
    np.testing.assert_allclose(resampled.values[:, :, 0], ancestors)
    np.testing.assert_allclose(jax.nn.logsumexp(resampled.log_weights, axis=1), 0.0, atol=1e-5)


def test_an_island_without_weight_stays_without():
    log_weights = jnp.where(jnp.arange(12) < 4, -jnp.inf, -jnp.log(8.0))
    resample = pb.resampling.islands(3, every=10**6)
    resampled, _ = resample(jax.random.key(0), CLOUD._replace(log_weights=log_weights))
    np.testing.assert_allclose(jnp.exp(resampled.log_weights), np.where(np.arange(12) < 4, 0.0, 1 / 8))


def test_what_islands_refuse():
    with pytest.raises(ValueError, match="num_islands must be"):
        pb.resampling.islands(0)
    with pytest.raises(ValueError, match="scheme must copy particles"):
        pb.resampling.islands(4, scheme=pb.resampling.optimal_transport())
    with pytest.raises(ValueError, match=r"num_particles is 12, which 5 islands.*num_particles=15"):
        pb.resampling.islands(5)(jax.random.key(0), CLOUD)


@pytest.mark.slow
@pytest.mark.parametrize("every", [3, 10**6], ids=["exchanged", "never exchanged"])
def test_the_evidence_stays_unbiased(every):
    oracle, batch = BATCHES["smc"]
    algorithm = pb.smc(
        oracle.model,
        num_particles=100,
        kernel=METROPOLIS,
        schedule=TEMPERATURES,
        resample=pb.resampling.islands(4, every=every),
    )
    log_evidences, means, _ = many_runs(algorithm, batch)
    of_evidence, of_mean = evidence_and_mean_scores(oracle, log_evidences, means)
    assert abs(of_evidence) < 4.0
    assert np.abs(of_mean).max() < 4.0

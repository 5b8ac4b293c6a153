"""Simulation-based calibration: the truth behind simulated data is a draw from the posterior.

Draw φ* from the prior and data given φ*; then the posterior probability of {φ_k < φ*_k} is uniform
on (0, 1), if the posterior is exact.
"""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import kstest

import partialbayes as pb
from partialbayes.model._batch import full_batch
from partialbayes.weights import uniform_log_weights
from tests.oracles import conjugate

ORACLE = conjugate(num_data=12)
MODEL = ORACLE.model
PSI = MODEL.init(jax.random.key(0)).psi
NUM_REPLICATES = 400
METROPOLIS = pb.kernels.random_walk_metropolis(0.1, num_steps=10)


def by_smc(key, batch):
    algorithm = pb.smc(MODEL, num_particles=400, kernel=METROPOLIS)
    state, _ = algorithm.step(key, algorithm.init(jax.random.key(0)), batch)
    return algorithm.posterior(state).particles


def by_refinement(key, batch):
    start = pb.types.Posterior(PSI, pb.types.Particles(jnp.zeros((1, 3)), uniform_log_weights(1)))
    sampler = pb.samplers.tempered_smc(num_particles=400, max_steps=30, kernel=METROPOLIS)
    return sampler(key, MODEL, start, batch)[0].particles


@cache
def ranks(method, noise_factor=1.0):
    """Posterior probability below the truth: of each weight, and of the log-likelihood."""

    def one(key):
        key_truth, key_noise, key_run = jax.random.split(key, 3)
        truth = MODEL.sample_prior(key_truth, PSI, 1)[0]
        deviation = jnp.sqrt(noise_factor * jnp.exp(PSI.likelihood))
        noise = deviation * jax.random.normal(key_noise, ORACLE.targets.shape)
        batch = full_batch(ORACLE.inputs, MODEL.outputs(truth, PSI, ORACLE.inputs) + noise)

        def quantities(phi):
            return jnp.append(phi, MODEL.log_likelihood(phi, PSI, batch).sum())

        values, log_weights = method(key_run, batch)
        below = jax.vmap(quantities)(values) < quantities(truth)[None]
        return jnp.exp(log_weights) @ below.astype(float)

    # The checker takes a scan inside vmap for a reuse of its key.
    with jax.debug_key_reuse(False):
        return np.asarray(
            jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(2), NUM_REPLICATES)), float
        )


@pytest.mark.slow
@pytest.mark.parametrize("method", [by_smc, by_refinement])
def test_ranks_are_uniform(method):
    for column in ranks(method).T:
        assert kstest(column, "uniform").pvalue > 1e-4


@pytest.mark.slow
def test_a_wrong_noise_variance_is_seen():
    pvalues = [kstest(column, "uniform").pvalue for column in ranks(by_smc, 3.0).T]
    assert min(pvalues) < 1e-4

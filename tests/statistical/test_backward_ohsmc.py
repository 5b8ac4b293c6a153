"""The random walk debiased by its backward kernel: exact where all the data is one batch."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import partialbayes as pb
from partialbayes.model._batch import full_batch
from partialbayes.weights import weighted_covariance, weighted_mean
from tests.oracles import conjugate

ORACLE = conjugate(num_data=12, dim=2, noise=0.5, scale=1.0)
BATCH = full_batch(ORACLE.inputs, ORACLE.targets)
PSI = ORACLE.model.init(jax.random.key(0)).psi
REPLICATES, STEPS = 64, 8


def z_scores(algorithm) -> np.ndarray:
    """Of the posterior's mean and variances, and of the evidence, after some steps."""

    def replicate(key):
        key_init, key_steps = jax.random.split(key)

        def step(state, key):
            state, info = algorithm.step(key, state, BATCH)
            return state, info["log_evidence_increment"]

        state, increments = jax.lax.scan(
            step, algorithm.init(key_init), jax.random.split(key_steps, STEPS)
        )
        particles = algorithm.posterior(state).particles
        evidence = jnp.exp(increments.sum() - ORACLE.log_evidence(PSI))
        return jnp.concatenate(
            [weighted_mean(particles), jnp.diag(weighted_covariance(particles)), evidence[None]]
        )

    keys = jax.random.split(jax.random.key(5), REPLICATES)
    found = np.asarray(jax.jit(lambda keys: jax.lax.map(replicate, keys))(keys))
    mean, covariance = ORACLE.posterior(PSI)
    exact = np.array([*mean, *np.diag(covariance), 1.0])
    error = np.maximum(found.std(axis=0) / REPLICATES**0.5, 1e-9)
    return (found.mean(axis=0) - exact) / error


def test_posterior_and_evidence_are_exact():
    algorithm = pb.algorithms.backward_ohsmc(
        ORACLE.model, variance=0.02, num_particles=3000, num_warmup=4, optimizer=optax.set_to_zero()
    )
    assert np.all(np.abs(z_scores(algorithm)) < 4.5)


@pytest.mark.slow
def test_of_the_test_a_random_walk_without_its_backward_kernel_is_found_out():
    algorithm = pb.ohsmc(
        ORACLE.model,
        kernel=pb.kernels.random_walk(0.02),
        num_particles=3000,
        optimizer=optax.set_to_zero(),
    )
    assert np.max(np.abs(z_scores(algorithm)[:4])) > 20.0


def test_densities_follow_the_particles_through_resampling():
    """What is remembered of a particle is what would be computed for it."""
    algorithm = pb.algorithms.backward_ohsmc(
        ORACLE.model,
        num_particles=50,
        num_warmup=1,
        resample=pb.resampling.stratified,
        optimizer=optax.set_to_zero(),
    )
    state = algorithm.init(jax.random.key(0))
    step = jax.jit(algorithm.step)
    for seed in range(3):
        state, _ = step(jax.random.key(seed), state, BATCH)
    model = ORACLE.model
    expected = jax.jit(
        jax.vmap(lambda phi: model.log_prior(phi, PSI) + model.log_likelihood(phi, PSI, BATCH).sum())
    )(state.particles.values)
    np.testing.assert_allclose(state.log_targets, expected, rtol=1e-4)

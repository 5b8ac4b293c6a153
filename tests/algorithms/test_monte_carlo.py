"""Brute-force Monte Carlo: both objectives and their gradients against closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import partialbayes as pb
from partialbayes.model._batch import full_batch
from partialbayes.weights import weighted_mean
from tests.oracles import conjugate

ORACLE = conjugate(num_data=5)
BATCH = full_batch(ORACLE.inputs, ORACLE.targets)
PSI = ORACLE.model.init(jax.random.key(0)).psi


def bound(psi):
    """E_π[Σ_n log p] = −½ N log 2πσ² − (‖y‖² + τ² tr ΦΦᵀ) / 2σ²."""
    features = ORACLE.features(psi)
    noise, scale = jnp.exp(psi.likelihood), jnp.exp(psi.prior)
    squares = jnp.sum(ORACLE.targets**2) + scale**2 * jnp.sum(features**2)
    return -0.5 * len(ORACLE.targets) * jnp.log(2 * jnp.pi * noise) - 0.5 * squares / noise


def one_step(objective, num_samples, replicates):
    """Objective and gradient of many independent steps from the same ψ."""
    algorithm = pb.algorithms.monte_carlo(
        ORACLE.model, objective=objective, num_particles=num_samples, optimizer=optax.sgd(1.0)
    )
    state = algorithm.init(jax.random.key(0))

    def run(key):
        after, info = algorithm.step(key, state, BATCH)
        ascent = jax.tree.map(jnp.subtract, after.psi, PSI)
        return -info["loss"] * len(ORACLE.targets), jax.flatten_util.ravel_pytree(ascent)[0]

    values, ascents = jax.jit(jax.vmap(run))(jax.random.split(jax.random.key(1), replicates))
    return np.asarray(values, float), np.asarray(ascents, float)


def z_scores(replicates, exact):
    error = replicates.std(axis=0, ddof=1) / np.sqrt(len(replicates))
    return np.abs(replicates.mean(axis=0) - np.asarray(exact)) / error


def test_bound():
    values, ascents = one_step(pb.algorithms.expected_log_likelihood, 200, 400)
    exact, gradient = jax.value_and_grad(bound)(PSI)
    assert z_scores(values, exact) < 4.5
    assert z_scores(ascents, jax.flatten_util.ravel_pytree(gradient)[0]).max() < 4.5
    assert z_scores(values, ORACLE.log_evidence(PSI)) > 10


def test_marginal_likelihood():
    values, ascents = one_step(pb.algorithms.log_expected_likelihood, 4000, 400)
    exact, gradient = jax.value_and_grad(ORACLE.log_evidence)(PSI)
    assert z_scores(np.exp(values - float(exact)), 1.0) < 4.5
    # A ratio of averages: its bias is of order 1/S, below the tolerance here. Compare directions.
    gradient = np.asarray(jax.flatten_util.ravel_pytree(gradient)[0], float)
    mean = ascents.mean(axis=0)
    assert mean @ gradient / np.linalg.norm(mean) / np.linalg.norm(gradient) > 0.999
    assert abs(np.linalg.norm(mean) / np.linalg.norm(gradient) - 1) < 0.03
    wrong = np.asarray(jax.flatten_util.ravel_pytree(jax.grad(bound)(PSI))[0], float)
    assert wrong @ gradient / np.linalg.norm(wrong) / np.linalg.norm(gradient) < 0.99


def test_the_posterior_is_weighted_by_all_the_data():
    """Even after training on minibatches."""
    algorithm = pb.algorithms.monte_carlo(
        ORACLE.model, num_particles=20_000, optimizer=optax.set_to_zero()
    )
    data = (ORACLE.inputs, ORACLE.targets)
    trained = pb.fit(algorithm, data, epochs=1, batch_size=2)
    mean, covariance = ORACLE.posterior(PSI)
    spread = jnp.sqrt(jnp.diag(covariance) / trained.report.ess)
    assert bool((jnp.abs(weighted_mean(trained.posterior.particles) - mean) < 4.5 * spread).all())
    assert abs(float(trained.report.log_evidence - ORACLE.log_evidence(PSI))) < 0.3


def test_the_likelihood_is_raised_to_the_scale_of_the_batch():
    algorithm = pb.algorithms.monte_carlo(ORACLE.model, num_particles=6)
    batch = BATCH._replace(scale=jnp.asarray(3.0))
    start = jax.jit(algorithm.init)(jax.random.key(0))
    state, info = jax.jit(algorithm.step)(jax.random.key(1), start, batch)
    values, log_weights = state.particles
    log_likelihoods = jax.jit(jax.vmap(lambda phi: ORACLE.model.log_likelihood(phi, PSI, batch)))
    terms = 3.0 * log_likelihoods(values).sum(axis=1)
    np.testing.assert_allclose(log_weights, jax.nn.log_softmax(terms), rtol=1e-4, atol=1e-4)
    expected = -pb.algorithms.log_expected_likelihood(terms) / 15
    np.testing.assert_allclose(info["loss"], expected, rtol=1e-5)


def test_bad_arguments():
    with pytest.raises(ValueError, match="num_particles must be a whole number"):
        pb.algorithms.monte_carlo(ORACLE.model, num_particles=0)

"""SGLD and SGHMC against the closed form, discretization bias included.

On a Gaussian posterior N(m, P⁻¹) the step φ ← φ − h P (φ − m) + N(0, 2h I) is a linear recursion. In
the eigenbasis of P each coordinate is an AR(1) process with factor 1 − h p and stationary variance
2h / (1 − (1 − h p)²) = 1 / (p (1 − h p / 2)): precision P (I − h P / 2).
"""

import jax
import numpy as np
import optax
import pytest

import partialbayes as pb
from partialbayes.model._batch import full_batch
from tests.oracles import conjugate

ORACLE = conjugate()
BATCH = full_batch(ORACLE.inputs, ORACLE.targets)
PSI = ORACLE.model.init(jax.random.key(0)).psi
RATE = 0.01  # h p reaches 0.85, where the bias of the variance is a factor of 1.7


@pytest.fixture(scope="module")
def gaussian():
    """Posterior mean, eigenvalues p of the precision, and its eigenvectors as columns."""
    mean, covariance = (np.asarray(moment, np.float64) for moment in ORACLE.posterior(PSI))
    eigenvalues, eigenvectors = np.linalg.eigh(np.linalg.inv(covariance))
    return mean, eigenvalues, eigenvectors


def run(algorithm, num_steps, seed=0):
    key_init, key_steps = jax.random.split(jax.random.key(seed))

    def body(index, state):
        return algorithm.step(jax.random.fold_in(key_steps, index), state, BATCH)[0]

    return jax.jit(lambda: jax.lax.fori_loop(0, num_steps, body, algorithm.init(key_init)))()


@pytest.mark.parametrize("friction", [0.1, 0.5])
def test_sghmc_has_the_moments_of_the_discretized_chain(gaussian, friction):
    """Second moments of φ and momentum are stationary at a variance of 1 / (p (1 − h p / (4 − 2α)))."""
    mean, precision, axes = gaussian
    algorithm = pb.ensemble(
        pb.algorithms.sghmc(
            ORACLE.model,
            num_particles=1,
            step_size=RATE,
            friction=friction,
            num_warmup=1999,
            optimizer=optax.set_to_zero(),
        ),
        4000,
    )
    particles = algorithm.posterior(run(algorithm, 2000)).particles
    values = (np.asarray(particles.values[:, 0], np.float64) - mean) @ axes
    variance = 1.0 / (precision * (1.0 - RATE * precision / (4.0 - 2.0 * friction)))
    assert np.abs(values.mean(axis=0) / np.sqrt(variance / 4000)).max() < 4.5
    assert np.abs((values.var(axis=0) / variance - 1.0) / np.sqrt(2.0 / 4000)).max() < 4.5
    assert np.abs((values.var(axis=0) * precision - 1.0) / np.sqrt(2.0 / 4000)).max() > 6


def test_sgld_has_the_moments_of_the_discretized_chain(gaussian):
    mean, precision, axes = gaussian
    number = 40_000
    algorithm = pb.algorithms.sgld(
        ORACLE.model,
        num_particles=number,
        step_size=RATE,
        num_warmup=1000,
        optimizer=optax.set_to_zero(),
    )
    particles = algorithm.posterior(run(algorithm, number + 1000)).particles
    assert np.allclose(particles.log_weights, -np.log(number))
    values = (np.asarray(particles.values, np.float64) - mean) @ axes

    factor = 1.0 - RATE * precision
    variance = 1.0 / (precision * (1.0 - 0.5 * RATE * precision))
    mean_error = np.sqrt(variance / number * (1.0 + factor) / (1.0 - factor))
    variance_error = np.sqrt(2.0 / number * (1.0 + factor**2) / (1.0 - factor**2))
    assert np.abs(values.mean(axis=0) / mean_error).max() < 4.5
    variance_z = (np.square(values).mean(axis=0) / variance - 1.0) / variance_error
    assert np.abs(variance_z).max() < 4.5
    assert np.abs((np.square(values).mean(axis=0) * precision - 1.0) / variance_error).max() > 10

"""Particle gradient descent and SGLD against the closed form, discretization bias included.

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


@pytest.mark.parametrize("num_steps", [3, 1500], ids=["early", "settled"])
def test_particles_have_the_exact_law_of_the_discretized_chain(gaussian, num_steps):
    mean, precision, axes = gaussian
    number = 4000
    algorithm = pb.algorithms.particle_gradient_descent(
        ORACLE.model, num_particles=number, step_size=RATE, optimizer=optax.set_to_zero()
    )
    posterior = algorithm.posterior(run(algorithm, num_steps))
    values = (np.asarray(posterior.particles.values, np.float64) - mean) @ axes

    factor = 1.0 - RATE * precision
    start = np.exp(2 * float(PSI.prior))  # particles start from the prior N(0, τ² I)
    center = factor**num_steps * (-mean @ axes)
    settled = 1.0 / (precision * (1.0 - 0.5 * RATE * precision))
    variance = settled + factor ** (2 * num_steps) * (start - settled)
    assert np.abs((values.mean(axis=0) - center) / np.sqrt(variance / number)).max() < 4.5
    assert np.abs((values.var(axis=0) / variance - 1.0) / np.sqrt(2.0 / number)).max() < 4.5
    correlation = np.corrcoef(values.T)[np.triu_indices(3, 1)] * np.sqrt(number)
    assert np.abs(correlation).max() < 4.5
    # The bias is large enough to be seen: the posterior itself would be refused.
    if num_steps > 1000:
        assert np.abs((values.var(axis=0) * precision - 1.0) / np.sqrt(2.0 / number)).max() > 10


def test_a_small_rate_gives_the_posterior(gaussian):
    mean, precision, axes = gaussian
    number = 2000
    algorithm = pb.algorithms.particle_gradient_descent(
        ORACLE.model,
        num_particles=number,
        step_size=optax.piecewise_constant_schedule(0.01, {1000: 0.03}),  # 3e-4: h p is at most 0.025
        optimizer=optax.set_to_zero(),
    )
    posterior = algorithm.posterior(run(algorithm, 1400))
    values = (np.asarray(posterior.particles.values, np.float64) - mean) @ axes
    assert np.abs(values.mean(axis=0) * np.sqrt(precision * number)).max() < 4.5
    stiff = (values.var(axis=0) * precision)[1:]
    assert np.abs(stiff - 1.0).max() < 0.025 + 4 * np.sqrt(2.0 / number)


def test_psi_climbs_to_the_maximum_of_the_evidence():
    """The mean gradient is Fisher's: noise and prior scale reach the maximum of the evidence."""

    def learn_scales(rate):
        labels = PSI._replace(network="fixed", likelihood="learned", prior="learned")
        return optax.multi_transform({"learned": optax.adam(rate), "fixed": optax.set_to_zero()}, labels)

    start = PSI._replace(likelihood=PSI.likelihood + 1.0, prior=PSI.prior - 1.0)
    model = ORACLE.model._replace(init=lambda key: ORACLE.model.init(key)._replace(psi=start))
    algorithm = pb.algorithms.particle_gradient_descent(
        model,
        num_particles=200,
        step_size=2e-3,
        optimizer=learn_scales(optax.cosine_decay_schedule(0.02, 3000)),
    )
    found = run(algorithm, 3000).psi

    exact = learn_scales(0.02)

    def climb(index, carry):
        psi, state = carry
        gradient = jax.grad(lambda psi: -ORACLE.log_evidence(psi))(psi)
        updates, state = exact.update(gradient, state)
        return optax.apply_updates(psi, updates), state

    best, _ = jax.jit(lambda: jax.lax.fori_loop(0, 1000, climb, (start, exact.init(start))))()
    before, reached, maximum = (float(ORACLE.log_evidence(psi)) for psi in (start, found, best))
    assert before < maximum - 3.0
    assert reached > maximum - 0.05


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

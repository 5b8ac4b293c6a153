"""Particles with gradients against the posterior in closed form: no bias of the step at all.

With noise (ξ + ξ') / 2 the step φ ← φ − h D P (φ − m) + √(2 h D) (ξ + ξ') / 2 settles at N(m, P⁻¹)
whatever h and D are: with a = 1 − h p, s = a² s + 2h (1/2 + a/2) has the solution s = 1/p.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import partialbayes as pb
from partialbayes.algorithms._particle_gradient import fisher_information
from partialbayes.model._batch import full_batch
from tests.oracles import conjugate

ORACLE = conjugate()
BATCH = full_batch(ORACLE.inputs, ORACLE.targets)
PSI = ORACLE.model.init(jax.random.key(0)).psi
NUMBER = 2000


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


def standardized(state, gaussian):
    """The particles along the axes of the posterior, in its standard deviations."""
    mean, precision, axes = gaussian
    return (np.asarray(state.particles.values, np.float64) - mean) @ axes * np.sqrt(precision)


def frozen(**settings):
    return pb.algorithms.particle_gradient_descent(
        ORACLE.model, num_particles=NUMBER, optimizer=optax.set_to_zero(), **settings
    )


@pytest.mark.parametrize("num_steps", [3, 1500], ids=["early", "settled"])
def test_particles_have_the_exact_law_of_the_discretized_chain(gaussian, num_steps):
    mean, precision, axes = gaussian
    rate = 0.01  # h p reaches 0.85
    found = standardized(run(frozen(step_size=rate, preconditioner="none"), num_steps), gaussian)
    factor = 1.0 - rate * precision
    variance = np.exp(2 * float(PSI.prior)) * precision  # particles start from the prior N(0, τ² I)
    for index in range(num_steps):
        shared = 0.0 if index == 0 else 1.0  # the noise before the first step is in no particle
        variance = factor**2 * variance + rate * precision * (1.0 + shared * factor)
    center = factor**num_steps * (-mean @ axes) * np.sqrt(precision)
    assert np.abs((found.mean(axis=0) - center) / np.sqrt(variance / NUMBER)).max() < 4.5
    assert np.abs((found.var(axis=0) / variance - 1.0) / np.sqrt(2.0 / NUMBER)).max() < 4.5
    if num_steps > 1000:
        np.testing.assert_allclose(variance, 1.0, rtol=1e-6)


def moments_over_time(algorithm, num_steps, gaussian, batch_size=None):
    """Mean and mean square of the standardized particles at every step."""
    mean, precision, axes = (jnp.asarray(part, float) for part in gaussian)

    def body(state, key):
        key_rows, key_step = jax.random.split(key)
        batch = BATCH
        if batch_size is not None:
            rows = jax.random.permutation(key_rows, 30)[:batch_size]
            batch = full_batch(ORACLE.inputs[rows], ORACLE.targets[rows])
            batch = batch._replace(scale=jnp.asarray(30 / batch_size))
        state, _ = algorithm.step(key_step, state, batch)
        values = ((state.particles.values - mean[None, :]) @ axes) * jnp.sqrt(precision)[None, :]
        return state, (values.mean(axis=0), jnp.square(values).mean(axis=0))

    keys = jax.random.split(jax.random.key(1), num_steps)
    start = algorithm.init(jax.random.key(0))
    _, found = jax.jit(lambda: jax.lax.scan(body, start, keys))()
    return (np.asarray(part, np.float64)[num_steps // 5 :] for part in found)


@pytest.mark.parametrize(
    ("settings", "batch_size", "excess", "tolerance"),
    [
        ({"preconditioner": "covariance"}, None, 0.0, 0.015),
        ({"preconditioner": "diagonal"}, None, 0.0, 0.05),
        ({"preconditioner": "diagonal", "temperature": 0.25}, None, 0.0, 0.05),
        ({"preconditioner": "covariance", "temperature": 0.25}, None, 0.0, 0.015),
        # A batch that all share moves the mean by h / 2ε = 0.05 posterior variances, or 2/3 of that for
        # a third of the rows; batches of their own add as much to the variance.
        ({"preconditioner": "covariance"}, 10, 0.033, 0.04),
        ({"rows_per_particle": 10}, None, 0.033, 0.06),
    ],
    ids=str,
)
def test_the_defaults_give_the_posterior(gaussian, settings, batch_size, excess, tolerance):
    temperature = settings.get("temperature", 1.0)
    num_steps = 10_000 if "rows_per_particle" in settings else 5000
    means, squares = moments_over_time(frozen(**settings), num_steps, gaussian, batch_size)
    # Batches of their own shift the mean, by 0.045 ± 0.003 standard deviations along the widest axis.
    bias = 0.07 if "rows_per_particle" in settings else 0.05
    assert np.abs(means.mean(axis=0)).max() < bias
    np.testing.assert_allclose(squares.mean(axis=0) / temperature, 1.0 + excess, atol=tolerance)


@pytest.mark.parametrize("number", [2, 8], ids=["diagonal", "covariance"])
def test_few_particles_are_right_over_time(gaussian, number):
    """Fewer particles than dimensions, and few more: the moments over a long run."""
    algorithm = pb.algorithms.particle_gradient_descent(
        ORACLE.model, num_particles=number, optimizer=optax.set_to_zero()
    )
    means, squares = moments_over_time(algorithm, 200_000, gaussian)
    # The softest direction relaxes in some 500 steps with a diagonal: 2 × 400 independent draws.
    assert np.abs(means.mean(axis=0)).max() < 4.5 / np.sqrt(800)
    assert np.abs(squares.mean(axis=0) - 1.0).max() < 4.5 * np.sqrt(2.0 / 800)


def test_information_of_imagined_targets_is_that_of_the_model():
    """Its mean over draws is the diagonal of Φᵀ Φ / σ², in batches too."""
    features = np.asarray(ORACLE.features(PSI), np.float64)
    exact = np.square(features).sum(axis=0) / np.exp(float(PSI.likelihood))
    values = ORACLE.model.sample_prior(jax.random.key(2), PSI, 5)
    half = full_batch(ORACLE.inputs[::2], ORACLE.targets[::2])._replace(scale=jnp.asarray(2.0))
    other = full_batch(ORACLE.inputs[1::2], ORACLE.targets[1::2])._replace(scale=jnp.asarray(2.0))

    @jax.jit
    @jax.vmap
    def both(key):
        pair = jax.random.split(key)
        one, two = (
            fisher_information(ORACLE.model, pair[place], values, PSI, batch)
            for place, batch in enumerate((half, other))
        )
        return (one + two) / 2.0

    draws = np.asarray(both(jax.random.split(jax.random.key(3), 4000)), np.float64)
    z = (draws.mean(axis=0) - exact) / (draws.std(axis=0) / np.sqrt(4000))
    assert np.abs(z).max() < 4.5


def test_psi_climbs_to_the_maximum_of_the_evidence():
    """The mean gradient is Fisher's: noise and prior scale reach the maximum of the evidence."""

    def learn_scales(rate, wrap=lambda psi: psi):
        labels = wrap(PSI._replace(network="fixed", likelihood="learned", prior="learned"))
        return optax.multi_transform({"learned": optax.adam(rate), "fixed": optax.set_to_zero()}, labels)

    start = PSI._replace(likelihood=PSI.likelihood + 1.0, prior=PSI.prior - 1.0)
    model = ORACLE.model._replace(init=lambda key: ORACLE.model.init(key)._replace(psi=start))
    algorithm = pb.algorithms.particle_gradient_descent(
        model,
        num_particles=200,
        optimizer=learn_scales(
            optax.cosine_decay_schedule(0.02, 3000), lambda psi: pb.types.Params("fixed", psi)
        ),
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

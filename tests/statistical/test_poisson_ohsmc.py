"""The Poisson estimator of the likelihood is unbiased: an exact expectation at N = 2."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import partialbayes as pb
from partialbayes.algorithms._poisson_ohsmc import poisson_estimates, random_subset
from partialbayes.model._batch import full_batch
from partialbayes.weights import weighted_mean, weighted_variance

LOG_C, INTENSITY = 14.0, 10.0
TARGETS = jnp.asarray([0.3, -0.8])
BATCH = full_batch(jnp.zeros((2, 1)), TARGETS)


def location_model() -> pb.types.Model:
    """y ~ N(φ, 1), φ ~ N(0, 1)."""
    network = pb.types.Network(
        init=lambda key: {"location": jnp.zeros(1)},
        apply=lambda params, inputs: jnp.broadcast_to(params["location"], inputs.shape[:1]),
    )
    return pb.partial_bnn(network, "location", pb.gaussian(1.0))


MODEL = location_model()
PSI = MODEL.init(jax.random.key(0)).psi


def log_likelihoods(phi: float) -> np.ndarray:
    return np.asarray(MODEL.log_likelihood(jnp.asarray([phi]), PSI, BATCH), np.float64)


def test_expectation_over_the_poisson_law_and_all_batches_is_the_likelihood():
    """The equation itself: every P, every sequence of batches, by their probabilities."""
    rows = log_likelihoods(0.7)
    factors = 2 * rows + LOG_C  # M = 1: either row, at N/M = 2
    assert (factors > 0).all()
    mean_factor = factors.mean() / INTENSITY
    law = [math.exp(-INTENSITY + p * math.log(INTENSITY) - math.lgamma(p + 1)) for p in range(120)]
    expectation = sum(q * mean_factor**p for p, q in enumerate(law)) * math.exp(INTENSITY - LOG_C)
    assert expectation == pytest.approx(math.exp(rows.sum()), rel=1e-10)


def test_estimates_have_that_expectation():
    phi, num = 0.7, 50_000
    values = jnp.full((num, 1), phi)
    estimates = jax.jit(
        lambda key: poisson_estimates(key, MODEL, values, PSI, BATCH, LOG_C, INTENSITY, 1)
    )(jax.random.key(1))
    ratios = np.exp(np.asarray(estimates.log_likelihoods, np.float64) - log_likelihoods(phi).sum())
    error = ratios.std() / num**0.5
    assert abs(ratios.mean() - 1.0) < 4.5 * error
    # The test can fail: a likelihood that is off by five percent is found out.
    assert error < 0.05 / 9


def test_batches_are_drawn_evenly_and_scaled_up():
    def one(key):
        subset = random_subset(key, BATCH, 1)
        return subset.targets[0] == TARGETS[0], subset.scale

    first, scale = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(2), 10_000))
    assert abs(float(first.mean()) - 0.5) < 4.5 * 0.5 / 100
    assert bool((scale == 2.0).all())


def test_masked_rows_are_never_drawn():
    batch = full_batch(jnp.zeros((4, 1)), jnp.asarray([1.0, jnp.nan, 2.0, jnp.nan]))
    batch = batch._replace(mask=jnp.asarray([True, False, True, False]), scale=jnp.asarray(3.0))
    for size, scale in ((1, 6.0), (2, 3.0)):
        subsets = jax.jit(jax.vmap(lambda key, n=size: random_subset(key, batch, n)))(
            jax.random.split(jax.random.key(3), 200)
        )
        assert not bool(jnp.isnan(subsets.targets).any())
        assert bool((subsets.scale == scale).all())


@pytest.mark.slow
def test_the_particles_follow_the_exact_posterior():
    """N(Σy/3, 1/3), over replicates; so does the evidence."""
    algorithm = pb.algorithms.poisson_ohsmc(
        MODEL, log_c=60.0, intensity=56.0, num_particles=500, optimizer=optax.set_to_zero()
    )
    state = algorithm.init(jax.random.key(0))

    def replicate(key):
        after, info = algorithm.step(key, state, BATCH)
        mean, variance = weighted_mean(after.particles)[0], weighted_variance(after.particles)[0]
        return jnp.stack([mean, variance, jnp.exp(info["log_evidence_increment"])]), info

    keys = jax.random.split(jax.random.key(4), 100)
    found, info = jax.jit(lambda keys: jax.lax.map(replicate, keys))(keys)
    assert float(info["smallest_factor"].min()) > 0.0
    mean, variance = float(TARGETS.sum()) / 3, 1 / 3
    evidence = np.exp(
        jax.scipy.stats.multivariate_normal.logpdf(TARGETS, jnp.zeros(2), jnp.eye(2) + 1.0)
    )
    error = np.std(found, axis=0) / 10
    z = (np.mean(found, axis=0) - np.array([mean, variance, evidence])) / error
    # A ratio of estimates is biased by 1/J, of the order of a tenth of its error here.
    assert np.all(np.abs(z) < 4.5), z


def test_a_constant_too_small_stops_the_run_and_is_named():
    algorithm = pb.algorithms.poisson_ohsmc(MODEL, log_c=2.0, intensity=3.0, num_particles=50)
    with pytest.raises(
        pb.errors.TrainingDivergedError, match=r"constant c .* too small.*Raise log_c by more"
    ):
        pb.fit(algorithm, (BATCH.inputs, TARGETS), epochs=3)


def test_a_subset_larger_than_the_data():
    algorithm = pb.algorithms.poisson_ohsmc(
        MODEL, log_c=20.0, intensity=10.0, subset_size=3, num_particles=5
    )
    with pytest.raises(ValueError, match="subset_size is 3, but there are only 2 rows"):
        pb.fit(algorithm, (BATCH.inputs, TARGETS), epochs=1)


@pytest.mark.parametrize("name", ["log_c", "intensity"])
def test_numbers_that_must_be_positive(name):
    with pytest.raises(ValueError, match=f"{name} must be positive"):
        pb.algorithms.poisson_ohsmc(MODEL, **({"log_c": 1.0, "intensity": 1.0} | {name: -1.0}))

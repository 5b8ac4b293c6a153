"""The error of log Ẑ: from the ancestry of one run, and from several runs."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partialbayes as pb
from partialbayes.annealing import as_exponents, posterior_family
from partialbayes.feynman_kac._evidence import log_unrelated
from partialbayes.feynman_kac._feynman_kac import keep_chains, relative_variance, resample_move, run_path
from partialbayes.model._batch import full_batch
from partialbayes.types import Particles
from partialbayes.weights import uniform_log_weights
from tests.oracles import conjugate

ORACLE = conjugate()
PSI = ORACLE.model.init(jax.random.key(0)).psi
FAMILY = posterior_family(ORACLE.model, PSI, full_batch(ORACLE.inputs, ORACLE.targets))
TRUTH = ORACLE.log_evidence(PSI)
METROPOLIS = pb.kernels.random_walk_metropolis(0.05, num_steps=5)
TEMPERATURES = pb.annealing.tempering(np.geomspace(0.01, 1.0, 8))


def multinomial(key, particles):
    num = particles.log_weights.shape[0]
    ancestors = jax.random.categorical(key, particles.log_weights, shape=(num,)).astype(jnp.int32)
    return Particles(particles.values[ancestors], uniform_log_weights(num)), ancestors


@cache
def runs(mutation, schedule, num_particles=300, num_runs=300):
    """Ẑ/Z and the estimated variance of independent runs."""
    exponents = as_exponents(schedule, FAMILY.num_rows)

    def one(key):
        cloud, _ = run_path(key, FAMILY, exponents, mutation, num_particles, ())
        return cloud.log_evidence, relative_variance(cloud, mutation)

    # The checker takes a scan inside vmap for a reuse of its key.
    with jax.debug_key_reuse(False):
        log_evidences, variances = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(4), num_runs))
    return np.exp(np.asarray(log_evidences - TRUTH, float)), np.asarray(variances, float)


def within(estimated, ratios):
    """The variance of 300 ratios is itself known to about 15 % (they have heavy tails)."""
    return 0.6 < estimated.mean() / ratios.var(ddof=1) < 1.6


MULTINOMIAL = resample_move(METROPOLIS, multinomial)
slow = pytest.mark.slow


@pytest.mark.parametrize(
    ("mutation", "schedule"),
    [
        pytest.param(MULTINOMIAL, TEMPERATURES, id="multinomial"),
        pytest.param(
            resample_move(METROPOLIS, pb.resampling.stratified),
            pb.annealing.geometric_blocks(),
            id="stratified",
            marks=slow,
        ),
        pytest.param(
            resample_move(METROPOLIS, pb.resampling.when_ess_below(0.5)),
            pb.annealing.blocks(1),
            id="by ess",
            marks=slow,
        ),
        pytest.param(
            keep_chains(pb.kernels.random_walk_metropolis(0.1, num_steps=3), 3),
            TEMPERATURES,
            id="waste-free",
            marks=slow,
        ),
    ],
)
def test_the_ancestry_gives_the_variance_of_the_evidence(mutation, schedule):
    ratios, estimated = runs(mutation, schedule)
    assert abs(ratios.mean() - 1.0) < 4.0 * ratios.std(ddof=1) / np.sqrt(len(ratios))
    assert within(estimated, ratios)


def test_without_resampling_it_is_the_variance_of_the_mean_weight():
    def never(key, particles):
        return particles, jnp.arange(particles.log_weights.shape[0], dtype=jnp.int32)

    mutation = resample_move(pb.kernels.identity(), never)
    exponents = as_exponents(pb.annealing.blocks(1), FAMILY.num_rows)
    cloud, _ = jax.jit(lambda key: run_path(key, FAMILY, exponents, mutation, 50, ()))(jax.random.key(0))
    weights = np.exp(np.asarray(cloud.particles.log_weights, float))
    expected = weights.var(ddof=1) / 50 / weights.mean() ** 2
    assert np.isclose(float(relative_variance(cloud, mutation)), expected, rtol=1e-3)


def test_it_is_one_once_a_single_family_is_left():
    mutation = resample_move(pb.kernels.identity(), multinomial)
    exponents = as_exponents(pb.annealing.blocks(1), FAMILY.num_rows)
    run = jax.jit(lambda key: run_path(key, FAMILY, exponents, mutation, 4, ()))
    cloud, record = run(jax.random.key(0))
    assert record.ancestors[-1] == 1.0
    assert relative_variance(cloud, mutation) == 1.0


def test_kinship_is_the_sum_of_squared_shares_of_families():
    log_weights = jnp.log(jnp.array([0.1, 0.2, 0.3, 0.4]))
    assert jnp.allclose(
        log_unrelated(log_weights, jnp.array([0, 0, 3, 1]), 4), jnp.log(1.0 - (0.3**2 + 0.3**2 + 0.4**2))
    )


def test_evidence_from_runs_covers_the_truth():
    """Pooled estimates of groups of runs: mean zero and unit variance in their own errors."""
    ratios, _ = runs(MULTINOMIAL, TEMPERATURES)
    groups = jnp.log(jnp.asarray(ratios, float)).reshape(15, 20)
    pooled = jax.vmap(pb.feynman_kac.evidence_from_runs)(groups)
    scores = np.asarray(pooled.log_evidence / pooled.standard_error)
    assert abs(scores.mean()) < 4.0 / np.sqrt(15)
    assert 0.5 < scores.std(ddof=1) < 2.0
    with pytest.raises(ValueError, match="at least two"):
        pb.feynman_kac.evidence_from_runs(jnp.zeros(1))

"""Algorithms 1 and 2 on the conjugate network, where evidence, posterior and gradient are known."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import partialbayes as pb
from partialbayes.annealing import as_exponents, posterior_family
from partialbayes.feynman_kac._feynman_kac import resample_move, run_path
from partialbayes.kernels._random_walk import moved_without_correction
from partialbayes.model._batch import full_batch
from partialbayes.types import Batch, Kernel, Particles
from partialbayes.weights import uniform_log_weights, weighted_mean
from tests.oracles import Conjugate, conjugate

ORACLE = conjugate()
PSI = ORACLE.model.init(jax.random.key(0)).psi
METROPOLIS = pb.kernels.random_walk_metropolis(0.05, num_steps=5)
IN_PAIRS = pb.kernels.random_walk_metropolis(0.05, num_steps=5, in_pairs=True)
BLOCKS = pb.annealing.geometric_blocks()
TEMPERATURES = pb.annealing.tempering(np.geomspace(0.01, 1.0, 10))
NUM_RUNS = 200


def minibatch() -> tuple[Conjugate, Batch]:
    """Ten rows and a masked one, and the oracle of the ten alone.

    At these rows the gradient is far from zero, so that its direction can be told from 10⁴ draws.
    """
    rows = jnp.arange(20, 30)
    padded = jnp.append(rows, 0)
    oracle = ORACLE._replace(inputs=ORACLE.inputs[rows], targets=ORACLE.targets[rows])
    mask = jnp.arange(11) < 10
    return oracle, Batch(ORACLE.inputs[padded], ORACLE.targets[padded], mask, jnp.asarray(3.0))


BATCHES = {"smc": (ORACLE, full_batch(ORACLE.inputs, ORACLE.targets)), "sgsmc": minibatch()}
BUILD = {"smc": pb.smc, "sgsmc": pb.sgsmc}
every_trainer = pytest.mark.parametrize("name", BUILD)


def many_runs(algorithm, batch, num_runs=NUM_RUNS):
    """Log-evidence and posterior mean of independent steps, in one program."""
    state = algorithm.init(jax.random.key(0))

    def one(key):
        after, info = algorithm.step(key, state, batch)
        return info["log_evidence_increment"], weighted_mean(after.sampled.particles), info

    # The checker takes a scan inside vmap for a reuse of its key.
    with jax.debug_key_reuse(False):
        return jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(1), num_runs))


def z_scores(samples):
    samples = np.asarray(samples, float)
    return samples.mean(axis=0) / (samples.std(axis=0, ddof=1) / np.sqrt(len(samples)))


def evidence_and_mean_scores(oracle, log_evidences, means):
    """Z-scores of Ẑ/Z − 1 and of (Ẑ/Z)(mean − truth): both have expectation zero exactly."""
    ratios = np.exp(np.asarray(log_evidences, float) - float(oracle.log_evidence(PSI)))
    truth = np.asarray(oracle.posterior(PSI)[0], float)
    return z_scores(ratios - 1.0), z_scores(ratios[:, None] * (np.asarray(means) - truth))


@pytest.mark.parametrize(
    ("name", "schedule", "resample"),
    [
        ("smc", BLOCKS, pb.resampling.when_ess_below(0.5)),
        ("sgsmc", TEMPERATURES, pb.resampling.systematic),
        pytest.param("sgsmc", pb.annealing.blocks(1), pb.resampling.stratified, marks=pytest.mark.slow),
        pytest.param("smc", pb.annealing.blocks(4), pb.resampling.stratified, marks=pytest.mark.slow),
    ],
    ids=["smc, blocks, by ess", "sgsmc, tempering, always", "sgsmc, one by one", "smc, fixed"],
)
def test_evidence_is_unbiased_and_the_posterior_mean_right(name, schedule, resample):
    oracle, batch = BATCHES[name]
    kernel = METROPOLIS if name == "smc" else IN_PAIRS
    algorithm = BUILD[name](
        ORACLE.model, num_particles=200, schedule=schedule, kernel=kernel, resample=resample
    )
    log_evidences, means, info = many_runs(algorithm, batch)
    evidence_score, mean_scores = evidence_and_mean_scores(oracle, log_evidences, means)
    assert abs(evidence_score) < 4.0
    assert np.all(np.abs(mean_scores) < 4.0)
    # At every annealing step that moves, in every run.
    assert np.all((np.asarray(info["min_acceptance"]) > 0.05) & (np.asarray(info["acceptance"]) < 1.0))


@every_trainer
def test_fisher_gradient_points_where_the_exact_one_does(name):
    """Through the trainer itself: plain gradient ascent at rate one moves ψ by the gradient."""
    oracle, batch = BATCHES[name]
    algorithm = BUILD[name](
        ORACLE.model,
        num_particles=40_000,  # eight runs: 1 − cosine below 5e-4; of 10,000 up to 1.2e-3
        schedule=TEMPERATURES,
        kernel=pb.kernels.adapted_hamiltonian(num_steps=2),
        resample=pb.resampling.stratified,
        optimizer=optax.sgd(1.0),
    )
    state = algorithm.init(jax.random.key(0))
    after, _ = jax.jit(algorithm.step)(jax.random.key(1), state, batch)
    moved = jax.tree.map(jnp.subtract, after.psi, state.psi)
    exact = jax.grad(oracle.log_evidence)(PSI)
    ours, theirs = (jax.flatten_util.ravel_pytree(tree)[0] for tree in (moved, exact))
    assert ours.size == ORACLE.model.init(jax.random.key(0)).psi.network["trunk"].size + 2
    cosine = ours @ theirs / (jnp.linalg.norm(ours) * jnp.linalg.norm(theirs))
    assert cosine > 0.999
    length = jnp.linalg.norm(ours) / jnp.linalg.norm(theirs)
    assert jnp.allclose(length, batch.scale, rtol=0.1)
    # The test can fail: a gradient without its noise or its prior part would be seen.
    for part in ("likelihood", "prior"):
        lacking = jax.flatten_util.ravel_pytree(exact._replace(**{part: jnp.zeros(())}))[0]
        assert lacking @ theirs / (jnp.linalg.norm(lacking) * jnp.linalg.norm(theirs)) < 0.999


def test_padding_changes_nothing():
    """The same particles see the same targets, with and without masked rows."""
    oracle, batch = BATCHES["sgsmc"]
    alone = full_batch(oracle.inputs, oracle.targets)._replace(scale=batch.scale)
    algorithm = pb.sgsmc(
        ORACLE.model,
        num_particles=64,
        kernel=METROPOLIS,
        schedule=pb.annealing.tempering([0.1, 0.4, 1.0]),
        optimizer=optax.sgd(1.0),  # ψ moves by its gradient
    )
    state = algorithm.init(jax.random.key(0))
    step = jax.jit(algorithm.step)
    padded, info = step(jax.random.key(1), state, batch)
    plain, plain_info = step(jax.random.key(1), state, alone)
    for left, right in zip(jax.tree.leaves(padded), jax.tree.leaves(plain), strict=True):
        assert jnp.allclose(left, right, rtol=1e-6, atol=1e-6 * jnp.maximum(1.0, jnp.abs(right).max()))
    assert all(jnp.allclose(info[name], plain_info[name], rtol=1e-5) for name in info)


@cache
def program(schedule, rows):
    mutation = resample_move(METROPOLIS, pb.resampling.stratified)
    exponents = as_exponents(schedule, rows)

    def run(key, batch):
        family = posterior_family(ORACLE.model, PSI, batch)
        return run_path(key, family, exponents, mutation, 200, ())[1].acceptance

    return jax.jit(run), exponents.shape[0]


def acceptances(batch, schedule):
    run, steps = program(schedule, batch.mask.shape[0])
    acceptance = np.asarray(run(jax.random.key(0), batch))[1:]  # nothing moves in the first step
    assert len(acceptance) == steps - 2
    return acceptance


@pytest.mark.parametrize("schedule", [pb.annealing.blocks(1), BLOCKS], ids=["ones", "geometric"])
def test_acceptance_is_a_probability_at_every_annealing_step(schedule):
    _, batch = BATCHES["sgsmc"]
    acceptance = acceptances(batch, schedule)
    assert np.all((acceptance > 0.0) & (acceptance < 1.0))


def float32_draws(model):
    """Model, kernel and resampler that draw in float32 whatever the precision they compute in."""

    def normals(key, shape):
        return jax.random.normal(key, shape, jnp.float32).astype(float)

    def uniforms(key, shape):
        return jax.random.uniform(key, shape, jnp.float32).astype(float)

    def step(key, particles, target, state):
        key_propose, key_accept = jax.random.split(key)
        proposed = particles.values + 0.3 * normals(key_propose, particles.values.shape)
        log_ratio = jax.vmap(target.log_density)(proposed) - jax.vmap(target.log_density)(
            particles.values
        )
        accepted = jnp.log(uniforms(key_accept, log_ratio.shape)) < log_ratio
        moved = moved_without_correction(jnp.where(accepted[:, None], proposed, particles.values), state)
        return moved._replace(acceptance=accepted.mean(dtype=moved.acceptance.dtype))

    def resample(key, particles):
        num = particles.log_weights.shape[0]
        cumulative = jnp.cumsum(jnp.exp(particles.log_weights))
        ancestors = jnp.searchsorted(cumulative, (jnp.arange(num) + uniforms(key, (num,))) / num)
        ancestors = ancestors.clip(max=num - 1).astype(jnp.int32)
        return Particles(particles.values[ancestors], uniform_log_weights(num)), ancestors

    def sample(key, learned, num):
        return jnp.exp(learned) * normals(key, (num, 3))

    return model._replace(prior=model.prior._replace(sample=sample)), Kernel(step), resample


def test_single_precision_is_enough():
    """The same draws in float32 and float64 give the same log-evidence to a thousandth."""

    def log_evidence():
        oracle = conjugate()
        model, kernel, resample = float32_draws(oracle.model)
        algorithm = pb.smc(
            model, num_particles=500, schedule=TEMPERATURES, kernel=kernel, resample=resample
        )
        state = algorithm.init(jax.random.key(0))
        batch = full_batch(oracle.inputs, oracle.targets)
        value = jax.jit(algorithm.step)(jax.random.key(1), state, batch)[1]["log_evidence_increment"]
        return np.asarray(value)

    single = log_evidence()
    with jax.enable_x64(True):
        double = log_evidence()
    assert (single.dtype, double.dtype) == (jnp.float32, jnp.float64)
    assert single != double
    assert abs(single - double) < 1e-3 * abs(double)


class TestOfTheTests:
    """Each mistake that the tests above guard against, made on purpose, is seen."""

    batch = BATCHES["smc"][1]

    def scores(self, model, kernel=METROPOLIS):
        algorithm = pb.smc(model, num_particles=200, schedule=BLOCKS, kernel=kernel)
        log_evidences, means, info = many_runs(algorithm, self.batch)
        return evidence_and_mean_scores(ORACLE, log_evidences, means), info

    def test_moving_under_the_new_target_is_seen(self):
        def step(key, particles, target, state):
            early = target._replace(
                log_density=lambda phi: target.log_density(phi) + target.log_potential(phi)
            )
            return METROPOLIS.step(key, particles, early, state)

        (evidence_score, _), _ = self.scores(ORACLE.model, Kernel(step, init=METROPOLIS.init))
        assert abs(evidence_score) > 4.0

    @pytest.mark.slow
    def test_a_variance_taken_for_a_standard_deviation_is_seen(self):
        def sample(key, learned, num):
            return jnp.exp(2 * learned) * jax.random.normal(key, (num, 3))

        prior = ORACLE.model.prior._replace(sample=sample)
        (_, mean_scores), _ = self.scores(ORACLE.model._replace(prior=prior))
        assert np.abs(mean_scores).max() > 4.0

    @pytest.mark.slow
    def test_a_dropped_evidence_term_is_seen(self):
        family = posterior_family(ORACLE.model, PSI, self.batch)
        exponents = as_exponents(BLOCKS, 30)
        mutation = resample_move(METROPOLIS, pb.resampling.stratified)

        def one(key):
            cloud, record = run_path(key, family, exponents, mutation, 200, ())
            return record.increment[1:].sum(), weighted_mean(cloud.particles)

        with jax.debug_key_reuse(False):
            runs = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(1), 100))
        assert abs(evidence_and_mean_scores(ORACLE, *runs)[0]) > 4.0

    def test_padding_by_nan_is_seen(self):
        batch = BATCHES["sgsmc"][1]
        inputs = batch.inputs.at[0].set(jnp.nan)
        acceptance = acceptances(batch._replace(inputs=inputs), BLOCKS)
        assert not np.all((acceptance > 0.0) & (acceptance < 1.0))


@pytest.mark.slow
def test_error_falls_as_one_over_the_number_of_particles():
    """Mean squared error of log Ẑ and of the posterior mean against J: slope −1 ± 0.15."""
    counts = [100, 200, 400, 800, 1600, 3200]
    truth, mean = ORACLE.log_evidence(PSI), ORACLE.posterior(PSI)[0]
    batch = BATCHES["smc"][1]
    errors = []
    for count in counts:
        algorithm = pb.smc(ORACLE.model, num_particles=count, schedule=TEMPERATURES, kernel=METROPOLIS)
        log_evidences, means, _ = many_runs(algorithm, batch, 400)
        errors.append(
            [
                np.mean((np.exp(log_evidences - truth) - 1.0) ** 2),
                np.mean(np.sum((means - mean[None]) ** 2, axis=1)),
            ]
        )
    for column in np.log(np.asarray(errors)).T:
        slope = np.polyfit(np.log(counts), column, 1)[0]
        assert abs(slope + 1.0) < 0.15, slope

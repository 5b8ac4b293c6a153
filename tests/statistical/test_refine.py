"""`refine`: the exact posterior at fixed ψ, its evidence, and what it says when it cannot."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partialbayes as pb
from partialbayes.errors import ShortfallWarning
from partialbayes.weights import uniform_log_weights, weighted_covariance, weighted_mean
from tests.oracles import conjugate

ORACLE = conjugate()
PSI = ORACLE.model.init(jax.random.key(0)).psi
DATA = (ORACLE.inputs, ORACLE.targets)
METROPOLIS = pb.kernels.random_walk_metropolis(0.05, num_steps=10)


def posterior_of(values):
    return pb.types.Posterior(PSI, pb.types.Particles(values, uniform_log_weights(values.shape[0])))


@cache
def from_prior():
    """Refined from draws of the prior, which are far off."""
    prior = ORACLE.model.sample_prior(jax.random.key(8), PSI, 500)
    return pb.refine(ORACLE.model, posterior_of(prior), DATA, validation=DATA, key=1)


def check(refined):
    mean, covariance = ORACLE.posterior(PSI)
    gap = weighted_mean(refined.posterior.particles) - mean
    # In units of the standard error of as many independent draws; resampling costs a little.
    score = gap / jnp.sqrt(jnp.diagonal(covariance) / refined.posterior.particles.log_weights.size)
    assert jnp.all(jnp.abs(score) < 6.0)
    spread = weighted_covariance(refined.posterior.particles)
    assert jnp.allclose(jnp.diagonal(spread) / jnp.diagonal(covariance), jnp.ones(3), atol=0.25)
    error = refined.log_evidence - ORACLE.log_evidence(PSI)
    assert 0.0 < refined.standard_error < 0.3
    assert jnp.abs(error) < 4.0 * refined.standard_error
    assert refined.temperatures[-1] == 1.0
    assert np.all(np.diff(refined.temperatures) > 0.0)
    assert np.all((refined.acceptance > 0.1) & (refined.acceptance < 1.0))
    assert refined.ess.shape == refined.acceptance.shape == refined.temperatures.shape
    # The temperature is chosen before the move, so that half is kept up to the noise of the move.
    assert np.allclose(refined.ess[:-1] / refined.posterior.particles.log_weights.size, 0.5, atol=0.05)


def test_posterior_and_evidence_are_those_of_the_oracle():
    check(from_prior())


def test_moves_that_do_not_follow_are_warned_of():
    """Five draws of the prior that stand still are nowhere near; draws of the posterior tell."""
    mean, covariance = ORACLE.posterior(PSI)
    exact = jax.random.multivariate_normal(jax.random.key(9), mean, covariance, (100,))
    still = pb.kernels.random_walk_metropolis(1e-12)
    with pytest.warns(ShortfallWarning, match=r"by .* per random weight"):
        pb.refine(ORACLE.model, posterior_of(exact), DATA, num_particles=5, kernel=still)


def test_the_discrepancy_tells_a_right_posterior_from_a_wrong_one():
    far = from_prior().discrepancy
    assert far.mean > 0.3
    assert far.largest_mean >= far.mean
    assert far.variance > 0.3
    assert far.nlpd_gain > 0.3
    mean, covariance = ORACLE.posterior(PSI)
    exact = jax.random.multivariate_normal(jax.random.key(9), mean, covariance, (2000,))
    # The same setting again: nothing is compiled anew.
    near = pb.refine(ORACLE.model, posterior_of(exact), DATA, validation=DATA, key=2).discrepancy
    assert near.mean < 0.05
    assert near.variance < 0.02
    assert abs(near.nlpd_gain) < 0.02


@pytest.mark.slow
def test_a_fixed_path_and_waste_free_chains_agree_too():
    path = from_prior().temperatures
    start = from_prior().posterior
    again = pb.refine(ORACLE.model, start, DATA, temperatures=path, kernel=METROPOLIS, key=3)
    assert np.allclose(again.temperatures, path)
    assert again.discrepancy.nlpd_gain is None
    assert jnp.abs(again.log_evidence - ORACLE.log_evidence(PSI)) < 4.0 * again.standard_error
    check(pb.refine(ORACLE.model, start, DATA, waste_free=10, num_particles=3000, key=4))


def test_a_path_that_stalls_says_so():
    start = posterior_of(jnp.zeros((1, 3)))
    with pytest.raises(
        pb.errors.StalledError, match=r"stalled at temperature .* raise max_steps"
    ) as caught:
        pb.refine(ORACLE.model, start, DATA, kernel=METROPOLIS, num_particles=50, max_steps=2)
    assert caught.value.temperatures.shape == (2,)
    broken = start._replace(psi=PSI._replace(likelihood=jnp.asarray(jnp.nan)))
    with pytest.raises(pb.errors.StalledError, match="NaN or infinite"):
        pb.refine(ORACLE.model, broken, DATA, kernel=METROPOLIS, num_particles=50, max_steps=2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"target_ess": 1.5}, "target_ess must be between 0 and 1"),
        ({"num_particles": 0}, "num_particles must be a whole number"),
        ({"max_steps": 0}, "max_steps must be a whole number"),
        ({"waste_free": 7, "num_particles": 1000}, "divides num_particles"),
        ({"temperatures": [0.5, 0.9]}, "exactly 1"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        pb.refine(ORACLE.model, posterior_of(jnp.zeros((1, 3))), DATA, **arguments)


def test_an_ensemble_is_sent_elsewhere():
    member = posterior_of(jnp.zeros((1, 3)))
    ensemble = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), member)
    with pytest.raises(ValueError, match="ensemble"):
        pb.refine(ORACLE.model, ensemble, DATA)


@pytest.mark.slow
def test_agreement_with_long_nuts_runs_on_two_moons():
    """Predictive probabilities of a trained network, within 0.01 everywhere on a grid."""
    datasets = pytest.importorskip("sklearn.datasets")

    def moons(seed):
        inputs, targets = datasets.make_moons(100, noise=0.3, random_state=seed)
        return jnp.asarray(inputs, float), targets

    train, validation = moons(0), moons(1)
    model = pb.partial_bnn(pb.mlp([2, 100, 20, 5, 1]), "layers/2/*", pb.bernoulli())
    trained = pb.fit(pb.ohsmc(model), train, epochs=100, batch_size=20, validation=validation)
    sampler = pb.samplers.nuts(num_warmup=1000, num_draws=4000, num_particles=16_000)
    with jax.debug_key_reuse(False):  # a false alarm on a mapped while-loop
        long_run, report = pb.training.second_stage(sampler, model, trained.posterior, train, key=1)
    assert report.r_hat.max() < 1.01

    axes = jnp.meshgrid(jnp.linspace(-2.0, 3.0, 26), jnp.linspace(-1.5, 2.0, 19))
    grid = jnp.stack(axes, axis=-1).reshape(-1, 2)
    expected = pb.predict(model, long_run, grid, chunks=pb.types.Chunks(particles=2000)).mean
    refined = pb.refine(model, trained.posterior, train, num_particles=16_000, key=2)
    ours = pb.predict(model, refined.posterior, grid, chunks=pb.types.Chunks(particles=2000)).mean
    print("largest difference from NUTS", float(jnp.abs(ours - expected).max()))
    print("what the trainer left was off by", float(refined.discrepancy.largest_mean))
    assert jnp.abs(ours - expected).max() < 0.01

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partialbayes as pb
from partialbayes.model._batch import full_batch

INPUTS = jax.random.normal(jax.random.key(0), (24, 2))
TARGETS = (INPUTS[:, 0] > 0).astype(jnp.int32)
DATA = (INPUTS, TARGETS)
BATCH = full_batch(INPUTS, TARGETS)
MODEL = pb.partial_bnn(pb.mlp([2, 4, 1]), "layers/0/*", pb.bernoulli())
MAP = pb.map_estimate(MODEL)
ALGORITHMS = {
    "map": MAP,
    "ohsmc": pb.ohsmc(MODEL, num_particles=8),
    "swag, psi too": pb.algorithms.swag(MODEL, num_warmup=1, num_particles=4, rank=2, sample_psi=True),
}
MEMBERS = 3


@cache
def compiled(name, members):
    """The functions of an algorithm, or of an ensemble of it; compiled once."""
    algorithm = pb.ensemble(ALGORITHMS[name], MEMBERS) if members else ALGORITHMS[name]
    return tuple(map(jax.jit, (algorithm.init, algorithm.step, algorithm.posterior)))


def trained(name, index=None):
    """The posterior of an ensemble after some steps, or of its member run alone."""
    init, step, posterior = compiled(name, index is None)

    def own(seed):
        key = jax.random.key(seed)
        return key if index is None else jax.random.split(key, MEMBERS)[index]

    state = init(own(7))
    for seed in range(4):
        state, _ = step(own(seed), state, BATCH)
    return posterior(state)


def member(posterior, index):
    """One member as a posterior of its own."""
    psi, (values, log_weights) = jax.tree.map(lambda leaf: leaf[index], posterior)
    return pb.types.Posterior(
        psi, pb.types.Particles(values, log_weights - jax.nn.logsumexp(log_weights))
    )


@pytest.mark.parametrize("name", ALGORITHMS)
def test_equals_separate_runs_with_the_same_keys(name):
    together = trained(name)
    assert np.isclose(jax.nn.logsumexp(together.particles.log_weights), 0.0, atol=1e-6)
    alone = [trained(name, index) for index in range(MEMBERS)]
    has_members = alone[0].particles.log_weights.ndim == 2
    join = np.concatenate if has_members else np.stack
    expected = jax.tree.map(lambda *leaves: join(leaves), *alone)
    expected.particles.log_weights[:] -= np.log(MEMBERS)
    for a, b in zip(jax.tree.leaves(together), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("chunks", [(None, None), (7, 3)], ids=["at once", "in chunks"])
def test_prediction_is_the_explicit_mixture(chunks):
    posterior = trained("ohsmc")
    members = [member(posterior, index) for index in range(MEMBERS)]
    data_chunk, particle_chunk = chunks
    sizes = {"chunks": pb.types.Chunks(particle_chunk, data_chunk)}

    densities = [np.exp(pb.prediction.log_predictive_density(MODEL, one, DATA)) for one in members]
    ours = pb.prediction.log_predictive_density(MODEL, posterior, DATA, **sizes)
    np.testing.assert_allclose(ours, np.log(np.mean(densities, axis=0)), rtol=1e-5)

    parts = [pb.predict(MODEL, one, INPUTS) for one in members]
    mean = np.mean([part.mean for part in parts], axis=0)
    between = np.mean([part.epistemic_variance + np.square(part.mean - mean) for part in parts], axis=0)
    within = np.mean([part.variance - part.epistemic_variance for part in parts], axis=0)
    predictive = pb.predict(MODEL, posterior, INPUTS, **sizes)
    np.testing.assert_allclose(predictive.mean, mean, rtol=1e-5)
    np.testing.assert_allclose(predictive.epistemic_variance, between, rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(predictive.variance, within + between, rtol=1e-5)


def test_members_of_members_share_one_axis():
    """An ensemble of SWAG runs that sample psi too."""
    posterior = trained("swag, psi too")
    assert posterior.particles.values.shape == (12, 1, MODEL.split.dim)
    assert {leaf.shape[0] for leaf in jax.tree.leaves(posterior)} == {12}
    np.testing.assert_allclose(np.exp(posterior.particles.log_weights), 1 / 12, rtol=1e-5)


def test_a_second_stage_runs_on_every_member():
    hmc = pb.samplers.hmc(num_leapfrog_steps=3, num_warmup=5, num_draws=8, num_particles=8)
    algorithm = pb.ensemble(pb.two_stage(MAP, hmc), 2)
    psi, particles = pb.fit(algorithm, DATA, epochs=3).posterior
    assert particles.values.shape == (2, 8, MODEL.split.dim)
    assert np.allclose(jax.nn.logsumexp(particles.log_weights, axis=1), np.log(0.5), atol=1e-6)
    assert all(leaf.shape[0] == 2 for leaf in jax.tree.leaves(psi))
    assert not np.allclose(particles.values[0], particles.values[1], atol=1e-2)


def test_one_bad_member_is_not_hidden_by_the_mean():
    init, step, _ = compiled("map", True)
    state = init(jax.random.key(0))
    params = state.params._replace(phi=state.params.phi.at[1].set(jnp.nan))
    _, info = step(jax.random.key(1), state._replace(params=params), BATCH)
    assert not np.isfinite(info["loss"])


@pytest.mark.parametrize("name", ALGORITHMS)
def test_members_go_on_from_their_own_posteriors(name):
    """Each with all of its weight, as if it were alone; the mixture is the one it was given."""
    given = trained(name)
    algorithm = pb.ensemble(ALGORITHMS[name], MEMBERS)
    state = algorithm.restart(algorithm.init(jax.random.key(9)), given)
    if name == "swag, psi too":  # its members are ensembles; it goes on from the mean of each
        phi, psi = state.trajectory.params
        own = given.particles.values.reshape(MEMBERS, -1, MODEL.split.dim).mean(axis=1)
        np.testing.assert_allclose(phi, own, rtol=1e-4, atol=1e-6)
        weight, members = psi.network["layers/1/bias"], given.psi.network["layers/1/bias"]
        np.testing.assert_allclose(weight, members.reshape(MEMBERS, -1, 1).mean(axis=1), rtol=1e-4)
        return
    after = algorithm.posterior(state)
    for a, b in zip(jax.tree.leaves(after), jax.tree.leaves(given), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    if name == "ohsmc":
        np.testing.assert_allclose(jax.nn.logsumexp(state.particles.log_weights, axis=1), 0.0, atol=1e-5)


def test_it_goes_on_online_and_as_a_second_stage():
    algorithm = pb.ensemble(ALGORITHMS["ohsmc"], MEMBERS)
    given = trained("ohsmc")
    online = pb.online.start(algorithm, DATA, window_size=24, posterior=given)
    mixture = online.posterior
    np.testing.assert_allclose(
        pb.prediction.log_predictive_density(MODEL, mixture, DATA),
        pb.prediction.log_predictive_density(MODEL, given, DATA),
        rtol=1e-5,
    )
    stage = pb.training.continue_training(pb.ensemble(MAP, 2), num_steps=2)
    from_one, _ = pb.training.second_stage(stage, MODEL, trained("map", 0), DATA)
    from_each, _ = pb.training.second_stage(stage, MODEL, trained("map"), DATA)
    for posterior, members in ((from_one, 2), (from_each, 2 * MEMBERS)):
        assert posterior.particles.values.shape == (members, 1, MODEL.split.dim)
        np.testing.assert_allclose(jax.nn.logsumexp(posterior.particles.log_weights), 0.0, atol=1e-5)


def test_another_number_of_members_is_refused():
    algorithm = pb.ensemble(MAP, 2)
    with pytest.raises(ValueError, match="3 members, and the ensemble 2"):
        algorithm.restart(algorithm.init(jax.random.key(0)), trained("map"))


def test_bad_arguments():
    with pytest.raises(ValueError, match="num_members"):
        pb.ensemble(MAP, 0)

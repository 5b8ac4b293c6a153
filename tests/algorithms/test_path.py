"""The mixture over a run's own path, and the average along it."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import partialbayes as pb
from partialbayes.model._batch import full_batch
from partialbayes.resampling import thin
from tests.oracles import conjugate

ORACLE = conjugate()
BATCH = full_batch(ORACLE.inputs, ORACLE.targets)
DATA = (ORACLE.inputs, ORACLE.targets)


def states(algorithm, steps):
    """The states after 0, 1, … steps."""
    step = jax.jit(algorithm.step)
    found = [jax.jit(algorithm.init)(jax.random.key(0))]
    for seed in range(steps):
        found.append(step(jax.random.key(seed), found[-1], BATCH)[0])
    return found


def test_members_are_the_present_and_the_last_snapshots():
    plain = pb.map_estimate(ORACLE.model)
    path = states(plain, 9)
    several = pb.algorithms.trajectory(plain, 3, every=2, num_warmup=1)
    for step, state in enumerate(states(several, 9)):
        posterior = several.posterior(state)
        snapshots = [taken for taken in range(3, step + 1, 2)][-2:]  # steps 3, 5, 7 and 9
        wanted = sorted([step, *snapshots] + [step] * (2 - len(snapshots)))
        found = np.sort(np.asarray(posterior.particles.values)[:, 0, 0])
        np.testing.assert_allclose(found, np.sort([path[s].params.phi[0] for s in wanted]), rtol=1e-5)
        np.testing.assert_allclose(posterior.particles.log_weights, -np.log(3.0), rtol=1e-5)
        assert posterior.psi.likelihood.shape == (3,)


def test_one_member_is_the_method_itself():
    plain = pb.ohsmc(ORACLE.model, num_particles=16)
    alone = pb.algorithms.trajectory(plain, 1)
    before, after = plain.posterior(states(plain, 2)[-1]), alone.posterior(states(alone, 2)[-1])
    np.testing.assert_allclose(after.particles.values[0], before.particles.values, rtol=1e-5)
    np.testing.assert_allclose(after.particles.log_weights[0], before.particles.log_weights, rtol=1e-5)


def test_clouds_are_thinned_by_weight():
    values = jnp.arange(6.0)[:, None]
    weights = jnp.asarray([0.5, 0.0, 0.25, 0.25, 0.0, 0.0])
    cloud = pb.types.Particles(values, jnp.log(weights))
    thinned = thin(cloud, 4)
    assert np.asarray(thinned.values)[:, 0].tolist() == [0.0, 0.0, 2.0, 3.0]
    np.testing.assert_allclose(thinned.log_weights, -np.log(4.0), rtol=1e-6)
    assert thin(cloud, 6) is cloud
    both = thin(pb.types.Particles(jnp.stack([values] * 2), jnp.log(jnp.stack([weights] * 2) / 2)), 4)
    np.testing.assert_allclose(both.log_weights, -np.log(8.0), rtol=1e-6)
    algorithm = pb.algorithms.trajectory(pb.ohsmc(ORACLE.model, num_particles=20), 8)
    posterior = algorithm.posterior(algorithm.init(jax.random.key(0)))
    assert posterior.particles.values.shape == (8, 3, 3)


def test_every_particle_of_an_ensemble_has_its_turn():
    """Four snapshots of eight particles that stand still keep two each, and all eight together."""
    still = pb.algorithms.particle_ensemble(
        ORACLE.model,
        num_particles=8,
        start="prior",
        optimizer=optax.set_to_zero(),
        particle_optimizer=optax.set_to_zero(),
    )
    several = pb.algorithms.trajectory(still, 4, every=1)
    state = states(several, 5)[-1]
    found = np.asarray(several.posterior(state).particles.values).reshape(8, -1)
    assert {*map(tuple, found)} == {*map(tuple, np.asarray(state.run.particles.values))}


def test_with_a_second_stage_and_in_an_ensemble():
    sampler = pb.samplers.laplace(num_particles=5)
    algorithm = pb.algorithms.trajectory(
        pb.two_stage(pb.map_estimate(ORACLE.model), sampler), 2, every=1
    )
    trained = pb.fit(algorithm, DATA, epochs=2)
    assert trained.posterior.particles.values.shape == (2, 5, 3)
    several = pb.ensemble(pb.algorithms.trajectory(pb.map_estimate(ORACLE.model), 2, every=1), 3)
    posterior = several.posterior(several.init(jax.random.key(0)))
    assert posterior.particles.values.shape == (6, 1, 3)
    np.testing.assert_allclose(jax.nn.logsumexp(posterior.particles.log_weights), 0.0, atol=1e-6)


def test_with_checkpoints_many_runs_and_files(tmp_path):
    algorithm = pb.algorithms.trajectory(pb.ohsmc(ORACLE.model, num_particles=8), 2, every=1)
    settings = {"batch_size": 15, "validation": DATA}
    whole = pb.fit(algorithm, DATA, epochs=3, **settings)
    folder = tmp_path / "run"
    pb.fit(algorithm, DATA, epochs=3, run=pb.Run(checkpoint=folder), **settings)
    resumed = pb.fit(algorithm, DATA, epochs=3, run=pb.Run(checkpoint=folder, resume=True), **settings)
    for first, again in zip(
        jax.tree.leaves(whole.posterior), jax.tree.leaves(resumed.posterior), strict=True
    ):
        np.testing.assert_array_equal(first, again)
    (one, two) = pb.fit_many(algorithm, DATA, repeats=2, epochs=1, **settings)
    assert one.posterior.num_members == two.posterior.num_members == 2


def test_average_is_that_of_the_path():
    plain = pb.map_estimate(ORACLE.model)
    path = np.stack([state.params.psi.likelihood for state in states(plain, 8)])
    averaged = pb.algorithms.averaged(plain, decay=0.75, num_warmup=2)
    found = [averaged.posterior(state) for state in states(averaged, 8)]
    wanted = path[0]
    for step in range(1, 9):
        share = max(0.25, 1.0 / max(step - 2, 1))
        wanted = wanted + share * (path[step] - wanted)
        np.testing.assert_allclose(found[step].psi.likelihood, wanted, rtol=1e-5)
    head = np.stack([state.params.phi for state in states(plain, 4)])
    np.testing.assert_allclose(found[4].particles.values[0], head[3:5].mean(axis=0), rtol=1e-5)


def test_a_cloud_is_averaged_where_asked_for():
    plain = pb.algorithms.particle_ensemble(ORACLE.model, num_particles=3, start="prior")
    path = np.stack([state.particles.values for state in states(plain, 3)])
    kept = pb.algorithms.averaged(plain)
    np.testing.assert_allclose(kept.posterior(states(kept, 3)[-1]).particles.values, path[3], rtol=1e-6)
    mean = pb.algorithms.averaged(plain, particles=True)
    found = mean.posterior(states(mean, 3)[-1]).particles.values
    np.testing.assert_allclose(found, path[1:].mean(axis=0), rtol=1e-5)
    again = mean.restart(states(mean, 2)[-1], plain.posterior(states(plain, 3)[-1]))
    np.testing.assert_allclose(mean.posterior(again).particles.values, path[3], rtol=1e-6)


def test_bad_arguments():
    plain = pb.map_estimate(ORACLE.model)
    with pytest.raises(ValueError, match="num_members"):
        pb.algorithms.trajectory(plain, 0)
    with pytest.raises(ValueError, match="every must be"):
        pb.algorithms.trajectory(plain, every=0)
    with pytest.raises(ValueError, match="decay must be a probability"):
        pb.algorithms.averaged(plain, decay=1.0)

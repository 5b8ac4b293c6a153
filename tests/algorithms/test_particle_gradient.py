"""Particles with gradients: rows of their own, starts, arguments. Their law is in tests/statistical."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import partialbayes as pb
from partialbayes.feynman_kac._gradients import joint_gradient, own_gradients
from partialbayes.model._batch import full_batch, pad_to
from tests.oracles import conjugate

ORACLE = conjugate()
BATCH = full_batch(ORACLE.inputs, ORACLE.targets)
PSI = ORACLE.model.init(jax.random.key(0)).psi
VALUES = ORACLE.model.sample_prior(jax.random.key(1), PSI, 3)


def test_rows_are_dealt_out():
    """Three particles with ten rows each have the thirty rows among them, and the mean gradient."""
    same = jnp.tile(VALUES[:1], (3, 1))
    padded = pad_to(BATCH, 64)
    own = own_gradients(ORACLE.model, jax.random.key(2), same, PSI, padded, 10)
    together = joint_gradient(ORACLE.model, same, PSI, BATCH)
    slopes, common = own.slopes.log_density, together.slopes.log_density
    np.testing.assert_allclose(slopes.mean(axis=0), common[0], rtol=1e-4)
    assert not np.allclose(slopes[0], slopes[1], rtol=1e-2)
    for mine, ours in zip(jax.tree.leaves(own.psi), jax.tree.leaves(together.psi), strict=True):
        np.testing.assert_allclose(mine, ours, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("rows", [30, 100])
def test_all_rows_for_everyone_is_the_common_gradient(rows):
    model = pb.model.with_chunks(ORACLE.model, particles=2)
    own = own_gradients(model, jax.random.key(2), VALUES, PSI, pad_to(BATCH, 64), rows)
    together = joint_gradient(ORACLE.model, VALUES, PSI, BATCH)
    np.testing.assert_allclose(own.log_densities, together.log_densities, rtol=1e-4)
    slopes, common = own.slopes.log_density, together.slopes.log_density
    np.testing.assert_allclose(slopes, common, rtol=1e-4, atol=1e-3)


def test_an_ensemble_without_noise_finds_the_mode_of_a_gaussian():
    algorithm = pb.algorithms.particle_ensemble(
        ORACLE.model,
        num_particles=3,
        start="prior",
        optimizer=optax.set_to_zero(),
        particle_optimizer=optax.sgd(0.01),
    )
    step = jax.jit(algorithm.step)
    state = algorithm.init(jax.random.key(0))
    state, _ = jax.lax.scan(
        lambda state, key: step(key, state, BATCH), state, jax.random.split(jax.random.key(1), 1500)
    )
    mean, _ = ORACLE.posterior(PSI)
    np.testing.assert_allclose(state.particles.values, jnp.tile(mean, (3, 1)), atol=1e-2)


def test_members_start_where_the_network_does():
    network = pb.mlp([1, 4, 1])
    model = pb.partial_bnn(network, "layers/0/kernel", pb.gaussian())
    values = pb.algorithms.particle_ensemble(model, num_particles=500).init(jax.random.key(0))
    particles = values.particles.values
    assert len(np.unique(np.asarray(particles[:, 0]))) == 500
    spread = jax.vmap(lambda key: model.init(key).phi)(jax.random.split(jax.random.key(1), 500)).std()
    assert np.isclose(particles.std(), spread, rtol=0.1)


def test_particles_continue_from_a_posterior():
    algorithm = pb.algorithms.particle_gradient_descent(ORACLE.model, num_particles=3)
    posterior = pb.types.Posterior(PSI, pb.types.Particles(VALUES, jnp.full(3, -np.log(3.0))))
    again = algorithm.restart(algorithm.init(jax.random.key(0)), posterior)
    assert np.array_equal(algorithm.posterior(again).particles.values, VALUES)


def test_bad_arguments():
    build = pb.algorithms.particle_gradient_descent
    with pytest.raises(ValueError, match="use particle_ensemble"):
        build(ORACLE.model, temperature=0.0)
    with pytest.raises(ValueError, match="temperature must be positive"):
        build(ORACLE.model, temperature=-1.0)
    with pytest.raises(ValueError, match="needs more than 4 particles"):
        build(ORACLE.model, num_particles=4, preconditioner="covariance")
    with pytest.raises(ValueError, match="rows_per_particle must be a whole number"):
        build(ORACLE.model, rows_per_particle=0)
    with pytest.raises(ValueError, match="num_particles"):
        pb.algorithms.particle_ensemble(ORACLE.model, num_particles=0)

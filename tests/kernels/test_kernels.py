"""Kernels as a user meets them: errors, and the plug for BlackJAX."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partialbayes as pb
from partialbayes.kernels import _halves
from partialbayes.types import Likelihood, Moments, Particles, Target
from partialbayes.weights import uniform_log_weights
from tests.oracles import conjugate

ORACLE = conjugate()


def with_likelihood(log_density) -> pb.types.Model:
    likelihood: Likelihood = pb.gaussian()._replace(log_density=log_density)
    return pb.partial_bnn(pb.mlp([2, 3, 1]), "layers/0/*", likelihood)


def fit_with(model: pb.types.Model, kernel: pb.types.Kernel) -> pb.results.Fit:
    algorithm = pb.ohsmc(model, num_particles=8, kernel=kernel)
    return pb.fit(algorithm, (ORACLE.inputs, ORACLE.targets), epochs=1, batch_size=10)


@pytest.mark.parametrize(
    "kernel", [pb.kernels.ornstein_uhlenbeck(0.1), pb.kernels.pcn(0.1)], ids=["ou", "pcn"]
)
def test_a_prior_that_is_not_normal_is_refused_when_built(kernel):
    model = ORACLE.model._replace(prior=ORACLE.model.prior._replace(normal=False))
    with pytest.raises(ValueError, match="needs a normal prior"):
        pb.ohsmc(model, kernel=kernel)


def test_an_error_of_the_users_own_is_not_hidden():
    def log_density(parameters, targets):
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        fit_with(with_likelihood(log_density), pb.kernels.mala(0.01))


def test_pcn_renews_at_most_the_prior():
    with pytest.raises(ValueError, match="at most 1"):
        pb.kernels.pcn(1.5)


class Position(NamedTuple):
    position: jax.Array


def cloud(num_particles, log_density):
    """Particles at zero in one dimension, and a target whose potential is flat."""
    particles = pb.types.Particles(jnp.zeros((num_particles, 1)), uniform_log_weights(num_particles))
    prior = Moments(jnp.zeros(1), jnp.ones(1))
    return particles, Target(log_density, lambda phi: jnp.zeros(()), prior, jnp.ones(()))


def test_a_kernel_of_one_particle_is_applied_as_often_as_asked():
    one_further = pb.types.ParticleKernel(
        init=lambda phi, log_density: Position(phi),
        step=lambda key, state, log_density: (Position(state.position + 1.0), ()),
    )
    particles, target = cloud(2, jnp.sum)
    kernel = pb.kernels.from_mcmc(one_further, num_steps=3)
    assert kernel.step(jax.random.key(0), particles, target, ()).values.tolist() == [[3.0], [3.0]]


@pytest.mark.parametrize("build", [pb.kernels.mala, pb.kernels.unadjusted_langevin])
def test_a_langevin_step_on_a_slope_has_half_its_variance_as_drift(build):
    """Where log π = g φ nothing is rejected, and a step is N(v g / 2, v)."""
    particles, target = cloud(4000, lambda phi: 2.0 * phi.sum())
    kernel = build(0.5)
    moved = jax.jit(lambda key: kernel.step(key, particles, target, ()))(jax.random.key(0))
    assert np.isclose(moved.acceptance, 1.0)
    assert abs(moved.values.mean() - 0.5) < 4.5 * np.sqrt(0.5 / 4000)
    assert abs(moved.values.var() / 0.5 - 1.0) < 4.5 * np.sqrt(2 / 4000)


ADAPTED = {
    "adapted_hamiltonian": pb.kernels.adapted_hamiltonian(2, num_steps=1),
    "adapted_metropolis": pb.kernels.adapted_metropolis(),
}
every_adapted = pytest.mark.parametrize("kernel", ADAPTED.values(), ids=ADAPTED.keys())


@every_adapted
@pytest.mark.parametrize("count", [8, 9])
def test_a_particle_learns_from_the_other_half_alone(kernel, count):
    """On a flat target, where each goes its own way: nobody's step tells where its own half was."""
    _, target = cloud(count, lambda phi: 0.0 * phi.sum())
    values = jax.random.normal(jax.random.key(0), (count, 1))
    half = (count + 1) // 2

    @jax.jit
    def steps(values):
        particles = pb.types.Particles(values, uniform_log_weights(count))
        moved = kernel.step(jax.random.key(1), particles, target, kernel.init(particles))
        return (moved.values - values)[:half]

    first = steps(values)
    np.testing.assert_allclose(steps(values.at[:half].multiply(5.0)), first, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(steps(values.at[half:].multiply(5.0)), 5.0 * first, rtol=1e-2)


@every_adapted
def test_chains_learn_from_the_pools_they_are_given(kernel):
    """Each half from its own."""
    _, target = cloud(4, lambda phi: 0.0 * phi.sum())
    narrow = pb.types.Particles(jax.random.normal(jax.random.key(0), (50, 1)), uniform_log_weights(50))
    wide = narrow._replace(values=100.0 * narrow.values)
    particles = pb.types.Particles(jnp.zeros((4, 1)), uniform_log_weights(4))

    @jax.jit
    def lengths(pools):
        step = kernel.learn(pools, target.prior)
        return jnp.abs(step(jax.random.key(1), particles, target, kernel.init(particles)).values[:, 0])

    same, mixed = lengths((narrow, narrow)), lengths((wide, narrow))
    np.testing.assert_allclose(mixed / same, [100.0, 100.0, 1.0, 1.0], rtol=1e-3)


def test_one_particle_has_no_others_to_learn_from():
    particles, target = cloud(1, lambda phi: 0.0 * phi.sum())
    kernel = pb.kernels.adapted_metropolis()
    with pytest.raises(ValueError, match="num_particles is 1"):
        kernel.step(jax.random.key(0), particles, target, kernel.init(particles))


def test_the_particle_that_makes_an_odd_cloud_even_has_no_weight():
    cloud = Particles(jnp.arange(5.0)[:, None], jnp.log(jnp.array([0.1, 0.2, 0.3, 0.3, 0.1])))
    first, second = _halves._halves(cloud)
    assert first.values.shape == second.values.shape == (3, 1)
    np.testing.assert_allclose(np.exp(second.log_weights), [0.3, 0.1, 0.0], rtol=1e-6)

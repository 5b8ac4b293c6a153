import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import partialbayes as pb
from partialbayes.algorithms._common import as_rate
from partialbayes.model._batch import full_batch
from tests.oracles import conjugate

ORACLE = conjugate()
BATCH = full_batch(ORACLE.inputs, ORACLE.targets)


@pytest.fixture(scope="module")
def chain():
    """The algorithm, and its states after 0, 1, … steps."""
    algorithm = pb.algorithms.sgld(ORACLE.model, num_particles=4, step_size=1e-3, num_warmup=3, every=2)
    step = jax.jit(algorithm.step)
    states = [jax.jit(algorithm.init)(jax.random.key(0))]
    for seed in range(15):
        states.append(step(jax.random.key(seed), states[-1], BATCH)[0])
    return algorithm, states


def kept(algorithm, state):
    """The samples that carry weight, in order, after a check that they share it equally."""
    values, log_weights = algorithm.posterior(state).particles
    weights = np.exp(log_weights)
    assert np.allclose(weights.sum(), 1.0)
    assert np.allclose(weights[weights > 0], 1.0 / np.sum(weights > 0))
    return np.sort(np.asarray(values)[weights > 0], axis=0)


def at(states, *steps):
    return np.sort(np.stack([states[step].params.phi for step in steps]), axis=0)


def test_ring_of_samples(chain):
    algorithm, states = chain
    for step in range(5):  # burn-in, and the wait for the first sample: the chain itself
        assert np.array_equal(kept(algorithm, states[step]), at(states, step))
    assert np.array_equal(kept(algorithm, states[5]), at(states, 5))
    assert np.array_equal(kept(algorithm, states[10]), at(states, 5, 7, 9))
    assert np.array_equal(kept(algorithm, states[15]), at(states, 9, 11, 13, 15))


def test_psi_is_the_present_one_and_may_be_fixed(chain):
    algorithm, states = chain
    assert algorithm.posterior(states[15]).psi is states[15].params.psi
    fixed = pb.algorithms.sgld(ORACLE.model, optimizer=optax.set_to_zero())
    state = fixed.init(jax.random.key(0))
    after, _ = jax.jit(fixed.step)(jax.random.key(1), state, BATCH)
    assert all(map(np.array_equal, jax.tree.leaves(state.params.psi), jax.tree.leaves(after.params.psi)))
    assert not np.array_equal(state.params.phi, after.params.phi)


def test_rate_is_a_number_or_a_schedule():
    step = jnp.asarray(7)
    batch = BATCH._replace(mask=jnp.arange(30) < 10, scale=jnp.asarray(3.0))
    assert np.isclose(as_rate(0.2)(step, batch), 0.2)
    assert np.isclose(as_rate(optax.linear_schedule(0.0, 1.0, 10))(step, batch), 0.7)
    with pytest.raises(ValueError, match="rate must be positive"):
        as_rate(-1.0)


def test_rate_can_be_mapped_over():
    def moved(rate):
        algorithm = pb.algorithms.sgld(ORACLE.model, step_size=rate)
        state = algorithm.init(jax.random.key(0))
        return algorithm.step(jax.random.key(1), state, BATCH)[0].params.phi

    several = jax.jit(jax.vmap(moved))(jnp.asarray([1e-3, 1e-2, 1e-3]))
    assert np.allclose(several[0], several[2])
    assert not np.allclose(several[0], several[1])


def test_bad_arguments():
    with pytest.raises(ValueError, match="num_warmup must be a whole number of steps"):
        pb.algorithms.sgld(ORACLE.model, num_warmup=-1)
    with pytest.raises(ValueError, match="num_particles"):
        pb.algorithms.sgld(ORACLE.model, num_particles=0)


@pytest.mark.parametrize("build", [pb.algorithms.sgld, pb.algorithms.particle_gradient_descent])
def test_the_default_step_is_below_where_it_explodes(build):
    """A sharp likelihood: with steps of 0.1 / N the loss grew a thousandfold in four steps."""
    x = jnp.linspace(-2.0, 2.0, 60)[:, None]
    model = pb.partial_bnn(pb.mlp([1, 10, 1]), "layers/1/*", pb.gaussian(1e-3))
    algorithm = build(model, num_particles=5)
    batch = full_batch(x, jnp.sin(3.0 * x[:, 0]))
    step = jax.jit(algorithm.step)
    state, losses = algorithm.init(jax.random.key(0)), []
    for seed in range(60):
        state, info = step(jax.random.key(seed), state, batch)
        losses.append(float(info["loss"]))
    assert max(losses) <= 1.1 * losses[0]
    assert losses[-1] < 0.5 * losses[0]

"""What a step of SMC returns."""

import jax
import numpy as np
import optax

import partialbayes as pb
from partialbayes.model._batch import full_batch
from tests.oracles import conjugate

ORACLE = conjugate(num_data=5)


def test_the_posterior_has_the_psi_its_particles_were_drawn_for():
    at_once = pb.annealing.tempering([1.0])
    algorithm = pb.smc(ORACLE.model, num_particles=4, schedule=at_once, optimizer=optax.sgd(1.0))
    state = jax.jit(algorithm.init)(jax.random.key(0))
    batch = full_batch(ORACLE.inputs, ORACLE.targets)
    after, _ = jax.jit(algorithm.step)(jax.random.key(1), state, batch)
    assert not np.array_equal(after.psi.likelihood, state.psi.likelihood)
    jax.tree.map(np.testing.assert_array_equal, algorithm.posterior(after).psi, state.psi)

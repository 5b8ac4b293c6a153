"""One step of MAP, computed as it stands."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

import partialbayes as pb
from partialbayes.model._batch import full_batch
from tests.oracles import conjugate

ORACLE = conjugate(num_data=5)
BATCH = full_batch(ORACLE.inputs, ORACLE.targets)._replace(scale=jnp.asarray(3.0))


def test_the_scale_of_a_batch_is_that_of_the_likelihood_alone():
    algorithm = pb.map_estimate(ORACLE.model, optimizer=optax.sgd(1.0))
    state = algorithm.init(jax.random.key(0))
    after, info = jax.jit(algorithm.step)(jax.random.key(1), state, BATCH)

    def log_joint(params):
        log_likelihood = ORACLE.model.log_likelihood(*params, BATCH).sum()
        return 3.0 * log_likelihood + ORACLE.model.log_prior(*params)

    value, gradient = jax.jit(jax.value_and_grad(log_joint))(state.params)
    np.testing.assert_allclose(info["loss"], -value / 15, rtol=1e-5)
    expected = jax.tree.map(jnp.add, state.params, gradient)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4), after.params, expected)


def test_it_goes_on_from_the_weighted_mean():
    algorithm = pb.map_estimate(ORACLE.model)
    values = jnp.array([[0.0, 1.0, 2.0], [4.0, 5.0, 6.0]])
    psi = ORACLE.model.init(jax.random.key(0)).psi
    posterior = pb.types.Posterior(psi, pb.types.Particles(values, jnp.log(jnp.array([0.75, 0.25]))))
    state = algorithm.restart(algorithm.init(jax.random.key(1)), posterior)
    np.testing.assert_allclose(state.params.phi, [1.0, 2.0, 3.0], rtol=1e-6)

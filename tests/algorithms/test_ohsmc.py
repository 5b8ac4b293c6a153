"""One step of OHSMC, plain and backward, and what its kernel is shown, computed as they stand."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

import partialbayes as pb
from partialbayes.algorithms._ohsmc import batch_target
from partialbayes.model._batch import full_batch
from tests.oracles import conjugate

ORACLE = conjugate(num_data=5)
BATCH = full_batch(ORACLE.inputs, ORACLE.targets)._replace(scale=jnp.asarray(3.0))
PHI, PSI = ORACLE.model.init(jax.random.key(0))


def log_joint(phi, psi):
    """(N/M) log p(batch | φ; ψ) + log π(φ; ψ)."""
    log_likelihood = ORACLE.model.log_likelihood(phi, psi, BATCH).sum()
    return 3.0 * log_likelihood + ORACLE.model.log_prior(phi, psi)


def test_the_kernel_is_shown_the_likelihood_to_the_power_of_the_scale_and_the_prior():
    target = batch_target(ORACLE.model, PSI, BATCH)
    np.testing.assert_allclose(target.log_density(PHI), log_joint(PHI, PSI), rtol=1e-6)
    log_likelihood = ORACLE.model.log_likelihood(PHI, PSI, BATCH).sum()
    np.testing.assert_allclose(target.log_potential(PHI), log_likelihood, rtol=1e-6)
    np.testing.assert_allclose(target.fraction, 1 / 3, rtol=1e-6)


def test_psi_climbs_the_gradient_at_the_new_weights():
    algorithm = pb.ohsmc(
        ORACLE.model, num_particles=4, kernel=pb.kernels.identity(), optimizer=optax.sgd(1.0)
    )
    after, _ = jax.jit(algorithm.step)(
        jax.random.key(1), jax.jit(algorithm.init)(jax.random.key(0)), BATCH
    )
    values, log_weights = after.particles
    assert float(jnp.ptp(log_weights)) > 1.0

    def weighted(psi):
        return jnp.exp(log_weights) @ jax.vmap(lambda phi: log_joint(phi, psi))(values)

    expected = jax.tree.map(jnp.add, PSI, jax.jit(jax.grad(weighted))(PSI))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4), after.psi, expected)


def test_the_power_of_the_likelihood_rises_from_the_first_step():
    algorithm = pb.algorithms.backward_ohsmc(ORACLE.model, num_particles=4, num_warmup=4)
    after, _ = jax.jit(algorithm.step)(
        jax.random.key(1), jax.jit(algorithm.init)(jax.random.key(0)), BATCH
    )

    @jax.jit
    @jax.vmap
    def log_target(phi):
        log_likelihood = ORACLE.model.log_likelihood(phi, PSI, BATCH).sum()
        return 3.0 / 4.0 * log_likelihood + ORACLE.model.log_prior(phi, PSI)

    np.testing.assert_allclose(after.log_targets, log_target(after.particles.values), rtol=1e-5)

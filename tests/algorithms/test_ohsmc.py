"""One step of OHSMC, plain and backward, and what its kernel is shown, computed as they stand."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

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


def assert_kalman(before, after, rtol):
    """Mean and covariance went from P to P' = (1 − ε) P + ε S + Φᵀ Φ / σ²."""
    before, after = np.asarray(before, np.float64), np.asarray(after, np.float64)
    features, noise = np.asarray(ORACLE.features(PSI), np.float64), float(jnp.exp(PSI.likelihood))
    known = np.linalg.inv(np.cov(before.T, bias=True))
    prior = np.eye(3) * np.exp(-2 * float(PSI.prior))
    precision = 2 / 3 * known + 1 / 3 * prior + features.T @ features / noise
    information = 2 / 3 * known @ before.mean(axis=0) + features.T @ ORACLE.targets / noise
    mean = np.linalg.solve(precision, information)
    np.testing.assert_allclose(after.mean(axis=0), mean, rtol=rtol, atol=1e-3)
    covariance = np.cov(after.T, bias=True)
    np.testing.assert_allclose(covariance, np.linalg.inv(precision), rtol=rtol, atol=1e-5)


class TestWithoutWeights:
    """A kernel that uses the batch: one step, computed as it stands."""

    def test_one_step(self):
        """ψ by the particles before the move, weighted by p(batch)^α, φ by Kalman's update."""
        algorithm = pb.ohsmc(ORACLE.model, num_particles=12, optimizer=optax.sgd(1e-3))
        state = jax.jit(algorithm.init)(jax.random.key(0))
        after, info = jax.jit(algorithm.step)(jax.random.key(1), state, BATCH)
        values = state.particles.values
        log_likelihoods = jax.vmap(lambda phi: ORACLE.model.log_likelihood(phi, PSI, BATCH).sum())(
            values
        )
        np.testing.assert_allclose(info["loss"], -log_likelihoods.mean() / 5, rtol=1e-5)

        # The share: α = (1 − ε)^{1/ε} with ε = 1/3, unless that leaves fewer than half of them.
        def effective(alpha):
            weights = jax.nn.softmax(alpha * log_likelihoods)
            return 1 / float(jnp.sum(weights**2))

        alpha = (2 / 3) ** 3
        if effective(alpha) < 6:
            alphas = np.geomspace(1e-6, alpha, 20_000)
            alpha = alphas[np.searchsorted([-effective(a) for a in alphas[::100]], -6.0) * 100]
        weights = jax.nn.softmax(alpha * log_likelihoods)

        def weighted(psi):
            return weights @ jax.vmap(lambda phi: log_joint(phi, psi))(values)

        expected = jax.tree.map(lambda a, b: a + 1e-3 * b, PSI, jax.grad(weighted)(PSI))
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=0.02, atol=1e-3), after.psi, expected
        )
        assert_kalman(values, after.particles.values, rtol=5e-3)

    def test_follows_the_cloud_for_hundreds_of_steps_and_after_a_restart(self):
        """The kernel keeps coordinates of the cloud, which are those of the cloud it is given."""
        algorithm = pb.ohsmc(ORACLE.model, num_particles=12, optimizer=optax.sgd(0.0))
        state = algorithm.init(jax.random.key(0))
        other = pb.types.Particles(1.0 + 3.0 * state.particles.values[::-1], state.particles.log_weights)
        step = jax.jit(algorithm.step)
        state = algorithm.restart(state, pb.types.Posterior(PSI, other))
        for number in range(1, 300):
            before = state.particles.values
            state, _ = step(jax.random.key(number), state, BATCH)
            if number in (1, 299):
                assert_kalman(before, state.particles.values, rtol=5e-3)

    def test_goes_on_from_weighted_particles_with_equal_ones(self):
        algorithm = pb.ohsmc(ORACLE.model, num_particles=4)
        state = algorithm.init(jax.random.key(0))
        values = jnp.arange(12.0).reshape(4, 3)
        weighted = pb.types.Particles(values, jnp.log(jnp.asarray([0.5, 0.25, 0.24, 0.01])))
        particles = algorithm.restart(state, pb.types.Posterior(PSI, weighted)).particles
        np.testing.assert_allclose(jnp.exp(particles.log_weights), 0.25, rtol=1e-6)
        np.testing.assert_array_equal(particles.values, values[jnp.asarray([0, 0, 1, 2])])

    def test_the_gradient_of_few_particles_is_refused(self):
        with pytest.raises(ValueError, match="gradient_particles must be None with a kernel that uses"):
            pb.ohsmc(ORACLE.model, gradient_particles=4)

    @pytest.mark.parametrize(("dim", "number"), [(10, 100), (105, 420), (301, 200)])
    def test_the_number_of_particles_follows_the_number_of_weights(self, dim, number):
        model = pb.partial_bnn(pb.mlp([dim, 1]), "layers/0/kernel", pb.gaussian())
        for kernel, expected in ((None, number), (pb.kernels.random_walk(0.01), 1000)):
            algorithm = pb.ohsmc(model, kernel=kernel)
            state = jax.eval_shape(algorithm.init, jax.random.key(0))
            assert algorithm.posterior(state).num_particles == expected


def test_a_kernel_with_too_few_particles_says_how_many_it_needs():
    model = pb.partial_bnn(pb.mlp([20, 1]), "layers/0/kernel", pb.gaussian())
    with pytest.warns(pb.errors.FewParticlesWarning, match="num_particles=4000 or more"):
        pb.ohsmc(model, num_particles=200, kernel=pb.kernels.forgetting("diagonal"))

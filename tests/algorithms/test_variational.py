"""Variational Bayes against the conjugate network: full-rank exact, mean-field with a known bias."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import partialbayes as pb
from partialbayes.algorithms._variational import FullRank, MeanField, VariationalParams
from partialbayes.model._batch import full_batch
from partialbayes.weights import weighted_covariance, weighted_mean
from tests.oracles import conjugate

ORACLE = conjugate()
BATCH = full_batch(ORACLE.inputs, ORACLE.targets)
PSI = ORACLE.model.init(jax.random.key(0)).psi
MEAN, COVARIANCE = ORACLE.posterior(PSI)


def only(q=None, psi=None) -> optax.GradientTransformation:
    """Train one of the two and freeze the other."""
    frozen = optax.set_to_zero()
    parts = {"q": q or frozen, "psi": psi or frozen}
    return optax.multi_transform(parts, pb.types.Params(phi="q", psi="psi"))


def train(algorithm: pb.types.Algorithm, num_steps: int):
    keys = jax.random.split(jax.random.key(1), num_steps)

    def step(state, key):
        state, info = algorithm.step(key, state, BATCH)
        return state, info["elbo"]

    return jax.jit(lambda start: jax.lax.scan(step, start, keys))(algorithm.init(jax.random.key(0)))


def test_full_rank_finds_the_posterior_and_the_evidence():
    rate = optax.exponential_decay(0.05, 100, 0.75)
    algorithm = pb.algorithms.full_rank_vb(
        ORACLE.model, num_samples=20, num_particles=20_000, optimizer=only(q=optax.adam(rate))
    )
    state, elbo = train(algorithm, 2500)
    q, psi = state.params
    assert jax.tree.all(jax.tree.map(np.array_equal, psi, PSI))
    assert np.allclose(q.mean, MEAN, atol=0.01)
    assert np.allclose(q.factor() @ q.factor().T, COVARIANCE, atol=0.01)
    # Where q is the posterior, log p(y, φ) − log q(φ) is log Z whatever the draw.
    assert np.allclose(elbo[-10:], ORACLE.log_evidence(PSI), atol=0.01)
    # The particles are draws of q: L ε, and not Lᵀ ε, which has another covariance.
    particles = algorithm.posterior(state).particles
    assert np.allclose(weighted_mean(particles), MEAN, atol=0.03)
    assert np.allclose(weighted_covariance(particles), COVARIANCE, atol=0.05)
    assert not np.allclose(q.factor().T @ q.factor(), COVARIANCE, atol=0.1)


def test_full_rank_can_be_inverted_with_many_weights():
    """The bound stays below the log-density of a perfect fit; a factor that has no inverse breaks it."""
    model = pb.partial_bnn(pb.mlp([3, 20, 1]), "**", pb.gaussian(0.1))
    algorithm = pb.algorithms.full_rank_vb(model, num_samples=5, num_particles=10)
    rng = np.random.default_rng(0)
    batch = full_batch(*(jnp.asarray(rng.normal(size=size), jnp.float32) for size in ((30, 3), 30)))

    def step(state, key):
        state, info = algorithm.step(key, state, batch)
        return state, info["elbo"]

    keys = jax.random.split(jax.random.key(1), 300)
    start = algorithm.init(jax.random.key(0))
    _, elbo = jax.jit(lambda start: jax.lax.scan(step, start, keys))(start)
    assert float(elbo.max()) < -15 * np.log(2 * np.pi * 0.1)
    assert float(elbo[-20:].mean()) > float(elbo[:20].mean())


def test_mean_field_has_the_variances_of_the_conditionals():
    """Known to be too small: one over the diagonal of the precision; the mean is right."""
    rate = optax.exponential_decay(0.1, 300, 0.5)
    algorithm = pb.algorithms.mean_field_vb(
        ORACLE.model, num_samples=100, optimizer=only(q=optax.adam(rate))
    )
    (params, *_), elbo = train(algorithm, 2500)
    precision = jnp.linalg.inv(COVARIANCE)
    assert isinstance(params.q, MeanField)
    assert np.allclose(params.q.mean, MEAN, atol=0.05)
    assert np.allclose(jnp.exp(2 * params.q.log_scale), 1 / jnp.diag(precision), rtol=0.05)
    assert bool((jnp.diag(COVARIANCE) * jnp.diag(precision) > 1.5).all())
    # The bound it reaches: log Z − ½ (Σ log diag P − log det P).
    gap = 0.5 * (jnp.log(jnp.diag(precision)).sum() - jnp.linalg.slogdet(precision)[1])
    assert np.allclose(elbo[-500:].mean(), ORACLE.log_evidence(PSI) - gap, atol=0.1)


def test_gradient_of_psi_is_that_of_the_evidence():
    """At q = posterior, by Fisher's identity; noise and prior scale included."""
    algorithm = pb.algorithms.full_rank_vb(
        ORACLE.model, num_samples=100, optimizer=only(psi=optax.sgd(1.0))
    )
    factor = jnp.linalg.cholesky(COVARIANCE)
    exact_q = FullRank(MEAN, jnp.log(jnp.diag(factor)), factor * len(MEAN) ** 0.5)
    assert np.allclose(exact_q.factor(), factor, atol=1e-6)
    state = algorithm.init(jax.random.key(0))
    state = state._replace(params=VariationalParams(exact_q, PSI))

    @jax.jit
    @jax.vmap
    def ascent(key):
        after, _ = algorithm.step(key, state, BATCH)
        return jax.tree.map(jnp.subtract, after.params.psi, PSI)

    draws = jax.tree.leaves(ascent(jax.random.split(jax.random.key(2), 200)))
    exact = jax.tree.leaves(jax.grad(ORACLE.log_evidence)(PSI))
    assert len(draws) == 3
    for replicates, value in zip(draws, exact, strict=True):
        replicates = np.asarray(replicates, float)
        error = replicates.std(axis=0, ddof=1) / np.sqrt(200)
        assert np.all(np.abs(replicates.mean(axis=0) - value) < 4.5 * error + 1e-4)
        assert np.all(error < 0.1 * np.abs(value).max())


def test_posterior_is_the_same_each_time():
    algorithm = pb.algorithms.mean_field_vb(ORACLE.model, num_particles=5)
    state = algorithm.init(jax.random.key(0))
    first, again = algorithm.posterior(state), algorithm.posterior(state)
    assert np.array_equal(first.particles.values, again.particles.values)


def test_the_scale_of_a_batch_is_that_of_the_likelihood_alone():
    """Where q is all but a point, the bound grows with N/M by the log-likelihood there."""
    algorithm = pb.algorithms.mean_field_vb(ORACLE.model, num_samples=1, initial_scale=1e-6)
    state = jax.jit(algorithm.init)(jax.random.key(0))
    step = jax.jit(algorithm.step)
    one, three = (
        step(jax.random.key(1), state, BATCH._replace(scale=jnp.asarray(scale)))[1]["elbo"]
        for scale in (1.0, 3.0)
    )
    log_likelihoods = jax.jit(ORACLE.model.log_likelihood)(state.params.q.mean, PSI, BATCH)
    np.testing.assert_allclose((three - one) / 2, log_likelihoods.sum(), rtol=1e-3)


@pytest.mark.parametrize("build", [pb.algorithms.mean_field_vb, pb.algorithms.full_rank_vb])
def test_bad_arguments(build):
    for name in ("num_samples", "num_particles"):
        with pytest.raises(ValueError, match=f"{name} must be a whole number"):
            build(ORACLE.model, **{name: 0})
    with pytest.raises(ValueError, match="initial_scale must be positive"):
        build(ORACLE.model, initial_scale=0.0)

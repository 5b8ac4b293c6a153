"""Learned noise and prior scale: gradients of the closed form, known values recovered."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

import partialbayes as pb
from partialbayes.feynman_kac._gradients import one_pass
from partialbayes.model._batch import full_batch
from tests.oracles import conjugate


def exact_draws(oracle, psi, key, num):
    mean, covariance = oracle.posterior(psi)
    noise = jax.random.normal(key, (num, mean.shape[0]))
    return mean[None] + noise @ jnp.linalg.cholesky(covariance).T


def test_gradients_of_noise_and_prior_scale_match_the_closed_form():
    """Fisher's identity at exact posterior draws, within their Monte Carlo error."""
    oracle = conjugate()
    psi = oracle.model.init(jax.random.key(0)).psi
    psi = psi._replace(likelihood=psi.likelihood + 0.5, prior=psi.prior - 0.4)  # away from the optimum
    num = 10_000
    values = exact_draws(oracle, psi, jax.random.key(1), num)
    batch = full_batch(oracle.inputs, oracle.targets)
    _, gradient = one_pass(oracle.model, values, psi, batch)
    found, exact = gradient(jnp.full(num, 1.0 / num)), jax.grad(oracle.log_evidence)(psi)
    flat, expected = (np.concatenate([np.ravel(x) for x in jax.tree.leaves(g)]) for g in (found, exact))
    assert flat @ expected / np.linalg.norm(flat) / np.linalg.norm(expected) > 0.999

    def total(phi, learned):
        current = psi._replace(likelihood=learned[0], prior=learned[1])
        log_likelihood = oracle.model.log_likelihood(phi, current, batch).sum()
        return log_likelihood + oracle.model.log_prior(phi, current)

    each = jax.vmap(jax.grad(total, argnums=1), (0, None))(values, (psi.likelihood, psi.prior))
    for samples, name in zip(each, ("likelihood", "prior"), strict=True):
        error = samples.std() / np.sqrt(num)
        assert abs(getattr(found, name) - getattr(exact, name)) < 4.0 * error
        assert abs(getattr(exact, name)) > 20.0 * error  # so that the test can fail


def test_noise_and_prior_scale_recover_known_values():
    """Ascent from wrong values, φ drawn exactly at each step; the features are known."""
    noise, scale, dim, num_data = 0.25, 1.3, 40, 400
    oracle = conjugate(num_data, dim, noise, scale)
    psi = oracle.model.init(jax.random.key(0)).psi
    start = (psi.likelihood * 0.0 + 0.5, psi.prior * 0.0 - 1.0)
    batch = full_batch(oracle.inputs, oracle.targets)
    optimizer = optax.adam(optax.exponential_decay(0.05, 100, 0.5))

    def step(carry, key):
        (likelihood, prior), state = carry
        current = psi._replace(likelihood=likelihood, prior=prior)
        values = exact_draws(oracle, current, key, 16)
        ascent = one_pass(oracle.model, values, current, batch)[1](jnp.full(16, 1.0 / 16))
        updates, state = optimizer.update((-ascent.likelihood, -ascent.prior), state)
        return (optax.apply_updates((likelihood, prior), updates), state), None

    keys = jax.random.split(jax.random.key(2), 400)
    (found, _), _ = jax.jit(lambda: jax.lax.scan(step, (start, optimizer.init(start)), keys))()
    assert abs(found[0] - np.log(noise)) < 4.0 * np.sqrt(2.0 / (num_data - dim))
    assert abs(found[1] - np.log(scale)) < 4.0 * np.sqrt(0.5 / dim)
    # And the maximum of the closed-form evidence much closer than the truth.
    slope = jax.grad(lambda pair: oracle.log_evidence(psi._replace(likelihood=pair[0], prior=pair[1])))
    curvature = (0.5 * (num_data - dim), 2.0 * dim)
    for gradient, bend in zip(slope(found), curvature, strict=True):
        assert abs(gradient / bend) < 0.03


def test_noise_is_recovered_by_training_as_a_user_would():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 2))
    y = x @ np.array([1.0, -0.5]) + 0.3 * rng.normal(size=600)
    network = pb.from_params({"w": jnp.zeros(2)}, lambda params, x: x @ params["w"])
    model = pb.partial_bnn(network, "w", pb.gaussian(pb.learned(1.0)))
    algorithm = pb.ohsmc(model, num_particles=100, kernel=pb.kernels.random_walk(1e-4))
    trained = pb.fit(algorithm, (x, y), epochs=60, batch_size=60)
    found = trained.noise["variance"]
    residual = np.var(y - x @ np.linalg.lstsq(x, y, rcond=None)[0])
    np.testing.assert_allclose(found, residual, rtol=0.15)

"""Dropout by factors: the same network as by hand, and a gradient of the mean of the log-density."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import partialbayes as pb
from partialbayes.model._batch import full_batch

PLAIN = pb.mlp([2, 6, 1])
NETWORK = pb.networks.rank_one(PLAIN, "layers/1/kernel")
MODEL = pb.partial_bnn(NETWORK, "factors/**/input", pb.gaussian(0.5), pb.priors.dropout(0.25))
X = jax.random.normal(jax.random.key(0), (4, 2))


def test_factors_of_the_prior_drop_inputs():
    psi = MODEL.init(jax.random.key(1)).psi
    values = MODEL.sample_prior(jax.random.key(2), psi, 4000)
    kept = np.asarray(values) + 1.0
    assert set(np.unique(kept.round(5))) == {0.0, np.float32(4 / 3).round(5)}
    np.testing.assert_allclose((kept == 0.0).mean(), 0.25, atol=4.5 * np.sqrt(0.25 * 0.75 / kept.size))
    moments = MODEL.prior_moments(psi)
    np.testing.assert_allclose(moments.variance, 1 / 3, rtol=1e-6)
    wanted = 6 * np.log(0.75)
    np.testing.assert_allclose(MODEL.log_prior(jnp.full(6, 1 / 3), psi), wanted, rtol=1e-5)
    kernel = psi.network["network/layers/1/kernel"]
    hidden = jax.nn.gelu(X @ psi.network["network/layers/0/kernel"])
    by_hand = (hidden * kept[:1]) @ kernel
    np.testing.assert_allclose(MODEL.outputs(values[0], psi, X), by_hand, rtol=1e-4, atol=1e-5)


def test_psi_follows_the_mean_gradient():
    """With a linear model the mean over masks is known: an L2 penalty of the kernel."""
    params = {"w": jnp.asarray([1.0, -2.0])}
    network = pb.networks.rank_one(pb.from_params(params, lambda p, x: x @ p["w"]), "w")
    model = pb.partial_bnn(network, "factors/**/input", pb.gaussian(1.0), pb.priors.dropout(0.25))
    algorithm = pb.algorithms.mc_dropout(model, optimizer=optax.sgd(1.0))
    targets = jnp.asarray([0.5, -1.0, 0.0, 1.0])
    batch = full_batch(X, targets)

    def moved(key):
        state = algorithm.init(jax.random.key(0))
        after, _ = algorithm.step(key, state, batch)
        return after.psi.network["network/w"] - state.psi.network["network/w"]

    found = np.asarray(jax.jit(jax.vmap(moved))(jax.random.split(jax.random.key(3), 4000)), float)
    x, w = np.asarray(X, float), np.array([1.0, -2.0])
    exact = x.T @ (np.asarray(targets, float) - x @ w) - (1 / 3) * np.square(x).sum(axis=0) * w
    z = (found.mean(axis=0) - exact) / (found.std(axis=0) / np.sqrt(len(found)))
    assert np.abs(z).max() < 4.5


def test_bad_rate():
    with pytest.raises(ValueError, match="rate must be a probability"):
        pb.priors.dropout(1.0)

"""Noise by rows that were not trained on, and the prior of ψ by them."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import partialbayes as pb
from partialbayes.types import Params, Particles, Posterior
from tests.oracles import conjugate

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 2)).astype(np.float32)
NETWORK = pb.from_params({"w": jnp.zeros((2, 1))}, lambda params, x: x @ params["w"])
MODEL = pb.partial_bnn(NETWORK, "w", pb.gaussian(pb.learned(0.01)))


@pytest.mark.parametrize("members", [1, 3])
def test_noise_is_that_of_the_held_out_residuals(members):
    """A point has the mean square of the residuals as its variance, whatever it was trained to."""
    phi, psi = MODEL.init(jax.random.key(0))
    targets = 2.0 * RNG.normal(size=(40, 1))
    posterior = Posterior(psi, Particles(phi[None, :], jnp.zeros(1)))
    if members > 1:
        posterior = jax.tree.map(lambda leaf: jnp.stack([leaf] * members), posterior)
        cloud = posterior.particles
        posterior = posterior._replace(
            particles=cloud._replace(log_weights=cloud.log_weights - np.log(members))
        )
    found = pb.training.calibrate_noise(MODEL, posterior, (X, targets))
    np.testing.assert_allclose(np.exp(found.psi.likelihood), np.square(targets).mean(), rtol=1e-2)
    assert found.psi.likelihood.shape == posterior.psi.likelihood.shape
    np.testing.assert_array_equal(found.particles.values, posterior.particles.values)


def test_a_likelihood_without_noise_to_learn_is_refused():
    model = pb.partial_bnn(NETWORK, "w", pb.gaussian(1.0))
    phi, psi = model.init(jax.random.key(0))
    posterior = Posterior(psi, Particles(phi[None, :], jnp.zeros(1)))
    with pytest.raises(ValueError, match="no learned parameter"):
        pb.training.calibrate_noise(model, posterior, (X, X[:, :1]))


def test_prior_of_psi_is_a_normal_one():
    """Its gradient is that of log N(ψ; 0, s² / fan-in), on the network alone, in ψ and beside φ."""
    model = pb.partial_bnn(pb.mlp([2, 3, 1]), "layers/1/*", pb.gaussian(pb.learned(1.0)))
    params = model.init(jax.random.key(0))
    transform = pb.algorithms.weight_prior(model, 0.5)
    zeros = jax.tree.map(jnp.zeros_like, params)
    both, _ = transform.update(zeros, transform.init(params), params)
    alone, _ = transform.update(zeros.psi, transform.init(params.psi), params.psi)
    assert isinstance(both, Params)

    def log_prior(network):
        kernel, bias = network["layers/0/kernel"], network["layers/0/bias"]
        normal = jax.scipy.stats.norm.logpdf
        return normal(kernel, 0.0, 0.5 / jnp.sqrt(2.0)).sum() + normal(bias, 0.0, 0.5).sum()

    exact = jax.grad(lambda network: -log_prior(network))(params.psi.network)
    for found in (both.psi, alone):
        for path, gradient in exact.items():
            np.testing.assert_allclose(found.network[path], gradient, rtol=1e-5)
        assert float(found.likelihood) == 0.0
    assert not both.phi.any()
    with pytest.raises(ValueError, match="needs the parameters"):
        transform.update(zeros, transform.init(params))


def test_the_scale_with_the_best_held_out_density_is_kept():
    """Targets that are noise want a strong prior, those that follow a steep line a weak one."""
    model = pb.partial_bnn(pb.mlp([2, 1]), "layers/0/bias", pb.gaussian(pb.learned(1.0)))
    rng = np.random.default_rng(1)
    x, other = rng.normal(size=(4, 2)), rng.normal(size=(400, 2))

    def chosen(slope):
        found = pb.training.fit_with_prior(
            lambda optimizer: pb.map_estimate(model, optimizer=optimizer),
            (x, slope * x[:, :1] + rng.normal(size=(4, 1))),
            (other, slope * other[:, :1] + rng.normal(size=(400, 1))),
            epochs=300,
            optimizer=optax.adam(optax.cosine_decay_schedule(0.3, 300)),
            scales=(0.01, 100.0),
            progress=False,
        )
        assert found.held_out_nlpd.shape == (2,)
        assert float(found.fit.noise["variance"]) > 0.5
        return found.scale

    assert chosen(0.0) == 0.01
    assert chosen(20.0) == 100.0


def test_a_fixed_noise_stays_what_it_is():
    oracle = conjugate()
    fixed = pb.partial_bnn(NETWORK, "w", pb.gaussian(0.5))
    found = pb.training.fit_with_prior(
        lambda optimizer: pb.ohsmc(fixed, num_particles=4, optimizer=optimizer),
        (oracle.inputs, oracle.targets[:, None]),
        (oracle.inputs, oracle.targets[:, None]),
        epochs=1,
        optimizer=optax.adam(0.01),
        scales=[1.0],
        progress=False,
    )
    assert float(found.fit.noise["variance"]) == 0.5

"""The prior of ψ, and its scale by rows that were not trained on."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import partialbayes as pb
from partialbayes.types import Params

NETWORK = pb.from_params({"w": jnp.zeros((2, 1))}, lambda params, x: x @ params["w"])


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
        targets = slope * other[:, :1] + rng.normal(size=(400, 1))
        found = pb.training.fit_with_prior(
            lambda optimizer: pb.map_estimate(model, optimizer=optimizer),
            (x, slope * x[:, :1] + rng.normal(size=(4, 1))),
            (other, targets),
            epochs=300,
            optimizer=optax.adam(optax.cosine_decay_schedule(0.3, 300)),
            scales=(0.01, 100.0),
            progress=False,
        )
        assert found.held_out_nlpd.shape == (2,)
        predicted = pb.predict(found.model, found.fit.posterior, other)
        error = float(jnp.square(predicted.mean - targets[:, 0]).mean())
        assert float(predicted.variance.mean()) == pytest.approx(error, rel=0.2)
        return found.scale

    assert chosen(0.0) == 0.01
    assert chosen(20.0) == 100.0

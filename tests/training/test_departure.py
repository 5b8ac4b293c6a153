"""Pretrained networks: where particles start, what is kept of the network, and when `fit` warns."""

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import partialbayes as pb
from partialbayes._engine.diagnostics import falling, findings
from partialbayes.errors import DepartureWarning
from tests.algorithms.test_contract import ALGORITHMS

X = np.linspace(-1.0, 1.0, 64, dtype=np.float32)[:, None]
Y = 2.0 * X[:, 0] + 0.1 * np.random.default_rng(0).normal(size=64).astype(np.float32)
WEIGHTS = {"trunk": jnp.ones((1, 3)), "head": jnp.full((3, 1), 2.0 / 3.0)}


def apply(params, inputs):
    return inputs @ params["trunk"] @ params["head"]


NETWORK = pb.from_params(WEIGHTS, apply, pretrained=True)
FAR = pb.priors.normal(mean=30.0, scale=5.0)


# The φ of dropout is its prior by definition.
@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name != "mc dropout"])
def test_every_trainer_starts_around_the_weights(name):
    model = pb.partial_bnn(NETWORK, "head", pb.gaussian(0.01), FAR, freeze="**")
    algorithm = ALGORITHMS[name](model)
    posterior = algorithm.posterior(algorithm.init(jax.random.key(0)))
    offsets = np.asarray(posterior.particles.values) - 2.0 / 3.0
    # variational families start with a spread of their own, a tenth of the prior's
    assert np.abs(offsets).max() < (3.0 if "vb" in name else 0.2)


def test_the_cloud_has_the_scale_of_the_weights_or_of_the_prior():
    def spread(scale, weights):
        network = pb.from_params(weights, apply, pretrained=True)
        model = pb.partial_bnn(network, "**", pb.gaussian(), pb.priors.normal(scale=scale))
        algorithm = pb.ohsmc(model, num_particles=4000)
        values = algorithm.posterior(algorithm.init(jax.random.key(0))).particles.values
        return np.asarray(values).std(axis=0)  # head, then trunk

    np.testing.assert_allclose(spread(5.0, WEIGHTS), [1 / 30] * 3 + [1 / 20] * 3, rtol=0.05)
    np.testing.assert_allclose(spread(0.1, WEIGHTS), [0.005] * 6, rtol=0.05)
    nothing = jax.tree.map(jnp.zeros_like, WEIGHTS)
    np.testing.assert_allclose(spread(0.1, nothing), [0.005] * 6, rtol=0.05)


def test_adapters_say_pretrained_and_refuse_it_without_weights():
    dense, inputs = nn.Dense(1), jnp.ones((1, 2))
    variables = dense.init(jax.random.key(0), inputs)
    linear = eqx.nn.Linear(2, 1, key=jax.random.key(0))
    for network in (
        pb.from_nnx(nnx.Linear(2, 1, rngs=nnx.Rngs(0)), pretrained=True),
        pb.from_linen(dense, inputs, variables=variables, pretrained=True),
        pb.from_equinox(linear, pretrained=True),
    ):
        assert pb.partial_bnn(network, "**", pb.gaussian()).pretrained
    assert not pb.from_equinox(linear).pretrained
    for build in (
        lambda: pb.from_nnx(lambda rngs: nnx.Linear(2, 1, rngs=rngs), pretrained=True),
        lambda: pb.from_linen(dense, inputs, pretrained=True),
        lambda: pb.from_equinox(lambda key: eqx.nn.Linear(2, 1, key=key), pretrained=True),
    ):
        with pytest.raises(ValueError, match="pretrained=True needs weights"):
            build()


def test_the_network_as_it_is_goes_to_any_second_stage():
    around = pb.priors.centered_on(NETWORK, 0.5)
    model = pb.partial_bnn(NETWORK, "head", pb.gaussian(0.01), around, freeze="**")
    start = pb.training.pretrained_posterior(model)
    np.testing.assert_array_equal(start.particles.values, np.full((1, 3), 2.0 / 3.0, np.float32))
    sampler = pb.samplers.laplace(num_particles=50)
    posterior, _ = pb.training.second_stage(sampler, model, start, (X, Y))
    trained = pb.fit(pb.two_stage(model, sampler), (X, Y), epochs=1)
    assert trained.posterior.particles.values.shape == posterior.particles.values.shape == (50, 3)
    found = trained.history.departure
    assert not found.held_out
    assert not found.is_worse
    fresh = pb.partial_bnn(pb.mlp([1, 3, 1]), "layers/1/*", pb.gaussian())
    for build in (lambda: pb.two_stage(fresh, sampler), lambda: pb.training.pretrained_posterior(fresh)):
        with pytest.raises(ValueError, match="not pretrained"):
            build()


def test_a_run_that_ends_worse_warns_and_is_on_record(tmp_path):
    # Moves so wide that a step ruins what was learned.
    model = pb.partial_bnn(NETWORK, "head", pb.gaussian(0.01), freeze="**")
    algorithm = pb.ohsmc(model, num_particles=10, kernel=pb.kernels.random_walk(4.0))
    with pytest.warns(DepartureWarning, match=r"validation data.*two_stage"):
        trained = pb.fit(algorithm, (X, Y), epochs=1, validation=(X, Y))
    found = trained.history.departure
    assert found.is_worse
    assert found.held_out
    np.testing.assert_allclose(found.nlpd_before, -0.9, atol=0.3)  # ½ log(2π 0.01) + ½
    np.testing.assert_allclose(found.nlpd_after, trained.history.validation_nlpd.min(), rtol=1e-4)
    (text,) = findings({}, 10, np.zeros(0, int), np.zeros(0), found)
    assert "worse than the pretrained network" in text
    pb.save(tmp_path / "model", model, trained.posterior, history=trained.history)
    loaded = pb.load(tmp_path / "model", network=NETWORK)
    assert loaded.history.departure == found


def test_findings_tell_a_loss_that_falls_from_noise_and_predictions_that_moved():
    rng = np.random.default_rng(0)
    noise = rng.normal(size=200)
    assert falling(noise) == 0.0
    assert falling(noise[:8] - np.arange(8)) == 0.0  # too short to tell
    assert falling(0.1 * noise + np.linspace(2.0, 0.0, 200)) == pytest.approx(0.5, abs=0.05)
    (text,) = findings({"loss": np.linspace(2.0, 0.0, 200)}, 1, np.zeros(0, int), np.zeros(0))
    assert "still falling" in text
    far = pb.results.Departure(1.0, 0.9, 0.1, 0.4, held_out=True)
    (text,) = findings({}, 1, np.zeros(0, int), np.zeros(0), far)
    assert "far from those" in text
    near = pb.results.Departure(1.0, 0.9, 0.1, 0.01, held_out=True)
    assert not findings({}, 1, np.zeros(0, int), np.zeros(0), near)

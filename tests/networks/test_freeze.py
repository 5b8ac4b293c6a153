"""Frozen weights: no part of ψ, back in their places, the same for every algorithm, saved and loaded."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partialbayes as pb
from tests.short import train_briefly

NETWORK = pb.mlp([2, 4, 3, 1])
PARAMS = NETWORK.init(jax.random.key(0))
X = jnp.asarray(np.random.default_rng(0).normal(size=(8, 2)), jnp.float32)
Y = X[:, 0]


def test_frozen_weights_are_no_part_of_psi_and_come_back_in_their_places():
    few = pb.subsets.mask({"layers/1/kernel": np.arange(12).reshape(4, 3) % 4 == 0})
    some = pb.subsets.mask({"layers/1/kernel": np.arange(12).reshape(4, 3) % 3 == 0}) | pb.subsets.layer(
        0
    )
    split = pb.model.split_weights(PARAMS, few, freeze=some)
    phi, psi = split.flatten(PARAMS)
    assert sorted(psi) == ["layers/1/bias", "layers/1/kernel", "layers/2/bias", "layers/2/kernel"]
    # 3 random, 4 frozen of which one is random already, the rest trained
    assert (phi.size, split.frozen["layers/1/kernel"].size, psi["layers/1/kernel"].size) == (3, 3, 6)
    merged = split.merge(2.0 * phi, jax.tree.map(lambda leaf: 3.0 * leaf, psi))
    kernel, old = (
        np.asarray(merged["layers"][1]["kernel"]).ravel(),
        PARAMS["layers"][1]["kernel"].ravel(),
    )
    places = np.arange(12)
    factor = np.where(places % 4 == 0, 2.0, np.where(places % 3 == 0, 1.0, 3.0))
    np.testing.assert_allclose(kernel, factor * np.asarray(old), rtol=1e-6)
    np.testing.assert_array_equal(merged["layers"][0]["kernel"], PARAMS["layers"][0]["kernel"])
    assert "phi (3) + psi (6) + frozen (3)" in split.describe()
    assert split.describe().splitlines()[-2].endswith("psi: 13 deterministic weights, frozen: 15")


def test_a_frozen_network_leaves_nothing_to_the_optimizer_and_does_not_move():
    model = pb.partial_bnn(NETWORK, "layers/2/*", pb.gaussian(), freeze="**")
    assert model.init(jax.random.key(3)).psi.network == {}
    posterior = train_briefly(model, (X, Y))
    weights = model.split.merge(posterior.particles.values[0], posterior.psi.network)
    first = NETWORK.init(jax.random.key(0))["layers"][0]["kernel"]
    np.testing.assert_array_equal(weights["layers"][0]["kernel"], first)


def test_what_is_not_frozen_is_trained():
    model = pb.partial_bnn(NETWORK, "layers/2/*", pb.gaussian(), freeze="layers/0/*")
    start = model.init(jax.random.key(0)).psi.network
    after = train_briefly(model, (X, Y)).psi.network
    assert sorted(after) == ["layers/1/bias", "layers/1/kernel"]
    assert not np.allclose(after["layers/1/kernel"], start["layers/1/kernel"])


@pytest.mark.parametrize("freeze", ["layer/0/*", pb.subsets.layer(9)])
def test_the_error_names_freeze(freeze):
    with pytest.raises(ValueError, match=r"^freeze"):
        pb.partial_bnn(NETWORK, "layers/2/*", pb.gaussian(), freeze=freeze)


def test_saved_and_loaded_with_the_frozen_weights(tmp_path):
    few = pb.subsets.mask({"layers/1/kernel": np.arange(12).reshape(4, 3) % 4 == 0})
    fresh = NETWORK._replace(init=lambda key: jax.tree.map(jnp.ones_like, NETWORK.init(key)))
    for network in (NETWORK, None):
        model = pb.partial_bnn(NETWORK, few, pb.gaussian(), freeze=("layers/0/*", "layers/1/*"))
        algorithm = pb.ohsmc(model, num_particles=2)
        posterior = algorithm.posterior(algorithm.init(jax.random.key(1)))
        pb.save(tmp_path / "model", model, posterior, overwrite=True)
        saved = pb.load(tmp_path / "model", network=network and fresh)
        phi = posterior.particles.values[0]
        np.testing.assert_array_equal(
            saved.model.outputs(phi, saved.posterior.psi, X), model.outputs(phi, posterior.psi, X)
        )
    with pytest.raises(pb.errors.CheckpointError, match=r"frozen weight 'layers/0/kernel'"):
        pb.load(tmp_path / "model", network=pb.mlp([5, 4, 3, 1]))

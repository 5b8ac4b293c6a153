"""Keras models as networks; skipped where Keras is not installed."""

import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partialbayes as pb

os.environ.setdefault("KERAS_BACKEND", "jax")
keras = pytest.importorskip("keras", reason="Keras is not installed: make test-torch")
# Keras' own: how it gives NumPy its variables.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
IMAGES = np.random.default_rng(0).normal(size=(5, 8, 8, 1)).astype(np.float32)


def trained():
    keras.utils.set_random_seed(0)
    inputs = keras.Input((8, 8, 1))
    hidden = keras.layers.Conv2D(4, 3, name="conv")(inputs)
    hidden = keras.layers.BatchNormalization(name="norm")(hidden)
    hidden = keras.layers.Flatten()(keras.layers.ReLU()(hidden))
    hidden = keras.layers.Dropout(0.5)(hidden)
    model = keras.Model(inputs, keras.layers.Dense(3, name="head")(hidden), name="images")
    statistics = np.random.default_rng(1).uniform(0.5, 2.0, size=(2, 4))
    norm = model.get_layer("norm")
    norm.set_weights([*norm.get_weights()[:2], *statistics])
    return model


def test_outputs_and_names_are_those_of_the_model_and_it_is_not_touched():
    model = trained()
    before = [np.array(value) for value in model.get_weights()]
    network = pb.from_keras(model)
    found = network.apply(network.init(jax.random.key(0)), jnp.asarray(IMAGES))
    with jax.numpy_rank_promotion("allow"):
        np.testing.assert_allclose(found, model(IMAGES, training=False), atol=2e-6)
    assert all(np.array_equal(a, b) for a, b in zip(before, model.get_weights(), strict=True))
    partial = pb.partial_bnn(network, "head/*", pb.categorical())
    assert (partial.split.dim, partial.pretrained) == (144 * 3 + 3, True)
    assert pb.partial_bnn(network, pb.subsets.output_layer(), pb.categorical()).split.dim == 435
    assert pb.partial_bnn(network, pb.subsets.normalization_scales(), pb.categorical()).split.dim == 4


def test_a_sequential_model_has_paths_without_its_name_and_saves(tmp_path):
    model = keras.Sequential(
        [keras.layers.Dense(4, name="a"), keras.layers.Dense(1, name="b")], name="s"
    )
    model.build((None, 2))
    network = pb.from_keras(model)
    bayes = pb.partial_bnn(network, "b/*", pb.gaussian(), freeze="a/*")
    x = np.ones((4, 2), np.float32)
    algorithm = pb.ohsmc(bayes, num_particles=3)
    posterior = algorithm.posterior(algorithm.init(jax.random.key(0)))
    pb.save(tmp_path / "model", bayes, posterior)
    saved = pb.load(tmp_path / "model", network=pb.from_keras(model))
    first = pb.predict(bayes, posterior, x).mean
    np.testing.assert_array_equal(first, pb.predict(saved.model, saved.posterior, x).mean)


def test_inputs_by_name():
    tokens, mask = keras.Input((6,), dtype="int32", name="tokens"), keras.Input((6,), name="mask")
    hidden = keras.layers.Embedding(11, 4)(tokens) * mask[:, :, None]
    model = keras.Model({"tokens": tokens, "mask": mask}, keras.layers.Dense(2)(hidden[:, 0]))
    network = pb.from_keras(model)
    data = {"tokens": jnp.ones((3, 6), jnp.int32), "mask": jnp.ones((3, 6))}
    found = network.apply(network.init(jax.random.key(0)), data)
    with jax.numpy_rank_promotion("allow"):
        np.testing.assert_allclose(found, model(data), atol=1e-6)


class Noisy(keras.layers.Dense):
    """Draws random numbers whenever it is called."""

    def __init__(self, units):
        super().__init__(units)
        self.seed = keras.random.SeedGenerator(0)

    def call(self, inputs, training=None):
        return super().call(inputs) + keras.random.normal((1, 1), seed=self.seed)


def test_errors_say_what_to_do(monkeypatch):
    noisy = keras.Sequential([Noisy(2)])
    noisy.build((None, 3))
    network = pb.from_keras(noisy)
    with pytest.raises(ValueError, match="draws random numbers"):
        network.apply(network.init(jax.random.key(0)), jnp.ones((4, 3)))
    with pytest.raises(ValueError, match="build it"):
        pb.from_keras(keras.Sequential([keras.layers.Dense(2)]))
    frozen = trained()
    frozen.trainable = False
    with pytest.raises(ValueError, match="no weights to train"):
        pb.from_keras(frozen)
    with pytest.raises(TypeError, match=r"keras\.Model"):
        pb.from_keras("model")
    monkeypatch.setattr(keras.backend, "backend", lambda: "torch")
    with pytest.raises(ValueError, match="KERAS_BACKEND=jax"):
        pb.from_keras(frozen)

"""The same network in Flax, Equinox, Keras and PyTorch gives the same posterior from the same key."""

import os

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import partialbayes as pb
from tests.short import train_briefly

os.environ.setdefault("KERAS_BACKEND", "jax")
torch = pytest.importorskip("torch", reason="torch is not installed: make test-torch")
pytest.importorskip("torchax", reason="torchax is not installed: make test-torch")
keras = pytest.importorskip("keras", reason="Keras is not installed: make test-torch")
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

RNG = np.random.default_rng(0)
KERNELS = {"a": RNG.normal(size=(3, 8)) / 2.0, "b": RNG.normal(size=(8, 2)) / 3.0}
BIASES = {"a": RNG.normal(size=8) / 2.0, "b": RNG.normal(size=2) / 2.0}
X, LABELS = RNG.normal(size=(20, 3)).astype(np.float32), RNG.integers(0, 2, size=20)


class FlaxNet(nnx.Module):
    def __init__(self):
        for name, kernel in KERNELS.items():
            layer = nnx.Linear(*kernel.shape, rngs=nnx.Rngs(0))
            layer.kernel[...] = jnp.asarray(kernel, jnp.float32)
            layer.bias[...] = jnp.asarray(BIASES[name], jnp.float32)
            setattr(self, name, layer)

    def __call__(self, x):
        return self.b(nnx.relu(self.a(x)))


class Affine(eqx.Module):
    """An Equinox layer with its leaves in PyTorch's order: φ and its noise have that of the leaves."""

    bias: jax.Array
    weight: jax.Array

    def __call__(self, x):
        return self.weight @ x + self.bias


class EquinoxNet(eqx.Module):
    a: Affine
    b: Affine

    def __init__(self):
        for name, kernel in KERNELS.items():
            bias, weight = (jnp.asarray(part, jnp.float32) for part in (BIASES[name], kernel.T))
            setattr(self, name, Affine(bias, weight))

    def __call__(self, x):
        return self.b(jax.nn.relu(self.a(x)))


class TorchNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        for name, kernel in KERNELS.items():
            layer = torch.nn.Linear(*kernel.shape)
            layer.load_state_dict(
                {"weight": torch.tensor(kernel.T).float(), "bias": torch.tensor(BIASES[name]).float()}
            )
            setattr(self, name, layer)

    def forward(self, x):
        return self.b(torch.nn.functional.relu(self.a(x)))


def keras_net():
    model = keras.Sequential(
        [keras.layers.Dense(8, activation="relu", name="a"), keras.layers.Dense(2, name="b")]
    )
    model.build((None, 3))
    for name, kernel in KERNELS.items():
        model.get_layer(name).set_weights([kernel, BIASES[name]])
    return model


def networks():
    yield pb.from_nnx(FlaxNet(), pretrained=True)
    yield pb.from_keras(keras_net())
    yield pb.from_equinox(EquinoxNet(), pretrained=True)
    yield pb.from_torch(TorchNet())


def particles(network, stochastic):
    model = pb.partial_bnn(network, stochastic, pb.categorical(), freeze="**")
    return np.asarray(train_briefly(model, (X, LABELS)).particles.values)


def test_random_biases_are_the_same_in_all_four():
    first, *others = (particles(network, "*/bias") for network in networks())
    for other in others:
        np.testing.assert_allclose(other, first, atol=1e-5)


def test_random_layers_are_the_same_where_kernels_lie_the_same_way():
    flax, keras_one, equinox, pytorch = (particles(network, "b/*") for network in networks())
    np.testing.assert_allclose(keras_one, flax, atol=1e-5)  # inputs × outputs
    np.testing.assert_allclose(pytorch, equinox, atol=1e-5)  # outputs × inputs
    assert flax.shape == pytorch.shape

"""The same network in Flax, Equinox, Keras and PyTorch gives the same posterior from the same key.

The layers are those of the libraries.
"""

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


class EquinoxNet(eqx.Module):
    a: eqx.nn.Linear
    b: eqx.nn.Linear

    def __init__(self):
        for name, kernel in KERNELS.items():
            layer = eqx.nn.Linear(*kernel.shape, key=jax.random.key(0))
            parts = (jnp.asarray(kernel.T, jnp.float32), jnp.asarray(BIASES[name], jnp.float32))
            setattr(self, name, eqx.tree_at(lambda one: (one.weight, one.bias), layer, parts))

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


@pytest.mark.parametrize("stochastic", ["*/bias", "b/*", "**"])
def test_the_same_weights_are_random_in_the_same_way_in_all_four(stochastic):
    first, *others = (particles(network, stochastic) for network in networks())
    for other in others:
        np.testing.assert_allclose(other, first, atol=1e-5)


def test_convolutions_are_the_same_in_all_four():
    kernel, bias = RNG.normal(size=(2, 3, 2, 4)), RNG.normal(size=4)  # height, width, inputs, outputs
    images = RNG.normal(size=(2, 5, 8, 2)).astype(np.float32)
    turned = jnp.asarray(kernel.transpose(3, 2, 0, 1), jnp.float32)

    flax = nnx.Conv(2, 4, (2, 3), padding="VALID", rngs=nnx.Rngs(0))
    flax.kernel[...], flax.bias[...] = jnp.asarray(kernel, jnp.float32), jnp.asarray(bias, jnp.float32)
    one = keras.Sequential([keras.Input((5, 8, 2)), keras.layers.Conv2D(4, (2, 3))])
    one.layers[0].set_weights([kernel, bias])
    plain = eqx.nn.Conv2d(2, 4, (2, 3), key=jax.random.key(0))
    parts = (turned, jnp.asarray(bias, jnp.float32).reshape(4, 1, 1))
    plain = eqx.tree_at(lambda conv: (conv.weight, conv.bias), plain, parts)
    module = torch.nn.Conv2d(2, 4, (2, 3))
    state = {"weight": torch.tensor(np.array(turned)), "bias": torch.tensor(bias).float()}
    module.load_state_dict(state)

    networks = [pb.from_nnx(flax), pb.from_keras(one)]
    for first in (pb.from_equinox(plain), pb.from_torch(module)):
        networks.append(pb.networks.with_layout(first, data="NHWC", own="NCHW"))
    found = []
    for network in networks:
        split = pb.model.split_weights(
            network.init(jax.random.key(0)), "**", output_axis=network.output_axis
        )
        phi, psi = split.flatten(network.init(jax.random.key(0)))
        outputs = network.apply(split.merge(jnp.sin(9.0 * phi), psi), jnp.asarray(images))
        axes = (0, 1, 2, 3) if outputs.shape[-1] == 4 else (0, 2, 3, 1)
        found.append((phi, outputs.transpose(axes)))
    for phi, outputs in found[1:]:
        np.testing.assert_allclose(phi, found[0][0], rtol=1e-6)
        np.testing.assert_allclose(outputs, found[0][1], atol=1e-4)

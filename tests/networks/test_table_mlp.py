"""The perceptron for tables."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partialbayes as pb

NETWORK = pb.networks.table_mlp([3, 4, 4, 2], numeric=[0, 2], num_bins=2, num_features=2)
X = jax.random.normal(jax.random.key(1), (5, 3)) * 3.0


def test_it_computes_what_it_says():
    """Written out in NumPy, column by column and bin by bin."""
    params = NETWORK.init(jax.random.key(0))
    edges = np.array([[-2.0, 0.5, 2.0], [-1.0, -1.0, 1.0]])
    params["embedding"]["edges"] = jnp.asarray(edges, jnp.float32)
    outputs = NETWORK.apply(params, X)
    z = np.asarray(X / np.sqrt(1.0 + (X / 3.0) ** 2), float)
    random = np.random.default_rng(27)
    frequencies, phases = (
        0.1 * random.standard_normal((2, 16)), random.uniform(-np.pi, np.pi, (2, 16))
    )  # fmt: skip
    embedding = jax.tree.map(lambda leaf: np.asarray(leaf, float), params["embedding"])
    waves, bins = [], []
    for place, column in enumerate((0, 2)):
        angles = 2.0 * np.pi * z[:, column, None] * frequencies[place] + phases[place]
        bias = embedding["bias"][2 * place : 2 * place + 2]
        waves.append(np.cos(angles) @ embedding["kernel"][place] + bias)
        low, middle, high = edges[place]
        width = middle - low
        first = np.minimum((z[:, column] - low) / width, 1.0) - 0.5 if width > 0 else 0.0 * z[:, 0]
        second = np.maximum((z[:, column] - middle) / (high - middle), 0.0) - 0.5
        bins.append(np.stack([first, second], axis=1))
    state = np.concatenate([*waves, z, *bins], axis=1)
    layers, head = jax.tree.map(np.asarray, (params["layers"], params["head"]))
    for layer in layers:
        state = (state * layer["input_factor"]) @ layer["kernel"]
        state = np.asarray(jax.nn.gelu(state * layer["output_factor"] + layer["bias"]))
    expected = state @ head["kernel"] + head["bias"]
    np.testing.assert_allclose(outputs, expected, atol=2e-5)


def test_gate_and_edges_are_not_trained_and_the_gate_shuts():
    params = NETWORK.init(jax.random.key(0))
    gradient = jax.grad(lambda params: NETWORK.apply(params, X).sum())(params)["embedding"]
    assert not np.any(gradient["edges"])
    assert gradient["gate"] == 0.0
    params["embedding"]["gate"] = jnp.zeros(())
    moved = jax.tree.map(lambda leaf: leaf, params)
    moved["embedding"]["edges"] = params["embedding"]["edges"] * 0.5
    np.testing.assert_array_equal(NETWORK.apply(params, X), NETWORK.apply(moved, X))


def test_members_of_one_kernel_make_one_product():
    """The compiled program of many members has no product for each of them, and no kernel of each."""
    network = pb.networks.table_mlp([7, 24, 24, 1])
    members = ("layers/*/*_factor", "layers/*/bias", "head/*")
    model = pb.partial_bnn(network, members, pb.gaussian())
    phi, psi = model.init(jax.random.key(0))
    inputs = jnp.ones((6, 10, 7))
    outputs = jax.jit(jax.vmap(model.outputs, in_axes=(0, None, 0)))
    text = outputs.lower(jnp.tile(phi[None], (6, 1)), psi, inputs).compile().as_text()
    # 6 members of 10 rows are 60 rows of one product with the 7 x 24 kernel.
    assert "f32[60,24]" in text
    assert "f32[6,7,24]" not in text
    assert "f32[6,24,24]" not in text


def test_start_and_bad_arguments():
    started = pb.networks.table_mlp([2, 4, 3], initial_outputs=[1.0, 2.0, 3.0])
    assert started.init(jax.random.key(0))["head"]["bias"].tolist() == [1.0, 2.0, 3.0]
    with pytest.raises(ValueError, match="columns outside 0 to 1"):
        pb.networks.table_mlp([2, 4, 1], numeric=[2])
    with pytest.raises(ValueError, match="must name columns"):
        pb.networks.table_mlp([2, 4])
    with pytest.raises(ValueError, match="num_bins must be"):
        pb.networks.table_mlp([2, 4, 1], num_bins=-1)
    with pytest.raises(ValueError, match="this network takes"):
        started.apply(started.init(jax.random.key(0)), jnp.ones((3, 5)))

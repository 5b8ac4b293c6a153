"""Networks: the adapters agree, evaluation mode holds, and φ alone is mapped over particles."""

from itertools import pairwise

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from reproduction.networks.cnn import cnn

import partialbayes as pb
from partialbayes.feynman_kac._gradients import one_pass
from partialbayes.model._batch import full_batch
from tests.short import train_briefly

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
X = jnp.asarray(RNG.normal(size=(6, 3)), float)
SIZES = [3, 8, 5, 2]
WEIGHTS = [
    {
        "kernel": jnp.asarray(RNG.normal(size=(m, n)), float),
        "bias": jnp.asarray(RNG.normal(size=n), float),
    }
    for m, n in pairwise(SIZES)
]


class NnxNet(nnx.Module):
    def __init__(self, rngs):
        self.layers = nnx.List([nnx.Linear(m, n, rngs=rngs) for m, n in pairwise(SIZES)])

    def __call__(self, x):
        for layer in self.layers[:-1]:
            x = nnx.gelu(layer(x))
        return self.layers[-1](x)


class LinenNet(nn.Module):
    @nn.compact
    def __call__(self, x):
        for width in SIZES[1:-1]:
            x = nn.gelu(nn.Dense(width)(x))
        return nn.Dense(SIZES[-1])(x)


class EquinoxNet(eqx.Module):
    layers: list

    def __init__(self, key):
        pairs = zip(pairwise(SIZES), jax.random.split(key, 3), strict=True)
        self.layers = [eqx.nn.Linear(*sizes, key=layer_key) for sizes, layer_key in pairs]

    def __call__(self, x):
        for layer in self.layers[:-1]:
            x = jax.nn.gelu(layer(x))
        return self.layers[-1](x)


def nnx_network():
    module = NnxNet(nnx.Rngs(0))
    for layer, weights in zip(module.layers, WEIGHTS, strict=True):
        layer.kernel[...] = weights["kernel"]
        layer.bias[...] = weights["bias"]
    return pb.from_nnx(module)


def linen_network():
    return pb.from_linen(
        LinenNet(), X, variables={"params": {f"Dense_{i}": weights for i, weights in enumerate(WEIGHTS)}}
    )


def equinox_network():
    module = EquinoxNet(jax.random.key(0))
    for index, weights in enumerate(WEIGHTS):
        module = eqx.tree_at(
            lambda m, i=index: (m.layers[i].weight, m.layers[i].bias),
            module,
            (weights["kernel"].T, weights["bias"]),
        )
    return pb.from_equinox(module)


def plain_network():
    return pb.from_params({"layers": WEIGHTS}, pb.mlp(SIZES).apply)


NETWORKS = {
    "nnx": nnx_network,
    "linen": linen_network,
    "equinox": equinox_network,
    "plain": plain_network,
}
every_adapter = pytest.mark.parametrize("build", NETWORKS.values(), ids=NETWORKS.keys())


@every_adapter
def test_adapters_agree_on_the_same_weights(build):
    """Outputs, log-likelihood, its gradients and the order of φ, with the middle layer stochastic."""
    network, reference = build(), plain_network()
    found = network.apply(network.init(jax.random.key(0)), X)
    expected = reference.apply(reference.init(jax.random.key(0)), X)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)

    def score(network):
        model = pb.partial_bnn(network, pb.subsets.layer(1), pb.gaussian(pb.learned(0.3)))
        phi, psi = model.init(jax.random.key(0))
        batch = full_batch(X, X[:, :2])
        value, (of_phi, of_psi) = jax.value_and_grad(
            lambda phi, psi: model.log_likelihood(phi, psi, batch).sum(), argnums=(0, 1)
        )(phi, psi)
        norms = sorted(float(jnp.linalg.norm(leaf)) for leaf in jax.tree.leaves(of_psi))
        return value, phi, of_phi, norms

    for one, other in zip(score(network), score(reference), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
    assert score(network)[1].shape == (45,)


def test_hidden_biases_start_as_wide_as_asked():
    narrow, wide = (pb.mlp([2, 4000, 4000, 3], initial_bias=width) for width in (0.0, 2.5))
    for network, width in ((narrow, 0.0), (wide, 2.5)):
        first, second, last = network.init(jax.random.key(0))["layers"]
        np.testing.assert_allclose([first["bias"].std(), second["bias"].std()], width, rtol=0.05)
        np.testing.assert_array_equal(last["bias"], 0.0)
        np.testing.assert_allclose(first["kernel"].std(), 0.5**0.5, rtol=0.05)
    assert not np.array_equal(*(np.sort(layer["bias"]) for layer in wide.init(KEY)["layers"][:2]))
    for bad in (-1.0, np.inf, np.nan):
        with pytest.raises(ValueError, match="initial_bias, a standard deviation, must be a finite"):
            pb.mlp([2, 5, 1], initial_bias=bad)


@every_adapter
def test_pretrained_weights_are_the_start(build):
    network = build()
    model = pb.partial_bnn(
        network, pb.subsets.layer(-1), pb.gaussian(), pb.priors.centered_on(network, 0.1)
    )
    phi, psi = model.init(jax.random.key(3))
    merged = model.split.merge(phi, psi.network)
    np.testing.assert_array_equal(network.apply(merged, X), network.apply(network.init(KEY), X))
    np.testing.assert_array_equal(model.prior_moments(psi).mean, phi)
    np.testing.assert_allclose(model.prior_moments(psi).variance, 0.01, rtol=1e-5)


def test_fresh_weights_depend_on_the_key():
    for network in (
        pb.from_nnx(NnxNet),
        pb.from_linen(LinenNet(), X),
        pb.from_equinox(EquinoxNet),
        pb.mlp(SIZES),
        cnn((8, 8, 1), (2,), 3, 2),
    ):
        first, again, other = (jax.tree.leaves(network.init(jax.random.key(s))) for s in (0, 0, 1))
        assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
        assert not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


@every_adapter
def test_layers_before_the_stochastic_one_run_once(build):
    """Compiled FLOPs of the batch's log-likelihood: one trunk and J heads, not J trunks."""
    wide = 64
    network = {
        "nnx": lambda: pb.from_nnx(lambda rngs: nnx.Sequential(
            nnx.Linear(wide, wide, rngs=rngs), jnp.tanh, nnx.Linear(wide, wide, rngs=rngs),
            jnp.tanh, nnx.Linear(wide, 1, rngs=rngs))),
        "linen": lambda: pb.from_linen(
            nn.Sequential([nn.Dense(wide), jnp.tanh, nn.Dense(wide), jnp.tanh, nn.Dense(1)]),
            jnp.ones((1, wide))),
        "equinox": lambda: pb.from_equinox(
            lambda key: eqx.nn.MLP(wide, 1, wide, 2, jnp.tanh, key=key)),
        "plain": lambda: pb.mlp([wide, wide, wide, 1], jnp.tanh),
    }[next(name for name, value in NETWORKS.items() if value is build)]()  # fmt: skip
    model = pb.partial_bnn(network, pb.subsets.layer(-1), pb.gaussian())
    rows, particles = 32, 50
    trunk = 2 * rows * wide * wide * 2  # two dense layers, multiply and add
    head = 2 * rows * wide

    def flops(function, *arguments):
        return jax.jit(function).lower(*arguments).compile().cost_analysis()["flops"]

    def log_likelihoods(values, psi, inputs):
        batch = full_batch(inputs, jnp.zeros(rows))
        return jax.vmap(lambda phi: model.log_likelihood(phi, psi, batch).sum())(values)

    psi = model.init(jax.random.key(0)).psi
    values = jnp.zeros((particles, model.split.dim))
    inputs = jnp.ones((rows, wide))
    assert flops(log_likelihoods, values, psi, inputs) < 1.1 * trunk + 1.5 * particles * head

    # The mistake it guards against: mapping over a merged tree runs the trunk for each particle.
    def merged_first(values, psi, inputs):
        trees = jax.vmap(lambda phi: model.split.merge(phi, psi.network))(values)
        return jax.vmap(lambda tree: network.apply(tree, inputs).sum())(trees)

    assert flops(merged_first, values, psi, inputs) > 0.5 * particles * trunk


class NnxTricky(nnx.Module):
    """Normalization, dropout, attention, a skip connection, a shared layer, a dictionary."""

    def __init__(self, rngs):
        self.stem = nnx.Linear(3, 8, rngs=rngs)
        self.batch_norm = nnx.BatchNorm(8, rngs=rngs)
        self.layer_norm = nnx.LayerNorm(8, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(2, 8, decode=False, rngs=rngs)
        self.shared = nnx.Linear(8, 8, rngs=rngs)
        self.again = self.shared
        self.heads = nnx.Dict(mean=nnx.Linear(8, 1, rngs=rngs))

    def __call__(self, x):
        x = self.dropout(self.batch_norm(self.stem(x)))
        x = x + self.again(nnx.relu(self.shared(x)))
        x = x + self.attention(x[:, None, :])[:, 0]
        return self.heads["mean"](self.layer_norm(x))


class LinenTricky(nn.Module):
    @nn.compact
    def __call__(self, x, train: bool = True):
        x = nn.Dropout(0.5, deterministic=not train)(
            nn.BatchNorm(use_running_average=not train)(nn.Dense(8, name="stem")(x))
        )
        shared = nn.Dense(8, name="shared")
        x = x + shared(nn.relu(shared(x)))
        x = x + nn.MultiHeadDotProductAttention(2)(x[:, None, :])[:, 0]
        return nn.Dense(1, name="head")(nn.LayerNorm()(x))


class EquinoxTricky(eqx.Module):
    stem: eqx.nn.Linear
    batch_norm: eqx.nn.BatchNorm
    dropout: eqx.nn.Dropout
    attention: eqx.nn.MultiheadAttention
    layer_norm: eqx.nn.LayerNorm
    heads: dict

    def __init__(self, key):
        keys = jax.random.split(key, 3)
        self.stem = eqx.nn.Linear(3, 8, key=keys[0])
        self.batch_norm = eqx.nn.BatchNorm(8, axis_name="rows", mode="batch")
        self.dropout = eqx.nn.Dropout(0.5)
        self.attention = eqx.nn.MultiheadAttention(2, 8, key=keys[1])
        self.layer_norm = eqx.nn.LayerNorm(8)
        self.heads = {"mean": eqx.nn.Linear(8, 1, key=keys[2])}

    def __call__(self, x, state, key=None):
        x, state = self.batch_norm(self.stem(x), state)
        x = self.dropout(x, key=key)
        x = x + self.attention(x[None], x[None], x[None])[0]
        return self.heads["mean"](self.layer_norm(x)), state


TRICKY = {
    "nnx": lambda: pb.from_nnx(NnxTricky(nnx.Rngs(0))),
    "linen": lambda: pb.from_linen(LinenTricky(), X),
    "equinox": lambda: pb.from_equinox(*eqx.nn.make_with_state(EquinoxTricky)(jax.random.key(0))),
}


@pytest.mark.parametrize("build", TRICKY.values(), ids=TRICKY.keys())
def test_normalization_dropout_attention_and_sharing(build):
    network = build()
    params = network.init(jax.random.key(0))
    # Evaluation mode: no randomness, and a row's output does not depend on the other rows.
    outputs = network.apply(params, X)
    np.testing.assert_array_equal(outputs, network.apply(params, X))
    np.testing.assert_allclose(outputs[:1], network.apply(params, X[:1]), rtol=1e-4, atol=1e-6)
    model = pb.partial_bnn(
        network, pb.subsets.normalization_scales() | pb.subsets.layer(-1), pb.gaussian()
    )
    assert model.split.dim == 16 + 9
    posterior = train_briefly(model, (X, X[:, 0]))
    assert np.isfinite(model.outputs(posterior.particles.values[0], posterior.psi, X)).all()


def test_from_nnx_leaves_the_module_alone():
    module = NnxTricky(nnx.Rngs(0))
    network = pb.from_nnx(module)
    network.apply(network.init(KEY), X)
    assert not module.dropout.deterministic
    assert not module.batch_norm.use_running_average
    # Shared weights are there once.
    assert "again" not in network.init(KEY) or "shared" not in network.init(KEY)


def test_convolution_of_the_paper_equals_flax():
    """Conv 32 – pool – conv 64 – pool – 256 – 10, as Flax computes it from the same weights."""

    class Paper(nn.Module):
        @nn.compact
        def __call__(self, x):
            for channels in (32, 64):
                x = nn.avg_pool(nn.relu(nn.Conv(channels, (3, 3))(x)), (2, 2), (2, 2))
            x = nn.relu(nn.Dense(256)(x.reshape(x.shape[0], -1)))
            return nn.Dense(10)(x)

    network = cnn()
    params = network.init(jax.random.key(0))
    images = jnp.asarray(RNG.normal(size=(2, 28, 28, 1)), float)
    names = ("Conv_0", "Conv_1", "Dense_0", "Dense_1")
    variables = {"params": dict(zip(names, params["layers"], strict=True))}
    np.testing.assert_allclose(
        network.apply(params, images), Paper().apply(variables, images), rtol=1e-4, atol=1e-5
    )
    gradient = jax.jit(jax.grad(lambda params: network.apply(params, images).sum()))(params)
    assert all((leaf != 0.0).any() for leaf in jax.tree.leaves(gradient))
    with pytest.raises(ValueError, match=r"this network takes \(examples, 28, 28, 1\)"):
        network.apply(params, images[..., 0][..., None, :])


class NnxRandom(nnx.Module):
    def __init__(self, rngs):
        self.linear, self.rngs = nnx.Linear(3, 1, rngs=rngs), rngs

    def __call__(self, x):
        return self.linear(x) + jax.random.normal(self.rngs(), (x.shape[0], 1))


class LinenRandom(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dropout(0.5, deterministic=False)(nn.Dense(1)(x))


class EquinoxRandom(eqx.Module):
    linear: eqx.nn.Linear

    def __call__(self, x, key):
        return self.linear(x) + jax.random.normal(key, (1,))


def test_networks_that_need_random_numbers_are_refused():
    data = (X, X[:, 0])

    def fit(network):
        train_briefly(pb.partial_bnn(network, pb.subsets.layer(0), pb.gaussian()), data)

    with pytest.raises(ValueError, match="draws random numbers when it is called in evaluation"):
        fit(pb.from_nnx(NnxRandom(nnx.Rngs(0))))
    variables = LinenRandom().init({"params": jax.random.key(0), "dropout": jax.random.key(1)}, X)
    with pytest.raises(ValueError, match="draws random numbers when it is called"):
        fit(pb.from_linen(LinenRandom(), X, variables=variables))
    with pytest.raises(ValueError, match="cannot be called without 'key'"):
        pb.from_equinox(EquinoxRandom(eqx.nn.Linear(3, 1, key=jax.random.key(0))))


def test_wrong_modules():
    with pytest.raises(ValueError, match="must hold the weights as 'params'"):
        pb.from_linen(LinenNet(), X, variables={"weights": {}})
    with pytest.raises(ValueError, match="for a module with state"):
        pb.from_equinox(eqx.nn.make_with_state(EquinoxTricky)(jax.random.key(0))[0])
    with pytest.raises(ValueError, match="params holds no array"):
        pb.from_params({}, lambda params, x: x)


class Inverted(nn.Module):
    """The layer that comes last is constructed, and so named, first."""

    @nn.compact
    def __call__(self, x):
        return nn.Dense(1)(jnp.tanh(nn.Dense(4)(x)))


def test_last_layer_of_trained_weights_whatever_their_names():
    """What JAX returns has its dictionaries sorted by name."""
    variables = jax.tree.map(lambda leaf: leaf, Inverted().init(jax.random.key(0), X))
    network = pb.from_linen(Inverted(), X, variables=variables)
    model = pb.partial_bnn(network, pb.subsets.output_layer(), pb.gaussian())
    assert model.split.dim == 5
    weights = {"trunk": {"w": jnp.ones((3, 4))}, "head": {"w": jnp.ones((4, 1))}}

    def apply(params, x):
        return x @ params["trunk"]["w"] @ params["head"]["w"]

    as_written = pb.from_params(weights, apply, ordered=True)
    assert pb.partial_bnn(as_written, pb.subsets.layer(-1), pb.gaussian()).split.dim == 4
    sorted_by_jax = pb.from_params(jax.tree.map(lambda leaf: leaf, weights), apply)
    with pytest.raises(
        ValueError, match=r"which layer comes first is not known.*choose by path.*'head/"
    ):
        pb.partial_bnn(sorted_by_jax, pb.subsets.layer(-1), pb.gaussian())


IMAGES = jax.random.normal(jax.random.key(5), (4, 6, 6, 1))


class LinenConvolution(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(1)(jnp.tanh(nn.Conv(2, (3, 3))(x)).reshape(x.shape[0], -1))


class NnxConvolution(nnx.Module):
    def __init__(self, rngs):
        self.convolution = nnx.Conv(1, 2, (3, 3), rngs=rngs)
        self.head = nnx.Linear(72, 1, rngs=rngs)

    def __call__(self, x):
        return self.head(jnp.tanh(self.convolution(x)).reshape(x.shape[0], -1))


class EquinoxConvolution(eqx.Module):
    convolution: eqx.nn.Conv2d
    head: eqx.nn.Linear

    def __init__(self, key):
        key_convolution, key_head = jax.random.split(key)
        self.convolution = eqx.nn.Conv2d(1, 2, 3, padding=1, key=key_convolution)
        self.head = eqx.nn.Linear(72, 1, key=key_head)

    def __call__(self, x):
        return self.head(jnp.tanh(self.convolution(jnp.moveaxis(x, -1, 0))).reshape(-1))


@pytest.mark.parametrize(
    "build",
    [
        lambda: pb.from_nnx(lambda rngs: NnxConvolution(rngs)),
        lambda: pb.from_linen(LinenConvolution(), IMAGES),
        lambda: pb.from_equinox(lambda key: EquinoxConvolution(key)),
    ],
    ids=["nnx", "linen", "equinox"],
)
def test_a_stochastic_convolution(build):
    """Particles of a kernel that every position shares, and its gradient in ψ."""
    model = pb.partial_bnn(build(), pb.subsets.layer(0), pb.gaussian())
    assert model.split.dim == 2 * 9 + 2
    psi = model.init(jax.random.key(0)).psi
    values = model.sample_prior(jax.random.key(1), psi, 5)
    log_likelihoods, gradient = one_pass(model, values, psi, full_batch(IMAGES, jnp.ones(4)))
    assert len(set(np.asarray(log_likelihoods).tolist())) == 5
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(gradient(jnp.full(5, 0.2))))

"""Rank-one and low-rank factors: the same as a changed kernel, without making one for each particle."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx

import partialbayes as pb

X = jax.random.normal(jax.random.key(1), (3, 4))
IMAGES = jax.random.normal(jax.random.key(2), (2, 6, 6, 4))


class Dense(nnx.Module):
    def __init__(self, rngs):
        self.first = nnx.Linear(4, 5, rngs=rngs)
        self.last = nnx.Linear(5, 2, rngs=rngs)

    def __call__(self, x):
        return self.last(jax.nn.gelu(self.first(x)))


def transposed():
    """A kernel as PyTorch has it, and a head without outputs' axis."""
    params = {"w": jax.random.normal(jax.random.key(3), (5, 4)), "head": jnp.arange(5.0)}
    return pb.from_params(params, lambda p, x: jnp.tanh(x @ p["w"].T) @ p["head"], output_axis=0)


def attention():
    """A kernel with two axes of outputs, of which the product has the second first."""
    params = {"w": jax.random.normal(jax.random.key(4), (4, 2, 3))}
    return pb.from_params(params, lambda p, x: jnp.einsum("nd,dhk->nkh", x, p["w"]).reshape(len(x), -1))


# Network, pattern, inputs, whether the shape of the inputs has to be known.
NETWORKS = {
    "mlp": (lambda: pb.mlp([4, 5, 2]), "layers/*/kernel", X, False),
    "nnx": (lambda: pb.from_nnx(lambda rngs: Dense(rngs)), "*/kernel", X, False),
    "linen": (
        lambda: pb.from_linen(linen.Sequential([linen.Dense(5), jnp.tanh, linen.Dense(2)]), X),
        "*/kernel",
        X,
        False,
    ),
    "equinox": (
        lambda: pb.from_equinox(eqx.nn.MLP(4, 2, 5, 1, key=jax.random.key(0))),
        "layers/*/weight",
        X,
        False,
    ),
    "plain, transposed": (transposed, ["w", "head"], X, False),
    "attention": (attention, "w", X, True),
    "nnx, convolution": (
        lambda: pb.from_nnx(lambda rngs: nnx.Conv(4, 6, (3, 3), feature_group_count=1, rngs=rngs)),
        "kernel",
        IMAGES,
        False,
    ),
    "nnx, groups": (
        lambda: pb.from_nnx(lambda rngs: nnx.Conv(4, 6, (3, 3), feature_group_count=2, rngs=rngs)),
        "kernel",
        IMAGES,
        False,
    ),
    "equinox, convolution": (
        lambda: pb.from_equinox(eqx.nn.Conv2d(6, 5, 3, key=jax.random.key(0))),
        "weight",
        IMAGES,
        False,
    ),
}


def made(name, wrap):
    build, pattern, inputs, known = NETWORKS[name]
    network = build()
    return network, wrap(network, pattern, inputs=inputs if known else None), inputs


def with_kernels(params, change):
    """The network's own weights, the chosen ones changed by their factors."""

    def one(keys, leaf):
        path = jax.tree_util.keystr(keys, simple=True, separator="/")
        return change(path, leaf, params["factors"][path]) if path in params["factors"] else leaf

    return jax.tree_util.tree_map_with_path(one, params["network"])


def axes(name, ndim):
    """Of inputs and outputs."""
    if name == "attention":
        return [0], [1, 2]
    if ndim == 1:
        return [0], []
    if "equinox" in name or "transposed" in name:
        return [1], [0]
    return [ndim - 2], [ndim - 1]


def spread(array, places, ndim):
    shape = [1] * ndim
    for place, size in zip(places, array.shape, strict=True):
        shape[place] = size
    return array.reshape(shape)


@pytest.mark.parametrize("name", NETWORKS)
def test_rank_one_is_a_kernel_times_both_factors(name):
    network, factored, inputs = made(name, pb.networks.rank_one)
    params = factored.init(jax.random.key(0))
    before = network.apply(network.init(jax.random.key(0)), inputs)
    np.testing.assert_allclose(factored.apply(params, inputs), before, rtol=1e-5, atol=1e-6)

    keys = iter(jax.random.split(jax.random.key(5), 10))
    params["factors"] = jax.tree.map(
        lambda leaf: jax.random.normal(next(keys), leaf.shape), params["factors"]
    )

    def change(path, leaf, factor):
        ins, outs = axes(name, leaf.ndim)
        return (
            leaf
            * (1 + spread(factor["input"], ins, leaf.ndim))
            * (1 + spread(factor["output"], outs, leaf.ndim))
        )

    wanted = network.apply(with_kernels(params, change), inputs)
    np.testing.assert_allclose(factored.apply(params, inputs), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", [name for name in NETWORKS if "groups" not in name])
def test_low_rank_is_a_kernel_plus_a_thin_product(name):
    network, factored, inputs = made(
        name, lambda network, pattern, inputs: pb.networks.low_rank(network, pattern, 2, inputs=inputs)
    )
    params = factored.init(jax.random.key(0))
    before = network.apply(params["network"], inputs)
    np.testing.assert_allclose(factored.apply(params, inputs), before, rtol=1e-5, atol=1e-6)

    keys = iter(jax.random.split(jax.random.key(5), 10))
    params["factors"] = jax.tree.map(
        lambda leaf: jax.random.normal(next(keys), leaf.shape), params["factors"]
    )

    def change(path, leaf, factor):
        _, outs = axes(name, leaf.ndim)
        product = jnp.tensordot(factor["input"], factor["output"], 1) / np.sqrt(factor["input"].size)
        kept = [axis for axis in range(leaf.ndim) if axis not in outs]
        return leaf + jnp.transpose(product, np.argsort([*kept, *outs]))

    wanted = network.apply(with_kernels(params, change), inputs)
    np.testing.assert_allclose(factored.apply(params, inputs), wanted, rtol=1e-4, atol=1e-4)


def test_factors_start_spread_and_with_signs_where_asked():
    network = pb.networks.rank_one(
        pb.mlp([400, 300, 1]), "layers/*/kernel", spread=0.1, signs="layers/0/kernel"
    )
    factors = network.init(jax.random.key(0))["factors"]
    first, second = 1 + factors["layers/0/kernel"]["input"], 1 + factors["layers/1/kernel"]["input"]
    assert 150 < (first < 0).sum() < 250
    assert (second > 0).all()
    assert np.isclose(np.abs(first).std(), 0.1, rtol=0.2)
    assert np.isclose(second.std(), 0.1, rtol=0.2)


REFUSED = {
    "enters 'add'": ("b", lambda p, x: x @ p["w"] + p["b"]),
    "enters more than one product": ("w", lambda p, x: jnp.tanh(x @ p["w"]) @ p["w"]),
    "enters 'gather'": ("w", lambda p, x: p["w"][jnp.arange(3)]),
    "enters 'scan'": ("w", lambda p, x: jax.lax.scan(lambda c, _: (c @ p["w"], None), x, None, 2)[0]),
    "enters no product": ("b", lambda p, x: x @ p["w"]),
    "is returned as it is": ("w", lambda p, x: p["w"].T),
    "together with 'w'": (["v", "w"], lambda p, x: p["v"] @ p["w"]),
    "sums over its axes": ("u", lambda p, x: jnp.einsum("nd,hdk->nhk", x, p["u"])),
    "enters 'dot_general'": ("u", lambda p, x: jnp.einsum("hnd,hdk->hnk", x[None], p["u"])),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_other_weights_are_refused_by_name(reason):
    path, apply = REFUSED[reason]
    params = {"w": jnp.eye(4), "b": jnp.ones((1, 4)), "u": jnp.ones((1, 4, 2)), "v": jnp.eye(4)}
    network = pb.networks.rank_one(pb.from_params(params, apply), path)
    with pytest.raises(ValueError, match=rf"pattern: .*'{path[0]}'.*{reason}"):
        jax.eval_shape(network.apply, network.init(jax.random.key(0)), X)
    if not reason.startswith("sums"):
        with pytest.raises(ValueError, match=reason):
            pb.networks.rank_one(pb.from_params(params, apply), path, inputs=X)


def test_bad_arguments():
    network = pb.mlp([4, 5, 1])
    with pytest.raises(ValueError, match=r"pattern: the pattern 'layers/0/kernels' matches no weight"):
        pb.networks.rank_one(network, "layers/0/kernels")
    with pytest.raises(ValueError, match="signs: the pattern 'layers/1/kernel' matches no weight"):
        pb.networks.rank_one(network, "layers/0/kernel", signs="layers/1/kernel")
    with pytest.raises(ValueError, match="spread is a standard deviation"):
        pb.networks.rank_one(network, "layers/0/kernel", spread=-1.0)
    with pytest.raises(ValueError, match="rank must be a whole number"):
        pb.networks.low_rank(network, "layers/0/kernel", 0)
    with pytest.raises(ValueError, match="holds int32 numbers"):
        pb.networks.rank_one(pb.from_params({"w": jnp.arange(3)}, lambda p, x: x), "w")
    with pytest.raises(ValueError, match="single number"):
        pb.networks.rank_one(pb.from_params({"w": jnp.ones(())}, lambda p, x: x), "w")
    grouped = pb.networks.low_rank(NETWORKS["nnx, groups"][0](), "kernel", 2)
    with pytest.raises(ValueError, match="enters a convolution of 2 groups"):
        jax.eval_shape(grouped.apply, grouped.init(jax.random.key(0)), IMAGES)


def test_no_kernel_is_made_for_a_particle():
    """Memory and work of a gradient grow with particles × activations, not particles × kernel."""
    width, num_particles = 256, 32
    plain = pb.mlp([width, width, 1])
    network = pb.networks.rank_one(plain, "layers/0/kernel")
    inputs = jnp.ones((2, width))

    def changed(params, x):  # what a kernel for each particle costs
        factor = params["factors"]["layers/0/kernel"]
        first, *rest = params["network"]["layers"]
        kernel = first["kernel"] * (1 + factor["input"])[:, None] * (1 + factor["output"])[None, :]
        return plain.apply({"layers": [first | {"kernel": kernel}, *rest]}, x)

    def cost(apply):
        model = pb.partial_bnn(network._replace(apply=apply), "factors/**", pb.gaussian())
        phi, psi = jax.eval_shape(model.init, jax.random.key(0))
        cloud = jax.ShapeDtypeStruct((num_particles, *phi.shape), phi.dtype)

        def total(cloud, psi):
            return jax.vmap(lambda phi: model.outputs(phi, psi, inputs).sum())(cloud).sum()

        program = jax.jit(jax.grad(total, (0, 1))).lower(cloud, psi).compile()
        return program.memory_analysis().temp_size_in_bytes, program.cost_analysis()["flops"]

    kernels = num_particles * width * width
    memory, work = cost(network.apply)
    naive_memory, naive_work = cost(changed)
    assert naive_memory > 4 * kernels
    assert memory < 4 * kernels / 4
    assert work < 1.2 * 3 * 2 * 2 * kernels  # three products of two rows
    assert naive_work > 1.3 * work


def test_saved_and_loaded(tmp_path):
    network = pb.networks.rank_one(pb.mlp([4, 5, 1]), ["layers/*/kernel"], signs="layers/0/kernel")
    network = pb.networks.low_rank(network, "network/layers/1/kernel", 2)
    model = pb.partial_bnn(network, "**/factors/**", pb.gaussian())
    algorithm = pb.map_estimate(model)
    posterior = algorithm.posterior(algorithm.init(jax.random.key(0)))
    pb.save(tmp_path / "saved", model, posterior)
    loaded = pb.load(tmp_path / "saved")
    before, after = (
        pb.predict(m, p, X).mean for m, p in ((model, posterior), (loaded.model, loaded.posterior))
    )
    np.testing.assert_array_equal(before, after)

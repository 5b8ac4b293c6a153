"""Which weights are stochastic: selections, their algebra, and the exact round trip."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import partialbayes as pb
from partialbayes.model._batch import full_batch

NETWORK = pb.mlp([2, 3, 3, 1])
PARAMS = NETWORK.init(jax.random.key(0))


def chosen(selection, params=PARAMS):
    """{path: number of weights chosen}, where there are any."""
    split = pb.model.split_weights(params, selection)
    pairs = zip(split.leaves, split.masks, strict=True)
    return {leaf.path: int(mask.sum()) for leaf, mask in pairs if mask.any()}


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        ("layers/2/**", {"layers/2/bias": 1, "layers/2/kernel": 3}),
        ("**/bias", {"layers/0/bias": 3, "layers/1/bias": 3, "layers/2/bias": 1}),
        (["layers/0/bias", "layers/2/bias"], {"layers/0/bias": 3, "layers/2/bias": 1}),
        (lambda leaf: leaf.shape == (3, 3), {"layers/1/kernel": 9}),
        (pb.subsets.layer(0), {"layers/0/bias": 3, "layers/0/kernel": 6}),
        (pb.subsets.layer(1, -1) & ~pb.subsets.biases(), {"layers/1/kernel": 9, "layers/2/kernel": 3}),
        (pb.subsets.output_layer(), {"layers/2/bias": 1, "layers/2/kernel": 3}),
        (pb.subsets.biases() & pb.subsets.layer(0), {"layers/0/bias": 3}),
        (~pb.subsets.glob("**/kernel"), {"layers/0/bias": 3, "layers/1/bias": 3, "layers/2/bias": 1}),
        (
            pb.subsets.glob("layers/0/bias")
            | pb.subsets.mask({"layers/2/kernel": np.array([[True], [False], [True]])}),
            {"layers/0/bias": 3, "layers/2/kernel": 2},
        ),
    ],
)
def test_selections(selection, expected):
    assert chosen(selection) == expected


def test_layers_are_counted_where_their_order_is_known():
    params = {"stem": {"kernel": jnp.ones(2)}, "body": {"kernel": jnp.ones(3)}, "a": jnp.ones(4)}
    network = pb.from_params(params, lambda params, x: x, ordered=True)
    assert pb.partial_bnn(network, pb.subsets.layer(0), pb.gaussian()).split.dim == 2
    assert pb.partial_bnn(network, pb.subsets.output_layer(), pb.gaussian()).split.dim == 4
    in_a_list = [{"kernel": jnp.ones(2)}, {"kernel": jnp.ones(3)}]
    assert chosen(pb.subsets.layer(1), in_a_list) == {"1/kernel": 3}
    with pytest.raises(
        ValueError, match=r"which JAX sorts by name.*from_params\(\.\.\., ordered=True\)"
    ):
        chosen(pb.subsets.layer(0), params)


def test_normalization_scales():
    params = {"norm": {"scale": jnp.ones(3), "bias": jnp.ones(3)}, "dense": {"kernel": jnp.ones((3, 3))}}
    assert chosen(pb.subsets.normalization_scales(), params) == {"norm/scale": 3}
    equinox_like = {"norm": {"weight": jnp.ones(3)}, "dense": {"weight": jnp.ones((3, 3))}}
    assert chosen(pb.subsets.normalization_scales(), equinox_like) == {"norm/weight": 3}
    with pytest.raises(ValueError, match="no weight of this network is a normalization scale"):
        chosen(pb.subsets.normalization_scales())


def test_random_fraction_is_a_share_and_reproducible():
    half = pb.model.split_weights(PARAMS, pb.subsets.random_fraction(0.5, seed=3))
    again = pb.model.split_weights(PARAMS, pb.subsets.random_fraction(0.5, seed=3))
    other = pb.model.split_weights(PARAMS, pb.subsets.random_fraction(0.5, seed=4))
    assert half.dim == 12  # of 25, rounded to even
    assert all(np.array_equal(a, b) for a, b in zip(half.masks, again.masks, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(half.masks, other.masks, strict=True))
    assert (
        chosen(pb.subsets.random_fraction(1e-6)).values() == {1}
        or sum(chosen(pb.subsets.random_fraction(1e-6)).values()) == 1
    )


def test_largest_by_magnitude():
    params = {"a": jnp.array([1.0, -5.0, 2.0]), "b": jnp.array([[3.0, -0.1]]), "n": jnp.array([99])}
    split = pb.model.split_weights(params, pb.subsets.largest(2, params))
    assert [mask.tolist() for mask in split.masks] == [[False, True, False], [[True, False]], [False]]
    assert chosen(pb.subsets.largest(1, params, among="b"), params) == {"b": 1}
    with pytest.raises(ValueError, match="count is 9, but there are only 5"):
        chosen(pb.subsets.largest(9, params), params)
    with pytest.raises(ValueError, match="params do not look like those"):
        chosen(pb.subsets.largest(2, {"a": jnp.ones(3)}), params)


def test_gradient_variance_is_that_of_single_examples():
    """Linear regression, where the gradient of example i is (y_i − f_i) x_i."""
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(40, 3)) * np.array([0.1, 3.0, 1.0])
    targets = rng.normal(size=40)
    params = {"w": jnp.array([0.3, -0.2, 0.5]), "step": jnp.array(3)}
    network = pb.from_params(params, lambda p, x: x @ p["w"])
    variances = ((targets - inputs @ np.asarray(params["w"]))[:, None] * inputs).var(axis=0)
    for count in (1, 2):
        subset = pb.subsets.most_variable_gradient(
            count, network, params, pb.gaussian(), (inputs, targets)
        )
        mask = pb.partial_bnn(network, subset, pb.gaussian()).split.masks[1]
        assert set(np.flatnonzero(mask)) == set(np.argsort(-variances)[:count])


def test_a_gradient_that_is_large_but_the_same_for_all_examples_does_not_vary():
    inputs = np.array([[10.0, 1.0], [10.0, -1.0], [10.0, 1.0], [10.0, -1.0]])
    network = pb.from_params({"w": jnp.zeros(2)}, lambda params, x: x @ params["w"])
    subset = pb.subsets.most_variable_gradient(
        1, network, {"w": jnp.zeros(2)}, pb.gaussian(), (inputs, np.ones(4))
    )
    assert pb.partial_bnn(network, subset, pb.gaussian()).split.masks[0].tolist() == [False, True]


def test_everything_and_one_scalar():
    x = jnp.linspace(-1, 1, 8)[:, None]
    network = pb.mlp([1, 2, 1])
    for selection, dim in (("**", 7), (pb.subsets.mask({"layers/1/bias": np.array([True])}), 1)):
        model = pb.partial_bnn(network, selection, pb.gaussian())
        assert model.split.dim == dim
        phi, psi = model.init(jax.random.key(0))
        assert phi.shape == (dim,)
        assert (psi.network == {}) == (dim == 7)
        assert model.log_likelihood(phi, psi, full_batch(x, x[:, 0])).shape == (8,)


@st.composite
def trees(draw):
    """A parameter tree of random shapes, order and dtypes, with a mask for every leaf."""
    names = draw(st.permutations(["a", "b", "c", "d"]))
    seed = draw(st.integers(0, 2**31))
    rng = np.random.default_rng(seed)
    tree, masks = {}, {}
    for name in names[: draw(st.integers(1, 4))]:
        shape = draw(st.sampled_from([(), (3,), (0,), (2, 3), (2, 1, 2)]))
        dtype = draw(st.sampled_from(["float32", "bfloat16"]))
        value = jnp.asarray(rng.normal(size=shape), dtype)
        nested = draw(st.booleans())
        tree[name] = [value] if nested else value
        masks[f"{name}/0" if nested else name] = rng.random(shape) < draw(
            st.sampled_from([0.0, 0.5, 1.0])
        )
    return tree, masks


@settings(max_examples=40, deadline=None)
@given(trees(), st.sampled_from([-1, 0]))
def test_split_and_merge_round_trip_exactly(case, output_axis):
    tree, masks = case
    if not any(mask.any() for mask in masks.values()):
        return
    split = pb.model.split_weights(tree, pb.subsets.mask(masks), output_axis=output_axis)
    phi, psi = split.flatten(tree)
    assert phi.shape == (split.dim,) == (sum(int(mask.sum()) for mask in masks.values()),)
    back = split.merge(phi, psi)
    assert jax.tree.structure(back) == jax.tree.structure(tree)
    for found, expected in zip(jax.tree.leaves(back), jax.tree.leaves(tree), strict=True):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(np.asarray(found, float), np.asarray(expected, float))
    # What φ holds is what the masks say, outputs last in every kernel; a permuted tree gives the same.
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    values = {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}
    flat = []
    for leaf in split.leaves:
        value, mask = np.asarray(values[leaf.path], float), masks[leaf.path]
        if output_axis == 0 and value.ndim > 1:
            axes = (*range(2, value.ndim), 1, 0)
            value, mask = value.transpose(axes), mask.transpose(axes)
        flat.append(value[mask].ravel())
    np.testing.assert_array_equal(np.asarray(phi, float), np.concatenate(flat))
    permuted = {name: tree[name] for name in reversed(tree)}
    again = pb.model.split_weights(permuted, pb.subsets.mask(masks), output_axis=output_axis)
    np.testing.assert_array_equal(again.flatten(permuted)[0], phi)


def test_layer_two_comes_before_layer_ten():
    params = {"layers": {str(number): {"w": jnp.full(1, float(number))} for number in range(12)}}
    np.testing.assert_array_equal(pb.model.split_weights(params, "**").flatten(params)[0], range(12))


def test_describe_tells_the_memory_of_the_particles():
    split = pb.model.split_weights(PARAMS, "layers/0/*")
    assert split.describe().endswith("1000 particles take 40.0 kB")  # (9 + 1 log-weight) float32
    assert split.describe(num_particles=10**6).endswith("1000000 particles take 40.0 MB")
    assert split.describe(num_particles=1).endswith("1 particles take 40 bytes")
    partly = pb.subsets.mask({"layers/0/bias": np.array([True, False, False])})
    assert "phi (1) + psi" in pb.model.split_weights(PARAMS, partly).describe()


def test_sampled_noise_is_part_of_phi():
    model = pb.partial_bnn(NETWORK, pb.subsets.layer(-1), pb.gaussian(pb.sampled(0.5)))
    assert model.split.dim == 5
    assert "likelihood/variance" in model.split.describe()
    phi, psi = model.init(jax.random.key(0))
    np.testing.assert_allclose(phi[-1], np.log(0.5), rtol=1e-6)
    np.testing.assert_allclose(model.parameters(phi, psi, jnp.ones((2, 2))).variance, 0.5, rtol=1e-6)
    merged = jax.tree.leaves(model.split.merge(phi, psi.network))
    assert all(np.array_equal(a, b) for a, b in zip(merged, jax.tree.leaves(PARAMS), strict=True))


def test_integers_are_carried_frozen():
    params = {"count": jnp.array([2, 3]), "w": jnp.ones(2), "flag": jnp.array(True), "v": jnp.ones(2)}

    def apply(params, x):
        return x @ (params["w"] * params["count"] + params["v"])

    model = pb.partial_bnn(pb.from_params(params, apply), "w", pb.gaussian())
    assert "frozen" in model.split.describe()
    x = jnp.ones((4, 2))
    trained = pb.fit(pb.ohsmc(model, num_particles=3), (x, x[:, 0]), epochs=1)
    assert sorted(trained.posterior.psi.network) == ["v"]
    with pytest.raises(
        ValueError, match=r"selects 'count', which holds int32 numbers; .*glob\('count'\)"
    ):
        pb.model.split_weights(params, ["w", "count"])


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        (
            pb.subsets.mask({"layers/0/bias": np.ones(4, bool)}),
            r"mask of 'layers/0/bias' has shape \(4,\), but .* \(3,\)",
        ),
        (
            pb.subsets.mask({"layers/9/bias": np.ones(3, bool)}),
            "no such weight; the nearest paths are 'layers/",
        ),
        (pb.subsets.layer(7), "there is no layer 7; the network has 3: 'layers/0'"),
        ("layers/0/bais", "matches no weight; the nearest paths are 'layers/0/bias'"),
        (pb.subsets.glob("layers/0/*") & pb.subsets.glob("layers/1/*"), "selects no weight at all"),
    ],
)
def test_errors(selection, message):
    with pytest.raises(ValueError, match=message):
        pb.model.split_weights(PARAMS, selection)


def test_errors_when_built():
    with pytest.raises(ValueError, match="holds float64 numbers; it must be boolean"):
        pb.subsets.mask({"layers/0/bias": np.ones(3)})
    with pytest.raises(ValueError, match="fraction must be above 0"):
        pb.subsets.random_fraction(0.0)
    with pytest.raises(ValueError, match="two weights have the path 'a/b'"):
        pb.model.split_weights({"a/b": jnp.ones(1), "a": {"b": jnp.ones(1)}}, "a/b")


def test_most_uncertain_is_the_largest_variance_of_a_diagonal_posterior():
    """For y = x w + noise the information about w_i is Σ x_i² / σ² times the squared residual."""
    network = pb.from_params({"w": jnp.zeros(3)}, lambda params, x: x @ params["w"])
    x = jnp.asarray([[1.0, 0.1, 0.0], [1.0, -0.1, 0.0]])
    data = (x, jnp.asarray([1.0, -2.0]))

    def chosen(count, **settings):
        subset = pb.subsets.most_uncertain(
            count, network, {"w": jnp.zeros(3)}, pb.gaussian(), data, **settings
        )
        return pb.partial_bnn(network, subset, pb.gaussian()).split.masks[0].tolist()

    assert chosen(1) == [False, False, True]
    assert chosen(2) == [False, True, True]
    with pytest.raises(ValueError, match="prior_scale must be positive"):
        chosen(1, prior_scale=0.0)

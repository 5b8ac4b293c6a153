"""A trained network made Bayesian: the cut before its random weights, and the one call."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import partialbayes as pb
from partialbayes.errors import DepartureWarning
from partialbayes.pretrained import _strangeness
from partialbayes.pretrained._bayesianize import _is_linear
from partialbayes.pretrained._choice import widest_of_the_best
from partialbayes.pretrained._strangeness import Watcher

RNG = np.random.default_rng(0)


class ConvNet(nnx.Module):
    def __init__(self, rngs):
        self.conv = nnx.Conv(1, 3, (3, 3), rngs=rngs)
        self.norm = nnx.BatchNorm(3, rngs=rngs)
        self.dense = nnx.Linear(48, 5, rngs=rngs)
        self.head = nnx.Linear(5, 2, rngs=rngs)

    def __call__(self, x):
        x = nnx.relu(self.norm(self.conv(x)))
        return self.head(nnx.gelu(self.dense(x.reshape(x.shape[0], -1))))


@pytest.mark.parametrize(
    ("stochastic", "freeze", "shapes"),
    [
        ("head/*", "**", [(5,)]),
        ("dense/*", "**", [(48,)]),
        ("head/*", ("conv/*", "norm/*"), [(48,)]),  # the trained dense layer is no part of the trunk
        ("conv/bias", "**", [(4, 4, 3)]),  # its convolution is
    ],
)
def test_the_head_of_features_is_the_model_of_inputs(stochastic, freeze, shapes, tmp_path):
    network = pb.from_nnx(ConvNet(nnx.Rngs(0)))
    model = pb.partial_bnn(network, stochastic, pb.categorical(), freeze=freeze)
    x = RNG.normal(size=(7, 4, 4, 1)).astype(np.float32)
    trunk = pb.model.split_trunk(model, x)
    features = trunk.features(x, rows=3)
    assert [feature.shape for feature in features] == [(7, *shape) for shape in shapes]
    stored = trunk.features(x, rows=4, folder=tmp_path / "features")
    assert all(isinstance(feature, np.memmap) for feature in stored)
    phi, psi = model.init(jax.random.key(1))
    wanted = model.outputs(phi + 1.0, psi, jnp.asarray(x))
    for kept in (features, stored):
        np.testing.assert_allclose(trunk.head.outputs(phi + 1.0, psi, kept), wanted, atol=1e-5)


def test_inputs_by_name_and_axes_that_move():
    def apply(params, inputs):
        hidden = jnp.swapaxes(jnp.tanh(inputs["tokens"] @ params["a"]), 0, 1)  # (time, row, feature)
        hidden = hidden * jnp.swapaxes(inputs["mask"], 0, 1)[:, :, None]
        return (hidden @ params["b"]).sum(0)

    weights = {"a": jnp.ones((2, 3)), "b": jnp.asarray(RNG.normal(size=(3, 2)), jnp.float32)}
    model = pb.partial_bnn(pb.from_params(weights, apply), "b", pb.categorical(), freeze="**")
    inputs = {"tokens": RNG.normal(size=(5, 4, 2)), "mask": np.ones((5, 4))}
    trunk = pb.model.split_trunk(model, inputs)
    (features,) = trunk.features(inputs)
    assert features.shape == (5, 4, 3)


def test_rows_that_see_each_other_are_refused():
    def apply(params, inputs):
        return (inputs - inputs.mean(0, keepdims=True)) @ params["w"]

    network = pb.from_params({"w": jnp.ones((2, 1))}, apply)
    model = pb.partial_bnn(network, "w", pb.gaussian())
    with pytest.raises(ValueError, match="depend on the other rows"):
        pb.model.split_trunk(model, RNG.normal(size=(5, 2)))


X = RNG.normal(size=(120, 2)).astype(np.float32)
LABELS = (X[:, 0] > 0).astype(int)
WEIGHTS = {"trunk": jnp.eye(2), "head": jnp.array([[-3.0, 3.0], [0.0, 0.0]])}
NETWORK = pb.from_params(WEIGHTS, lambda params, x: x @ params["trunk"] @ params["head"])
LAPLACE = pb.samplers.laplace(num_particles=20, num_steps=20)


def test_one_call_compares_with_the_network_as_it_was_and_keeps_the_trunk():
    result = pb.bayesianize(NETWORK, (X, LABELS), sampler=LAPLACE, outside=10.0 * X, widths=(0.1, 0.5))
    assert set(result.before) < set(result.after)
    assert {"nlpd", "accuracy", "ece", "auroc_entropy"} <= set(result.before)
    assert {"auroc_mutual_information", "auroc_strangeness"} <= set(result.after)
    far = result.strangeness(np.array([[0.0, 9.0], [1.0, 0.0]]))
    assert far[0] > far[1]  # no class claims the one, and its features are unlikely
    assert len(result.widths) == 2
    assert result.width in result.widths
    own = pb.predict(result.model, result.posterior, X).probabilities
    np.testing.assert_allclose(own, result.predict(X).probabilities, atol=1e-5)
    np.testing.assert_array_equal(result.model.split.frozen["trunk"], WEIGHTS["trunk"])
    np.testing.assert_allclose(result.departure.nlpd_after, result.after["nlpd"], rtol=1e-4)
    assert "as it was" in str(result)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": (X, LABELS[:-1])}, "data has 120 rows of inputs, but its targets"),
        ({"validation": (X[:1], LABELS[:1])}, "validation has 1 row"),
        ({"data": (X[:2], LABELS[:2])}, "too few to hold some out"),
        ({"data": (X, np.array(["no", "yes"])[LABELS])}, "data has targets of type <U3; pass numbers"),
        ({"stochastic": "tail"}, "stochastic"),
    ],
)
def test_errors_say_what_to_do(changes, message):
    with pytest.raises(ValueError, match=message):
        pb.bayesianize(NETWORK, **({"data": (X, LABELS), "sampler": LAPLACE} | changes))


def test_strangeness_looks_at_the_features_before_the_last_two_layers(monkeypatch):
    network = pb.from_nnx(ConvNet(nnx.Rngs(0)))
    model = pb.partial_bnn(network, "head/*", pb.categorical(), freeze="**")
    images = RNG.normal(size=(7, 4, 4, 1)).astype(np.float32)
    trunk = pb.model.split_trunk(model, images)
    watcher = Watcher(network, model.likelihood, trunk, images, rows=3)
    phi, psi = model.init(jax.random.key(0))
    seen = watcher(images)
    assert seen.shape == (7, 48)
    weights = network.init(jax.random.key(0))
    dense = {name: np.asarray(value) for name, value in weights["dense"].items()}
    hidden = nnx.gelu(jnp.asarray(seen @ dense["kernel"] + dense["bias"]))
    found = trunk.head.outputs(phi, psi, (hidden,))
    np.testing.assert_allclose(found, model.outputs(phi, psi, jnp.asarray(images)), atol=1e-5)
    monkeypatch.setattr(_strangeness, "_MOST_FEATURES", 47)
    assert Watcher(network, model.likelihood, trunk, images, rows=3).trunk is trunk
    plain = pb.from_params(WEIGHTS, NETWORK.apply)  # a dictionary: which layer is last is not known
    trunk = pb.model.split_trunk(pb.partial_bnn(plain, "head", pb.categorical(), freeze="**"), X)
    assert Watcher(plain, pb.categorical(), trunk, X, 50).trunk is trunk


def test_many_features_are_averaged_over_positions(monkeypatch):
    monkeypatch.setattr(_strangeness, "_MOST_FEATURES", 10)
    for axis, shape in ((-1, (5, 2, 2, 3)), (0, (5, 3, 2, 2))):
        network = pb.types.Network(NETWORK.init, NETWORK.apply, output_axis=axis)
        trunk = pb.model.split_trunk(pb.partial_bnn(network, "head", pb.categorical(), freeze="**"), X)
        watcher = Watcher(network, pb.categorical(), trunk, X, rows=2)
        array = RNG.normal(size=shape)
        places = (1, 2) if axis == -1 else (2, 3)
        np.testing.assert_allclose(watcher._flat([array]), array.mean(places), rtol=1e-6)


def test_a_network_that_ends_in_a_softmax_is_refused():
    ends = NETWORK._replace(apply=lambda params, x: jax.nn.softmax(NETWORK.apply(params, x)))
    with pytest.raises(ValueError, match="probabilities already"):
        pb.bayesianize(ends, (X, LABELS), sampler=LAPLACE)


def test_a_linear_head_is_sampled_by_moves_from_its_gaussian_and_others_by_chains():
    def bent(params, x):
        return jnp.tanh(x @ params["trunk"]) @ params["head"]

    for apply, stochastic, linear in ((bent, "head", True), (bent, "trunk", False)):
        model = pb.partial_bnn(pb.from_params(WEIGHTS, apply), stochastic, pb.categorical())
        start = pb.training.pretrained_posterior(model._replace(pretrained=True))
        head = pb.model.split_trunk(model, X)
        assert _is_linear(head.head, start, head.features(X)) is linear


def test_a_network_that_gets_worse_is_warned_of():
    ruinous = pb.samplers.importance_sampling(num_particles=1)  # one draw of a wide prior
    with pytest.warns(DepartureWarning), pytest.warns(pb.errors.MixingWarning):
        pb.bayesianize(NETWORK, (X, LABELS), sampler=ruinous, width=50.0, validation=(X, LABELS))


def test_training_keeps_the_width_and_the_likelihood_and_starts_from_the_weights(tmp_path):
    result = pb.bayesianize(
        NETWORK,
        (X, LABELS),
        width=0.5,
        likelihood=pb.categorical(),
        cache=tmp_path,
        train=lambda model: pb.ohsmc(model, num_particles=8, kernel=pb.kernels.random_walk(1e-4)),
        epochs=1,
        batch_size=50,
    )
    np.testing.assert_allclose(np.exp(result.posterior.psi.prior), 0.5, rtol=1e-6)
    values = np.asarray(result.posterior.particles.values)
    assert values.shape == (8, 4)
    assert np.abs(values - np.array([-3.0, 3.0, 0.0, 0.0])).max() < 0.5
    assert result.temperature == 1.0
    assert np.load(tmp_path / "train" / "features-0.npy").shape == (96, 2)


def test_widths_the_data_cannot_tell_apart_give_the_widest():
    noise = RNG.normal(size=1000)
    ends = [noise, noise + 0.01 * RNG.normal(size=1000), noise + 0.0001, noise - 1.0]
    assert widest_of_the_best(ends) == 2
    assert widest_of_the_best([noise, noise - 0.1]) == 0

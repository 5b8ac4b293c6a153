"""PyTorch modules as networks; skipped where torch or a bridge is not installed."""

import re
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partialbayes as pb

torch = pytest.importorskip("torch", reason="torch is not installed: make test-torch")
pytest.importorskip("torchax", reason="torchax is not installed: make test-torch")
nn = torch.nn
RNG = np.random.default_rng(0)


class ConvNet(nn.Module):
    """Convolution, batch statistics, dropout, a head."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(4 * 6 * 6, 3)

    def forward(self, x):
        return self.head(self.drop(nn.functional.relu(self.norm(self.conv(x))).flatten(1)))


class Attention(nn.Module):
    """Tokens with their mask, as a dictionary or two arguments."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.block = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.head = nn.Linear(8, 2)

    def forward(self, tokens, mask):
        hidden = self.block(self.embed(tokens), src_key_padding_mask=mask)
        return {"logits": self.head(hidden.mean(1))}


def trained_convnet():
    torch.manual_seed(0)
    module = ConvNet()
    with torch.no_grad():  # a pass in training mode fills the batch statistics
        module(torch.randn(16, 1, 8, 8))
    return module


IMAGES = RNG.normal(size=(5, 1, 8, 8)).astype(np.float32)


def test_outputs_are_those_of_the_module_in_evaluation_mode_and_it_is_not_touched():
    module = trained_convnet()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    network = pb.from_torch(module)
    found = network.apply(network.init(jax.random.key(0)), IMAGES)
    assert module.training
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    with torch.no_grad():
        wanted = module.eval()(torch.tensor(IMAGES)).numpy()
    np.testing.assert_allclose(found, wanted, atol=2e-6)
    last = pb.networks.with_layout(network, data="NHWC", own="NCHW")
    turned = last.apply(last.init(jax.random.key(0)), jnp.asarray(IMAGES.transpose(0, 2, 3, 1)))
    np.testing.assert_allclose(turned, wanted, atol=2e-6)


def test_names_are_paths_in_the_order_of_the_module_and_its_weights_are_the_start():
    network = pb.from_torch(trained_convnet())
    model = pb.partial_bnn(network, pb.subsets.output_layer(), pb.categorical(), freeze="**")
    assert model.pretrained
    assert [
        leaf.path for leaf, mask in zip(model.split.leaves, model.split.masks, strict=True) if mask.any()
    ] == [
        "head/bias",
        "head/weight",
    ]
    scales = pb.partial_bnn(network, pb.subsets.normalization_scales(), pb.categorical())
    assert scales.split.dim == 4
    fan_in = {leaf.path: leaf.fan_in for leaf in model.split.leaves}
    assert (fan_in["head/weight"], fan_in["conv/weight"]) == (144, 9)


def test_it_trains_and_is_saved_and_loaded_with_the_module_passed_in(tmp_path):
    module = trained_convnet()
    labels = RNG.integers(0, 3, size=5)
    model = pb.partial_bnn(pb.from_torch(module), "norm/*", pb.categorical())
    algorithm = pb.ohsmc(model, num_particles=3, kernel=pb.kernels.random_walk(1e-4))
    trained = pb.fit(algorithm, (IMAGES, labels), epochs=2)
    assert np.isfinite(trained.history.metrics["loss"]).all()
    pb.save(tmp_path / "model", model, trained.posterior)
    saved = pb.load(tmp_path / "model", network=pb.from_torch(module))
    first, second = (
        pb.predict(m, p, IMAGES).probabilities
        for m, p in ((model, trained.posterior), (saved.model, saved.posterior))
    )
    np.testing.assert_array_equal(first, second)


def test_tokens_with_masks_by_name_and_in_order():
    torch.manual_seed(0)
    module = Attention()
    network = pb.from_torch(module, output=lambda result: result["logits"])
    tokens = RNG.integers(0, 11, size=(4, 6))
    mask = np.arange(6)[None, :] >= np.array([6, 4, 5, 2])[:, None]
    with torch.no_grad():
        wanted = module.eval()(torch.tensor(tokens), torch.tensor(mask))["logits"].numpy()
    params = network.init(jax.random.key(0))
    by_name = network.apply(params, {"tokens": jnp.asarray(tokens), "mask": jnp.asarray(mask)})
    np.testing.assert_allclose(by_name, wanted, atol=2e-6)
    in_order = network.apply(params, (jnp.asarray(tokens), jnp.asarray(mask)))
    np.testing.assert_allclose(in_order, wanted, atol=2e-6)


class Noisy(nn.Linear):
    """Draws random numbers whenever it is called."""

    def forward(self, x):
        return super().forward(x) + torch.rand_like(x[:, :1])


class Odd(nn.Linear):
    """Calls an operator that no bridge has."""

    def forward(self, x):
        return torch.ops.aten._ctc_loss(
            super().forward(x)[:, None], torch.ones_like(x[:1]).int(), [4], [3], 0, False
        )[0]


class Loose(nn.Linear):
    """Holds a tensor that is no buffer."""

    def __init__(self):
        super().__init__(3, 2)
        self.shift = torch.ones(2)

    def forward(self, x):
        return super().forward(x) + self.shift


class Branch(nn.Linear):
    """Does something else where its inputs are negative."""

    def forward(self, x):
        return super().forward(x if x.sum() > 0 else -x)


class Leaves(nn.Linear):
    """Leaves PyTorch on the way."""

    def forward(self, x):
        return super().forward(x) * float(x.max().item())


class Positions(nn.Linear):
    """Makes a tensor as it goes."""

    def forward(self, x):
        return super().forward(x + torch.arange(3.0))


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_a_compiled_module_is_that_which_was_compiled():
    module = trained_convnet()
    first, second = (
        pb.from_torch(one).init(jax.random.key(0)) for one in (module, torch.compile(module))
    )
    assert jax.tree.structure(first) == jax.tree.structure(second)


def test_no_warning_of_wide_integers_reaches_the_user():
    module = nn.Sequential(nn.Upsample(scale_factor=2), nn.AdaptiveAvgPool2d(3), nn.Conv2d(1, 2, 3))
    network = pb.from_torch(module)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        network.apply(network.init(jax.random.key(0)), IMAGES)


def test_errors_say_what_to_do():
    for module, message in (
        (Noisy(3, 2), "draws random numbers"),
        (Odd(3, 2), "operator that torchax"),
        (Loose(), "register_buffer"),
    ):
        network = pb.from_torch(module)
        with pytest.raises(ValueError, match=message):
            network.apply(network.init(jax.random.key(0)), jnp.ones((4, 3)))
    for module in (Branch(3, 2), Leaves(3, 2)):
        network = pb.from_torch(module)
        with pytest.raises(ValueError, match="decides by the values of its inputs"):
            jax.jit(network.apply)(network.init(jax.random.key(0)), jnp.ones((4, 3)))
    network = pb.from_torch(Positions(3, 2))  # this is fine
    assert network.apply(network.init(jax.random.key(0)), jnp.ones((4, 3))).shape == (4, 2)
    with pytest.raises(ValueError, match="call it once"):
        pb.from_torch(nn.LazyLinear(2))
    with (
        pytest.warns(DeprecationWarning, match="torch.jit"),
        pytest.raises(TypeError, match="scripted or traced"),
    ):
        pb.from_torch(torch.jit.script(nn.Linear(3, 2)))
    with pytest.raises(ValueError, match="no weights"):
        pb.from_torch(nn.ReLU())
    with pytest.raises(ValueError, match="bridge must be"):
        pb.from_torch(nn.Linear(1, 1), bridge="onnx")


def test_the_readme_block_runs_as_it_is_written(capsys):
    text = (Path(__file__).parents[2] / "README.md").read_text()
    (block,) = [b for b in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "from_torch" in b]
    names = {}
    with jax.debug_key_reuse(False), warnings.catch_warnings():
        warnings.simplefilter("ignore", pb.errors.MixingWarning)
        exec(compile(block, "README.md", "exec"), names)  # ours
    np.testing.assert_allclose(names["probabilities"].sum(-1), 1.0, rtol=1e-5)
    assert "nlpd" in capsys.readouterr().out


def test_torch2jax_gives_the_same_where_it_is_installed():
    pytest.importorskip("torch2jax", reason="torch2jax is not installed; it is optional")
    module = trained_convnet()
    network = pb.from_torch(module, bridge="torch2jax")
    found = network.apply(network.init(jax.random.key(0)), IMAGES)
    with torch.no_grad():
        np.testing.assert_allclose(found, module.eval()(torch.tensor(IMAGES)).numpy(), atol=2e-6)
    noisy = pb.from_torch(Noisy(3, 2), bridge="torch2jax")
    with pytest.raises(ValueError, match="draws random numbers"):
        noisy.apply(noisy.init(jax.random.key(0)), jnp.ones((4, 3)))

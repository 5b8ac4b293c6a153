"""Saved models: the same predictions back, whole or absent, and a sentence for whatever is wrong."""

import gzip
import json
import os
import runpy
import subprocess
import sys
import textwrap
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reproduction.networks.cnn import cnn

import partialbayes as pb
from partialbayes.io._model_folder import _digest
from partialbayes.io._pytree_file import read_file, save_tree
from tests.oracles import conjugate

ORACLE = conjugate()
X = np.random.default_rng(0).normal(size=(12, 2)).astype(np.float32)
Y = X[:, 0] - X[:, 1] ** 2


def posterior_of(model, num_particles=4, members=None, seed=0):
    """Any posterior: what is saved need not be good. By NumPy, so that nothing is compiled."""
    rng = np.random.default_rng(seed)
    lead = () if members is None else (members,)
    shapes = jax.eval_shape(lambda key: model.init(key).psi, jax.random.key(0))

    def draw(*shape):
        return jnp.asarray(rng.normal(size=lead + shape), jnp.float32)

    psi = jax.tree.map(lambda leaf: draw(*leaf.shape), shapes)
    log_weights = np.log(rng.dirichlet(np.ones(num_particles * (members or 1))))
    log_weights = jnp.asarray(log_weights.reshape(*lead, num_particles), jnp.float32)
    return pb.types.Posterior(psi, pb.types.Particles(draw(num_particles, model.split.dim), log_weights))


def same(first, second):
    pairs = zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


def image_model():
    return pb.partial_bnn(
        cnn((8, 8, 1), (3,), 4, 3),
        pb.subsets.biases(),
        pb.categorical(),
        pb.priors.laplace(),
    )


MODELS = {
    "gaussian": lambda: pb.partial_bnn(
        pb.mlp([2, 5, 1], jnp.tanh), pb.subsets.layer(-1), pb.gaussian(pb.learned(0.5))
    ),
    "sampled noise, part of a layer": lambda: pb.partial_bnn(
        pb.mlp([2, 5, 1], activation=jax.nn.relu),
        pb.subsets.random_fraction(0.5),
        pb.gaussian(pb.sampled(0.5, pb.priors.inverse_gamma(3.0, 1.0))),
        pb.priors.normal(scale={"layers/0/**": pb.learned(1.0), "**": 0.1}),
    ),
    "missing targets": lambda: pb.partial_bnn(
        pb.mlp([2, 5, 2]),
        "**/bias",
        pb.likelihoods.allow_missing(pb.likelihoods.student_t(scale=np.array([0.5, 2.0]))),
        pb.priors.normal(scale=pb.priors.fan_in(pb.learned(1.0))),
    ),
    "images": image_model,
}


@pytest.mark.parametrize("name", list(MODELS))
def test_model_comes_back_from_its_recipe(tmp_path, name):
    model = MODELS[name]()
    posterior = posterior_of(model)
    pb.save(tmp_path / "model", model, posterior, metadata={"φ": [1, 2]})
    saved = pb.load(tmp_path / "model")
    assert same(saved.posterior, posterior)
    assert saved.metadata == {"φ": [1, 2]}
    assert saved.history is None
    inputs = jnp.ones((2, 8, 8, 1)) if name == "images" else jnp.asarray(X)

    def everything(model):
        psi, particles = posterior
        phi = particles.values[0]

        def compute():
            outputs = model.parameters(phi, psi, inputs)
            return outputs, model.log_prior(phi, psi), model.prior_moments(psi)

        return jax.jit(compute)()

    assert same(everything(model), everything(saved.model))
    assert saved.model.recipes == model.recipes


def test_ensemble_history_and_target_scale(tmp_path):
    model = MODELS["gaussian"]()
    posterior = posterior_of(model, members=3)
    history = pb.results.History({"loss": np.arange(3.0)}, np.array([1, 3]), np.array([0.5, 0.25]), 3)
    pb.save(
        tmp_path / "model",
        model,
        posterior,
        history=history,
        target_scale=pb.prediction.TargetScale(3.0, 2.0),
    )
    saved = pb.load(tmp_path / "model")
    assert same(saved.posterior, posterior)
    assert same(saved.history, history)
    assert saved.history.best_step == 3
    assert tuple(map(float, saved.target_scale)) == (3.0, 2.0, False)
    assert saved.target_scale.log is False
    files = {file.name for file in (tmp_path / "model").iterdir()}
    assert files == {"model.json", "arrays.safetensors"}
    assert [file.name for file in tmp_path.iterdir()] == ["model"]


def test_your_own_network_is_passed_in(tmp_path):
    network = pb.from_params(
        {"trunk": jnp.ones((2, 3)), "head": jnp.ones((3, 1))},
        lambda params, x: jnp.tanh(x @ params["trunk"]) @ params["head"],
    )
    model = pb.partial_bnn(network, "head", pb.gaussian())
    posterior = posterior_of(model)
    pb.save(tmp_path / "model", model, posterior)
    assert same(pb.load(tmp_path / "model", network=network).posterior, posterior)
    with pytest.raises(pb.errors.CheckpointError, match=r"pass it: load\(folder, network=...\)"):
        pb.load(tmp_path / "model")

    def other(**shapes):
        params = {name: jnp.ones(shape) for name, shape in shapes.items()}
        return pb.from_params(params, network.apply)

    for wrong, message in (
        (other(trunk=(2, 4), head=(4, 1)), r"'head' has shape \(3, 1\) .* but \(4, 1\) in the network"),
        (other(trunk=(5, 3), head=(3, 1)), r"'trunk' is float32\[2, 3\] .* but float32\[5, 3\]"),
        (other(trunk=(2, 3), tail=(3, 1)), "random weight 'head', but the network has none"),
        (other(trunk=(2, 3), head=(3, 1), more=(1,)), "holds no weight 'more'"),
        (other(head=(3, 1)), "holds the weight 'trunk', which the model does not"),
    ):
        with pytest.raises(pb.errors.CheckpointError, match=message):
            pb.load(tmp_path / "model", network=wrong)
    with pytest.raises(pb.errors.CheckpointError, match="another likelihood"):
        pb.load(tmp_path / "model", network=network, likelihood=pb.gaussian(pb.sampled(1.0)))
    assert pb.partial_bnn(pb.mlp([1, 3, 1], lambda x: x), "**", pb.gaussian()).recipes.network is None


def test_altered_truncated_and_foreign(tmp_path):
    model = MODELS["gaussian"]()
    pb.save(tmp_path / "model", model, posterior_of(model))
    description, arrays = (tmp_path / "model" / name for name in ("model.json", "arrays.safetensors"))
    good = description.read_text(), arrays.read_bytes()

    def loading(text=good[0], content=good[1], match=""):
        description.write_text(text)
        arrays.write_bytes(content)
        with pytest.raises(pb.errors.CheckpointError, match=match):
            pb.load(tmp_path / "model")

    flipped = bytearray(good[1])
    flipped[-1] ^= 1
    loading(content=bytes(flipped), match="altered or damaged")
    loading(content=good[1][:-20], match="truncated")
    loading(text=good[0][:100], match="not readable as JSON")
    loading(text=good[0].replace('"sizes": [', '"sizes":  ['), match="altered: its checksum")
    loading(text="{}", match="not the description of a partialbayes model")
    loading(text=good[0].replace('"version": 4', '"version": 99'), match="update partialbayes")
    description.write_text(good[0])
    arrays.unlink()
    with pytest.raises(pb.errors.CheckpointError, match="there is no checkpoint at"):
        pb.load(tmp_path / "model")
    with pytest.raises(pb.errors.CheckpointError, match=r"does not exist: there is no model.json"):
        pb.load(tmp_path / "absent")
    with pytest.raises(pb.errors.CheckpointError, match="is not a saved model"):
        pb.load(tmp_path)


def test_a_recipe_can_name_nothing_but_our_own(tmp_path):
    model = MODELS["gaussian"]()
    pb.save(tmp_path / "model", model, posterior_of(model))
    path = tmp_path / "model" / "model.json"
    forged = json.loads(path.read_text())
    forged["recipes"]["network"] = {"builder": "os.system", "arguments": {"command": "true"}}
    path.write_text(json.dumps(forged))
    arrays, _ = read_file(tmp_path / "model" / "arrays.safetensors")
    save_tree(
        tmp_path / "model" / "arrays.safetensors", arrays, {"description": _digest(path.read_text())}
    )
    with pytest.raises(pb.errors.CheckpointError, match=r"does not know 'os.system'"):
        pb.load(tmp_path / "model")


def forge(folder, change_description=None, change_arrays=None):
    """The folder with other contents, and checksums that match them."""
    path = folder / "model.json"
    description = json.loads(path.read_text())
    if change_description is not None:
        change_description(description)
    path.write_text(json.dumps(description))
    arrays, _ = read_file(folder / description["arrays"])
    if change_arrays is not None:
        change_arrays(arrays)
    save_tree(folder / description["arrays"], arrays, {"description": _digest(path.read_text())})


def test_folders_of_before_load_where_the_random_weights_had_the_same_order(tmp_path):
    def before(description):
        description["version"] = 3

    own = MODELS["gaussian"]()
    pb.save(tmp_path / "own", own, posterior_of(own))
    forge(tmp_path / "own", before)
    assert pb.load(tmp_path / "own").posterior.num_particles == 4

    network = pb.from_equinox(eqx.nn.MLP(2, 1, 3, 1, key=jax.random.key(0)))
    for stochastic, changed in (("layers/*/bias", False), ("layers/0/*", True), ("**/weight", True)):
        model = pb.partial_bnn(network, stochastic, pb.gaussian())
        folder = tmp_path / stochastic.replace("/", "_").replace("*", "any")
        pb.save(folder, model, posterior_of(model))
        assert pb.load(folder, network=network).model.split.dim == model.split.dim
        forge(folder, before)
        if changed:
            with pytest.raises(pb.errors.CheckpointError, match="order of the random weights"):
                pb.load(folder, network=network)
        else:
            assert pb.load(folder, network=network).posterior.num_particles == 4


VALUES, WEIGHTS = "posterior/particles/values", "posterior/particles/log_weights"


def half(arrays):
    arrays[VALUES] = arrays[VALUES].astype(np.float16)


def nan(arrays):
    arrays["posterior/psi/network/layers/0/kernel"][0, 0] = np.nan


def fewer(arrays):
    arrays[VALUES] = arrays[VALUES][:-1]


def unweighted(arrays):
    arrays[WEIGHTS] = np.zeros_like(arrays[WEIGHTS])


def set_activation(value):
    def change(description):
        description["recipes"]["network"]["arguments"]["activation"] = value

    return change


@pytest.mark.parametrize(
    ("description", "arrays", "message"),
    [
        (None, half, "are float16"),
        (None, nan, "contains NaN or infinity"),
        (None, fewer, r"have shape \(3, 6\), but their weights"),
        (None, unweighted, "weights that sum to 4"),
        (None, lambda arrays: arrays.pop(VALUES), "no 'particles/values'"),
        (None, lambda arrays: arrays.update({"target_scale/shift": np.ones(2)}), "the target scale in"),
        (None, lambda arrays: arrays.update({"history/best_step": np.ones(2)}), "the history in"),
        (set_activation(7), None, "network .* cannot be rebuilt"),
        (set_activation({"function": "load"}), None, "does not know the activation 'load'"),
        (set_activation({"recipe": {"builder": "likelihoods.poisson", "arguments": {}}}), None, "built"),
        (lambda description: description.update(num_particles=3), None, "4 particles, but .*=3"),
        (lambda description: description.update(metadata=[]), None, "'metadata' is missing or"),
        (lambda description: description["recipes"].update(network=[1]), None, "TypeError"),
    ],
)
def test_parts_that_do_not_belong_together(tmp_path, description, arrays, message):
    """The checksums are right: what was written is wrong."""
    model = MODELS["gaussian"]()
    pb.save(tmp_path / "model", model, posterior_of(model))
    forge(tmp_path / "model", description, arrays)
    with pytest.raises(pb.errors.CheckpointError, match=message):
        pb.load(tmp_path / "model")


def test_what_is_nested_too_deeply_is_one_sentence(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.json").write_text("[" * 100_000)
    with pytest.raises(pb.errors.CheckpointError, match="not readable as JSON"):
        pb.load(tmp_path / "model")


def test_nothing_is_overwritten_by_accident_nor_half_written(tmp_path, monkeypatch):
    model = MODELS["gaussian"]()
    first, second = posterior_of(model), posterior_of(model, seed=1)
    pb.save(tmp_path / "model", model, first)
    with pytest.raises(pb.errors.CheckpointError, match=r"exists already.*overwrite=True"):
        pb.save(tmp_path / "model", model, second)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("years of work")
    with pytest.raises(pb.errors.CheckpointError, match="not a saved model, so it is not overwritten"):
        pb.save(tmp_path / "other", model, second, overwrite=True)
    (tmp_path / "other" / "model.json").write_text("{}")
    with pytest.raises(pb.errors.CheckpointError, match="not a saved model, so it is not overwritten"):
        pb.save(tmp_path / "other", model, second, overwrite=True)
    assert (tmp_path / "other" / "thesis.txt").read_text() == "years of work"
    with pytest.raises(ValueError, match="metadata must contain only JSON values"):
        pb.save(tmp_path / "third", model, second, metadata={"when": object()})

    def no_space(handle):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", no_space)
        for name in ("model", "new"):
            with pytest.raises(pb.errors.CheckpointError) as told:
                pb.save(tmp_path / name, model, second, overwrite=True)
            assert f"model could not be written to {tmp_path / name} (No space left" in str(told.value)
    assert same(pb.load(tmp_path / "model").posterior, first)
    pb.save(tmp_path / "model", model, second, overwrite=True)
    assert same(pb.load(tmp_path / "model").posterior, second)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["model", "other"]
    (tmp_path / "model" / "thesis.txt").write_text("years of work")
    with pytest.raises(pb.errors.CheckpointError, match=r"holds 'thesis.txt' beside the model"):
        pb.save(tmp_path / "model", model, first, overwrite=True)
    assert (tmp_path / "model" / "thesis.txt").read_text() == "years of work"
    assert same(pb.load(tmp_path / "model").posterior, second)


def test_a_model_is_there_at_every_moment_of_its_replacement(tmp_path, monkeypatch):
    """After each renaming, and if any of them fails, the old model or the new one can be loaded."""
    model = MODELS["gaussian"]()
    first, second = posterior_of(model), posterior_of(model, seed=1)
    replace = os.replace
    pb.save(tmp_path / "model", model, first)
    seen = []

    def watched(source, target):
        replace(source, target)
        seen.append(pb.load(tmp_path / "model").posterior)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", watched)
        pb.save(tmp_path / "model", model, second, overwrite=True)
    assert [same(posterior, second) for posterior in seen] == [False, True]
    for failing in range(2):
        calls = []

        def fails(source, target, failing=failing, calls=calls):
            calls.append(source)
            if len(calls) > failing:
                raise OSError(5, "Input/output error")
            replace(source, target)

        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", fails)
            with pytest.raises(pb.errors.CheckpointError, match="Input/output error"):
                pb.save(tmp_path / "model", model, first, overwrite=True)
        assert same(pb.load(tmp_path / "model").posterior, second)
        assert len(list((tmp_path / "model").iterdir())) == 2


@pytest.mark.parametrize("overwrite", [True, False])
def test_of_two_that_save_at_once_the_later_replaces_or_is_refused(tmp_path, monkeypatch, overwrite):
    path, model = tmp_path / "model", MODELS["gaussian"]()
    posterior = posterior_of(model)
    chmod = Path.chmod

    def be_faster(own, mode):
        chmod(own, mode)
        if own.name.endswith(".part"):
            monkeypatch.undo()
            pb.save(path, model, posterior, metadata={"who": "the first"})

    monkeypatch.setattr(Path, "chmod", be_faster)
    if overwrite:
        pb.save(path, model, posterior, metadata={"who": "the second"}, overwrite=True)
    else:
        with pytest.raises(pb.errors.CheckpointError, match="exists already"):
            pb.save(path, model, posterior, metadata={"who": "the second"})
    assert pb.load(path).metadata["who"] == ("the second" if overwrite else "the first")
    assert [file.name for file in tmp_path.iterdir()] == ["model"]
    assert len(list(path.iterdir())) == 2


def test_a_link_to_a_folder_stays_one(tmp_path):
    model = MODELS["gaussian"]()
    (tmp_path / "disk").mkdir()
    (tmp_path / "model").symlink_to(tmp_path / "disk", target_is_directory=True)
    for seed in range(3):
        posterior = posterior_of(model, seed=seed)
        pb.save(tmp_path / "model", model, posterior, overwrite=True)
        assert (tmp_path / "model").is_symlink()
        assert same(pb.load(tmp_path / "disk").posterior, posterior)
        assert len(list((tmp_path / "disk").iterdir())) == 2


def test_a_pipe_is_written_to_and_never_replaced(tmp_path):
    import stat
    import threading

    from partialbayes._utils.atomic import require_writable, write_atomically

    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    require_writable(pipe)
    write_atomically(pipe, b"content")
    reader.join(10)
    assert got == [b"content"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert [file.name for file in tmp_path.iterdir()] == ["pipe"]


def test_what_the_dead_left_unfinished_is_cleared_and_what_the_living_write_is_not(tmp_path):
    from partialbayes._utils.atomic import unfinished_prefix

    model = MODELS["gaussian"]()
    dead = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True)
    prefix = unfinished_prefix(tmp_path / "model")
    of_dead = prefix.replace(str(os.getpid()), dead.stdout.decode().strip())
    for name in (f"{of_dead}x.part", f"{prefix}y.part"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "arrays.safetensors").write_text("half of it")
    (tmp_path / ".model.notes.part").write_text("mine")
    pb.save(tmp_path / "model", model, posterior_of(model))
    left = sorted(file.name for file in tmp_path.iterdir())
    assert left == sorted([".model.notes.part", f"{prefix}y.part", "model"])


def test_a_place_that_cannot_be_written_is_told_by_its_name(tmp_path):
    model = MODELS["gaussian"]()
    (tmp_path / "file").write_text("")
    with pytest.raises(pb.errors.CheckpointError, match=r"file/model cannot be written \(Not a dir"):
        pb.save(tmp_path / "file" / "model", model, posterior_of(model))
    with pytest.raises(pb.errors.CheckpointError, match=r"written to .*file/predictor \("):
        pb.export(tmp_path / "file" / "predictor", model, posterior_of(model), X)


ALONE = """
    import sys, numpy as np, jax
    import gzip
    from jax import export
    with gzip.open(sys.argv[1]) as file:
        predictor = export.deserialize(bytearray(file.read()))
    for rows in (1, 3, 7):
        out = predictor.call(np.load(sys.argv[2])[:rows])
        assert out["mean"].shape == (rows,), out["mean"].shape
    out = predictor.call(np.load(sys.argv[2]))
    np.savez(sys.argv[3], **out)
    print("partialbayes" in sys.modules)
"""


def test_exported_predictor_runs_with_jax_alone(tmp_path):
    model = MODELS["gaussian"]()
    posterior = posterior_of(model, members=2)
    predictor = tmp_path / "folder" / "predictor.stablehlo"
    pb.export(
        predictor,
        model,
        posterior,
        X[:2],
        target_scale=pb.prediction.TargetScale(10.0, 3.0),
        prepare=lambda x: x / 2.0,
        platforms=("cpu", "cuda"),
    )
    np.save(tmp_path / "x.npy", X)
    command = [sys.executable, "-c", textwrap.dedent(ALONE)]
    command += [str(predictor), str(tmp_path / "x.npy"), str(tmp_path / "out.npz")]
    # From an empty folder, without PYTHONPATH.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    shown = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=True
    )
    assert shown.stdout.strip() == "False"
    ours = pb.predict(model, posterior, X / 2.0)
    with np.load(tmp_path / "out.npz") as stored:
        theirs = dict(stored)
    np.testing.assert_allclose(theirs["mean"], 10.0 + 3.0 * ours.mean, rtol=1e-5)
    np.testing.assert_allclose(theirs["variance"], 9.0 * ours.variance, rtol=1e-4)
    np.testing.assert_allclose(theirs["epistemic"], 9.0 * ours.epistemic_variance, rtol=1e-4)


def test_exported_classifier_gives_probabilities(tmp_path):
    model = image_model()
    images = jnp.ones((2, 8, 8, 1))
    pb.export(tmp_path / "predictor", model, posterior_of(model), images)
    probabilities = pb.io.load_predictor(tmp_path / "predictor")(jnp.ones((5, 8, 8, 1)))["mean"]
    assert probabilities.shape == (5, 3)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-5)


def test_a_damaged_predictor_is_refused_and_none_tells_where_it_was_made(tmp_path):
    model = MODELS["gaussian"]()
    path = tmp_path / "predictor"
    # A folder whose own name has ".py" in it, as that of pyenv has, and a function made there.
    folder = tmp_path / ".pyenv"
    folder.mkdir()
    (folder / "prepare.py").write_text("def prepare(inputs):\n    return 2.0 * inputs\n")
    prepare = runpy.run_path(str(folder / "prepare.py"))["prepare"]
    pb.export(path, model, posterior_of(model), X, prepare=prepare)
    good = path.read_bytes()
    program = gzip.decompress(good)
    assert b".py\x00" not in program  # the end of a file's name; functions may be called "x.pytest_y"
    assert str(Path(__file__).parents[2]).encode() not in program
    for place in range(len(good) // 2, len(good), len(good) // 12):
        damaged = bytearray(good)
        damaged[place] ^= 16
        path.write_bytes(bytes(damaged))
        with pytest.raises(pb.errors.CheckpointError, match="missing, incomplete or damaged"):
            pb.io.load_predictor(path)
    for content, message in (
        (good[:-9], "missing, incomplete"),
        (b"", "not a pred"),
        (gzip.compress(b"text"), "not a pred"),
    ):
        path.write_bytes(content)
        with pytest.raises(pb.errors.CheckpointError, match=message):
            pb.io.load_predictor(path)


@pytest.mark.parametrize(("shift", "scale"), [(1e9, 1.0), (1e7, 1.0), (0.0, 1e20)])
def test_a_predictor_that_single_precision_cannot_hold_is_not_exported(tmp_path, shift, scale):
    model = MODELS["gaussian"]()
    units = pb.prediction.TargetScale(shift, scale)
    with pytest.raises(ValueError, match=r"target_scale is .* single precision"):
        pb.export(tmp_path / "predictor", model, posterior_of(model), X, target_scale=units)

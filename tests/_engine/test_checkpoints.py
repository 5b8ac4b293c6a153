"""Checkpoints: whole or absent, bit-identical when resumed, and safe to read."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import save_file

import partialbayes as pb
import partialbayes.io._pytree_file as checkpoint
from tests.oracles import conjugate

ORACLE = conjugate()
DATA = (ORACLE.inputs, ORACLE.targets)
ALGORITHM = pb.ohsmc(ORACLE.model, num_particles=16)
SETTINGS = {"epochs": 5, "batch_size": 10, "validation": DATA, "progress": False}
TREE = {"a": jnp.arange(6.0).reshape(2, 3), "b": [jnp.ones((), jnp.int32), jax.random.key(3)]}


def same(first, second):
    pairs = zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


class StopRunError(Exception):
    """Stands for whatever ends a run."""


def stop_after(step):
    def callback(progress):
        if progress.begin >= step:
            raise StopRunError

    return callback


def test_tree_comes_back_exactly(tmp_path):
    path = tmp_path / "folder" / "tree.safetensors"
    checkpoint.save_tree(path, TREE, {"note": "φ"})
    back, description = checkpoint.load_tree(path, TREE)
    assert description == {"note": "φ"}
    assert np.array_equal(back["a"], TREE["a"])
    assert back["b"][0].dtype == jnp.int32
    assert np.array_equal(jax.random.normal(back["b"][1]), jax.random.normal(jax.random.key(3)))
    assert path.stat().st_mode & 0o077 == 0
    assert [file.name for file in path.parent.iterdir()] == ["tree.safetensors"]


def test_resumed_run_is_bit_identical(tmp_path):
    straight = pb.fit(ALGORITHM, DATA, **SETTINGS)
    saved = pb.training.Checkpoints(tmp_path / "run.safetensors", every_steps=3)
    with pytest.raises(StopRunError):
        pb.fit(ALGORITHM, DATA, **SETTINGS, checkpoint=saved, callbacks=[stop_after(7)])
    _, description = checkpoint.read_file(saved.path)
    assert 3 <= description["step"] <= 9
    resumed = pb.fit(ALGORITHM, DATA, **SETTINGS, checkpoint=saved, resume=True)
    assert same(straight.posterior, resumed.posterior)
    assert same(straight.history, resumed.history)
    # A run that is over comes back without a step more.
    again = pb.fit(ALGORITHM, DATA, **SETTINGS, checkpoint=saved, resume=True, callbacks=[stop_after(0)])
    assert same(straight.posterior, again.posterior)


def test_an_existing_checkpoint_is_never_overwritten_by_accident(tmp_path):
    path = tmp_path / "run.safetensors"
    pb.fit(ALGORITHM, DATA, **SETTINGS, checkpoint=path)
    with pytest.raises(pb.errors.CheckpointError, match="resume=True to go on from it, or remove it"):
        pb.fit(ALGORITHM, DATA, **SETTINGS, checkpoint=path)
    with pytest.raises(ValueError, match="resume=True needs checkpoint="):
        pb.fit(ALGORITHM, DATA, **SETTINGS, resume=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data": (ORACLE.inputs, ORACLE.targets + 1e-3)}, "the data differs"),
        ({"validation": (ORACLE.inputs[:4], ORACLE.targets[:4])}, "the validation data differs"),
        ({"key": 1}, "the key differs"),
        ({"batch_size": 9}, "needs float32|the plan .* differs"),
        (
            {"algorithm": pb.ohsmc(ORACLE.model, num_particles=17)},
            r"another network, number of particles",
        ),
        ({"algorithm": pb.map_estimate(ORACLE.model)}, "another algorithm, network or subset"),
    ],
)
def test_wrong_run_on_resume(tmp_path, change, message):
    path = tmp_path / "run.safetensors"
    pb.fit(ALGORITHM, DATA, **SETTINGS, checkpoint=path)
    before = path.read_bytes()
    settings = {"algorithm": ALGORITHM, "data": DATA, **SETTINGS} | change
    with pytest.raises(pb.errors.CheckpointError, match=message):
        pb.fit(**settings, checkpoint=path, resume=True)
    assert path.read_bytes() == before


def test_damaged_and_foreign_files(tmp_path):
    path = tmp_path / "tree.safetensors"
    checkpoint.save_tree(path, TREE, {})
    whole = path.read_bytes()

    def loading(content):
        path.write_bytes(content)
        return pytest.raises(pb.errors.CheckpointError)

    with loading(whole[: len(whole) // 2]) as caught:
        checkpoint.load_tree(path, TREE)
    assert "truncated" in str(caught.value)
    flipped = bytearray(whole)
    flipped[-1] ^= 1
    with loading(bytes(flipped)) as caught:
        checkpoint.load_tree(path, TREE)
    assert "checksum does not match" in str(caught.value)
    with loading(b"") as caught:
        checkpoint.load_tree(path, TREE)
    with loading(b"\x80\x04cos\nsystem\n(S'true'\ntR.") as caught:  # a pickle is just bytes
        checkpoint.load_tree(path, TREE)
    save_file({"a": np.ones(3)}, path)
    with pytest.raises(pb.errors.CheckpointError, match="not one of partialbayes"):
        checkpoint.load_tree(path, TREE)
    save_file({"a": np.ones(3)}, path, {"format": "partialbayes", "version": "999"})
    with pytest.raises(pb.errors.CheckpointError, match="update partialbayes"):
        checkpoint.load_tree(path, TREE)
    with pytest.raises(pb.errors.CheckpointError, match="there is no checkpoint at"):
        checkpoint.load_tree(tmp_path / "absent", TREE)


def test_full_disk_leaves_the_last_checkpoint_intact(tmp_path, monkeypatch):
    path = tmp_path / "tree.safetensors"
    checkpoint.save_tree(path, TREE, {"step": 1})
    before = path.read_bytes()

    def no_space(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(
        pb.errors.CheckpointError, match=r"No space left on device.*is intact. Free some space"
    ):
        checkpoint.save_tree(path, TREE, {"step": 2})
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["tree.safetensors"]


RUN = """
    import sys
    import partialbayes as pb
    from tests.oracles import conjugate

    oracle = conjugate()
    data = (oracle.inputs, oracle.targets)
    algorithm = pb.ohsmc(oracle.model, num_particles=64)
    saved = pb.training.Checkpoints(sys.argv[1], every_steps=5)
    print("started", flush=True)
    trained = pb.fit(algorithm, data, epochs=400, batch_size=5, validation=data, evaluate_every=1,
                     checkpoint=saved, resume=True, progress=False)
    print(trained.history.metrics["ess"].sum(), trained.history.best_step,
          float(trained.posterior.particles.values.sum()), flush=True)
"""


def start_run(path):
    root = Path(__file__).parents[2]
    environment = os.environ | {"PYTHONPATH": f"{root / 'src'}:{root}"}
    command = [sys.executable, "-c", textwrap.dedent(RUN), str(path)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def kill_many_times(tmp_path, kills, seed):
    """Kill a run at random moments, then let it end; compare with one that was left alone."""
    straight = start_run(tmp_path / "straight.safetensors").communicate(timeout=300)[0]
    assert len(straight.splitlines()) == 2  # it came to its end
    path = tmp_path / "killed.safetensors"
    rng = np.random.default_rng(seed)
    steps = [0]
    for _ in range(kills):
        run = start_run(path)
        run.stdout.readline()
        # Wait for the first save of this life, so that lives do not end before they begin.
        deadline = time.monotonic() + 120
        last = path.stat().st_mtime_ns if path.exists() else 0
        while time.monotonic() < deadline and run.poll() is None:
            if path.exists() and path.stat().st_mtime_ns != last:
                break
            time.sleep(0.005)
        time.sleep(rng.uniform(0, 0.15))
        run.send_signal(signal.SIGKILL)
        run.communicate()
        _, description = checkpoint.read_file(path)
        assert description["step"] >= steps[-1]
        steps.append(description["step"])
    assert steps[-1] > 0
    assert start_run(path).communicate(timeout=300)[0] == straight


def test_killed_for_good_and_resumed(tmp_path):
    kill_many_times(tmp_path, kills=2, seed=0)


@pytest.mark.slow
def test_killed_many_times(tmp_path):
    kill_many_times(tmp_path, kills=20, seed=1)


def test_interrupt_ends_cleanly_with_the_best_so_far(tmp_path, caplog):
    path = tmp_path / "run.safetensors"
    handler = signal.getsignal(signal.SIGINT)  # a shell's background jobs ignore the signal

    def interrupt(progress):
        if progress.begin >= 4:
            os.kill(os.getpid(), signal.SIGINT)

    stopped = pb.fit(
        ALGORITHM, DATA, **SETTINGS | {"epochs": 500}, checkpoint=path, callbacks=[interrupt]
    )
    done = len(stopped.history.metrics["loss"])
    assert 4 < done < 1500
    assert 0 < stopped.history.best_step <= done
    assert np.isfinite(stopped.history.metrics["loss"]).all()
    assert "interrupted after" in caplog.text
    assert checkpoint.read_file(path)[1]["step"] == done
    assert signal.getsignal(signal.SIGINT) is handler


def test_logs_follow_the_run_and_its_resumption(tmp_path):
    saved = pb.training.Checkpoints(tmp_path / "run.safetensors", every_steps=3)
    for make, name in ((pb.callbacks.csv_log, "log.csv"), (pb.callbacks.json_lines_log, "log.jsonl")):
        saved.path.unlink(missing_ok=True)
        path = tmp_path / name
        with pytest.raises(StopRunError):
            pb.fit(ALGORITHM, DATA, **SETTINGS, checkpoint=saved, callbacks=[make(path), stop_after(7)])
        trained = pb.fit(
            ALGORITHM, DATA, **SETTINGS, checkpoint=saved, resume=True, callbacks=[make(path)]
        )
        if name.endswith("csv"):
            header, *lines = path.read_text().splitlines()
            rows = [dict(zip(header.split(","), line.split(","), strict=True)) for line in lines]
        else:
            rows = [json.loads(line) for line in path.read_text().splitlines()]
        assert [int(row["step"]) for row in rows] == list(range(1, 16))
        np.testing.assert_allclose([float(row["ess"]) for row in rows], trained.history.metrics["ess"])
        scores = [float(row["validation_nlpd"]) for row in rows if row["validation_nlpd"]]
        np.testing.assert_allclose(scores, trained.history.validation_nlpd, rtol=1e-6)


def test_tensorboard_gets_every_scalar():
    seen = []

    class Writer:
        def add_scalar(self, tag, value, step):
            seen.append((tag, step))

    pb.fit(ALGORITHM, DATA, **SETTINGS, callbacks=[pb.callbacks.tensorboard_log(Writer())])
    assert {("loss", step) for step in range(1, 16)} <= set(seen)
    assert {step for tag, step in seen if tag == "validation_nlpd"} == {3, 6, 9, 12, 15}

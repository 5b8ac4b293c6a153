"""Checkpoints: whole or absent, bit-identical when resumed, and safe to read."""

import json
import os
import signal
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from safetensors.numpy import save_file

import partialbayes as pb
import partialbayes.io._pytree_file as checkpoint
from partialbayes._utils.atomic import unfinished_prefix
from tests.oracles import conjugate

ORACLE = conjugate()
DATA = (ORACLE.inputs, ORACLE.targets)
ALGORITHM = pb.ohsmc(ORACLE.model, num_particles=16, kernel=pb.kernels.random_walk(0.01))
SETTINGS = {"epochs": 5, "batch_size": 10, "validation": DATA}
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
        pb.fit(ALGORITHM, DATA, **SETTINGS, run=pb.Run(checkpoint=saved, callbacks=[stop_after(7)]))
    _, description = checkpoint.read_file(saved.path)
    assert 3 <= description["step"] <= 9
    resumed = pb.fit(ALGORITHM, DATA, **SETTINGS, run=pb.Run(checkpoint=saved, resume=True))
    assert same(straight.posterior, resumed.posterior)
    assert same(straight.history, resumed.history)
    # A run that is over comes back without a step more.
    run = pb.Run(checkpoint=saved, resume=True, callbacks=[stop_after(0)])
    again = pb.fit(ALGORITHM, DATA, **SETTINGS, run=run)
    assert same(straight.posterior, again.posterior)


@pytest.mark.parametrize("many", [False, True])
def test_a_finished_run_whose_posterior_was_altered_is_refused(tmp_path, many):
    path = tmp_path / "run.safetensors"
    run = pb.Run(checkpoint=path, resume=True)

    def go_on():
        if many:
            return pb.fit_many(ALGORITHM, DATA, repeats=2, **SETTINGS, run=run)
        return pb.fit(ALGORITHM, DATA, **SETTINGS, run=run)

    go_on()
    arrays, description = checkpoint.read_file(path)
    for ending, value, message in (
        ("values", np.nan, "contains NaN or infinity"),
        ("log_weights", np.inf, "weights that sum to inf"),
        ("log_weights", 0.0, r"weights that sum to [\d.]+, not to 1"),
    ):
        (name,) = (name for name in arrays if name.startswith("best/") and name.endswith(ending))
        altered = np.array(arrays[name])
        altered[..., 0] = value  # in the second of many runs too
        checkpoint.save_tree(path, {**arrays, name: altered}, description)
        with pytest.raises(pb.errors.CheckpointError, match=f"the best posterior in .*{message}"):
            go_on()
    checkpoint.save_tree(path, arrays, description)
    go_on()


def test_a_link_to_a_checkpoint_stays_one_and_nothing_else_is_removed(tmp_path):
    (tmp_path / "disk").mkdir()
    link, mine = tmp_path / "run.safetensors", tmp_path / "disk" / ".run.safetensors.notes"
    link.symlink_to(tmp_path / "disk" / "run.safetensors")
    mine.write_text("mine")
    lock_beside_the_file = []

    def look(progress):
        lock_beside_the_file.append((tmp_path / "disk" / ".run.safetensors.lock").exists())

    pb.fit(ALGORITHM, DATA, **SETTINGS, run=pb.Run(checkpoint=link, callbacks=[look]))
    assert all(lock_beside_the_file)
    assert link.is_symlink()
    assert mine.read_text() == "mine"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["disk", "run.safetensors"]


def test_an_existing_checkpoint_is_never_overwritten_by_accident(tmp_path):
    path = tmp_path / "run.safetensors"
    pb.fit(ALGORITHM, DATA, **SETTINGS, run=pb.Run(checkpoint=path))
    with pytest.raises(pb.errors.CheckpointError, match="resume=True to resume from it, or remove it"):
        pb.fit(ALGORITHM, DATA, **SETTINGS, run=pb.Run(checkpoint=path))
    with pytest.raises(ValueError, match="resume=True needs checkpoint="):
        pb.fit(ALGORITHM, DATA, **SETTINGS, run=pb.Run(resume=True))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data": (ORACLE.inputs, ORACLE.targets + 1e-3)}, "the data differs"),
        ({"validation": (ORACLE.inputs[:4], ORACLE.targets[:4])}, "the validation data differs"),
        ({"key": 1}, "the key differs"),
        ({"batch_size": 9}, "the plan .* differs"),
        ({"algorithm": pb.ohsmc(ORACLE.model, num_particles=17)}, "the algorithm .* differs"),
        ({"algorithm": pb.map_estimate(ORACLE.model)}, "the algorithm .* differs"),
        (
            {
                "algorithm": pb.ohsmc(
                    ORACLE.model, num_particles=16, kernel=pb.kernels.random_walk(0.0100001)
                )
            },
            "the algorithm .* differs",
        ),
        (
            {
                "algorithm": pb.ohsmc(
                    ORACLE.model,
                    num_particles=16,
                    kernel=pb.kernels.random_walk(0.01),
                    optimizer=optax.adam(0.02),
                )
            },
            "the algorithm .* differs",
        ),
    ],
)
def test_wrong_run_on_resume(tmp_path, change, message):
    path = tmp_path / "run.safetensors"
    pb.fit(ALGORITHM, DATA, **SETTINGS, run=pb.Run(checkpoint=path))
    before = path.read_bytes()
    settings = {"algorithm": ALGORITHM, "data": DATA, **SETTINGS} | change
    with pytest.raises(pb.errors.CheckpointError, match=message):
        pb.fit(**settings, run=pb.Run(checkpoint=path, resume=True))
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
    with pytest.raises(pb.errors.CheckpointError, match="not one from partialbayes"):
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
        pb.errors.CheckpointError, match=r"No space left on device.*is unchanged. Free some space"
    ):
        checkpoint.save_tree(path, TREE, {"step": 2})
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["tree.safetensors"]


def test_interrupt_raises_with_the_best_so_far_once_the_checkpoint_is_written(tmp_path):
    handler = signal.getsignal(signal.SIGINT)  # a shell's background jobs ignore the signal

    def interrupt(progress):
        if progress.begin >= 4:
            os.kill(os.getpid(), signal.SIGINT)

    run = pb.Run(checkpoint=tmp_path / "run.safetensors", callbacks=[interrupt])
    settings = SETTINGS | {"epochs": 500}
    with pytest.raises(pb.errors.TrainingInterrupted, match="interrupted after") as caught:
        pb.fit(ALGORITHM, DATA, **settings, run=run)
    assert isinstance(caught.value, KeyboardInterrupt)
    stopped = caught.value.fit
    done = len(stopped.history.metrics["loss"])
    assert 4 < done == caught.value.step < 1500
    assert stopped.interrupted
    assert 0 < stopped.history.best_step <= done
    assert np.isfinite(stopped.history.metrics["loss"]).all()
    assert checkpoint.read_file(run.checkpoint)[1]["step"] == done
    assert signal.getsignal(signal.SIGINT) is handler
    asked = run._replace(checkpoint=None, on_interrupt="return")
    assert pb.fit(ALGORITHM, DATA, **settings, run=asked).end == "interrupt"


def test_logs_follow_the_run_and_its_resumption(tmp_path):
    saved = pb.training.Checkpoints(tmp_path / "run.safetensors", every_steps=3)
    for make, name in ((pb.callbacks.csv_log, "log.csv"), (pb.callbacks.json_lines_log, "log.jsonl")):
        saved.path.unlink(missing_ok=True)
        path = tmp_path / name
        run = pb.Run(checkpoint=saved, callbacks=[make(path), stop_after(7)])
        with pytest.raises(StopRunError):
            pb.fit(ALGORITHM, DATA, **SETTINGS, run=run)
        run = pb.Run(checkpoint=saved, resume=True, callbacks=[make(path)])
        trained = pb.fit(ALGORITHM, DATA, **SETTINGS, run=run)
        if name.endswith("csv"):
            header, *lines = path.read_text().splitlines()
            rows = [dict(zip(header.split(","), line.split(","), strict=True)) for line in lines]
        else:
            rows = [json.loads(line) for line in path.read_text().splitlines()]
        assert [int(row["step"]) for row in rows] == list(range(1, 16))
        np.testing.assert_allclose([float(row["ess"]) for row in rows], trained.history.metrics["ess"])
        scores = [float(row["validation_nlpd"]) for row in rows if row["validation_nlpd"]]
        np.testing.assert_allclose(scores, trained.history.validation_nlpd, rtol=1e-6)


def test_a_second_run_on_the_same_path_is_refused_while_the_first_lasts(tmp_path):
    run = pb.Run(checkpoint=tmp_path / "run.safetensors", resume=True)
    refused = []

    def start_another(progress):
        with pytest.raises(pb.errors.CheckpointError, match="another run is using the checkpoint"):
            pb.fit(ALGORITHM, DATA, **SETTINGS, run=run)
        refused.append(progress.begin)

    pb.fit(ALGORITHM, DATA, **SETTINGS, run=run._replace(callbacks=[start_another]))
    assert refused
    prefix = unfinished_prefix(tmp_path / "run.safetensors").replace(str(os.getpid()), str(2**22 + 1))
    (tmp_path / f"{prefix}x.part").write_text("what a killed run left")  # no process has that number
    pb.fit(ALGORITHM, DATA, **SETTINGS, run=run)
    assert [file.name for file in tmp_path.iterdir()] == ["run.safetensors"]


def alter(path, **changes):
    """The same file with another description and, where asked, a checksum that fits it."""
    arrays, description = checkpoint.read_file(path)
    checkpoint.save_tree(path, dict(arrays), description | changes)


def test_the_step_is_covered_by_the_checksum_and_checked_against_the_plan(tmp_path):
    path = tmp_path / "run.safetensors"
    run = pb.Run(checkpoint=path, resume=True)
    pb.fit(ALGORITHM, DATA, **SETTINGS, run=run)
    whole = path.read_bytes()
    assert b'\\"step\\": 15' in whole
    path.write_bytes(whole.replace(b'\\"step\\": 15', b'\\"step\\": 14'))
    with pytest.raises(pb.errors.CheckpointError, match="checksum does not match"):
        pb.fit(ALGORITHM, DATA, **SETTINGS, run=run)
    for step, message in ((16, "of step 16, but this run has 15"), (-5, "no step"), ("9", "no step")):
        path.write_bytes(whole)
        alter(path, step=step)
        with pytest.raises(pb.errors.CheckpointError, match=message):
            pb.fit(ALGORITHM, DATA, **SETTINGS, run=run)


def test_after_a_change_of_version_another_step_is_warned_of_and_not_refused(tmp_path):
    path = tmp_path / "run.safetensors"
    run = pb.Run(checkpoint=path, resume=True)
    pb.fit(ALGORITHM, DATA, **SETTINGS, run=run)
    own = checkpoint.read_file(path)[1]["run"]
    alter(path, run=own | {"step": "?", "made by": own["made by"] | {"jax": "0.1.2"}})
    with pytest.warns(pb.errors.CheckpointWarning, match=r"written by .*jax 0.1.2") as caught:
        pb.fit(ALGORITHM, DATA, **SETTINGS, run=run)
    assert caught[0].filename == __file__
    alter(path, run=own | {"version": 99})
    with pytest.raises(pb.errors.CheckpointError, match="of this version"):
        pb.fit(ALGORITHM, DATA, **SETTINGS, run=run)


def test_a_log_torn_by_a_kill_is_mended(tmp_path):
    for make, name in ((pb.callbacks.csv_log, "log.csv"), (pb.callbacks.json_lines_log, "log.jsonl")):
        path = tmp_path / name
        first = pb.callbacks.Progress(0, 9, {"loss": np.ones(3)}, {}, 0, None, None)
        make(path)(first)
        whole = path.read_bytes()
        for cut in range(1, len(whole.splitlines()[-1]) + 2):
            path.write_bytes(whole[:-cut])
            make(path)(first._replace(begin=2, infos={"loss": np.array([1.0, 5.0])}))
            lines = path.read_text().splitlines()[name == "log.csv" :]
            steps = [int(line.split(",")[0].removeprefix('{"step": ')) for line in lines]
            assert steps == [1, 2, 3, 4], cut


def test_a_full_disk_under_a_log_warns_once_and_what_is_missing_comes_later(tmp_path, monkeypatch):
    path = tmp_path / "log.jsonl"
    log = pb.callbacks.json_lines_log(path)
    piece = pb.callbacks.Progress(0, 9, {"loss": np.ones(2)}, {}, 0, None, None)
    log(piece)

    def full(*arguments, **more):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", full)
        with pytest.warns(pb.errors.LogWarning, match="No space left on device.*training continues"):
            log(piece._replace(begin=2))
        log(piece._replace(begin=4))  # once
    log(piece._replace(begin=6))
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == list(range(1, 9))


def test_tensorboard_gets_every_scalar():
    seen = []

    class Writer:
        def add_scalar(self, tag, value, step):
            seen.append((tag, step))

    pb.fit(ALGORITHM, DATA, **SETTINGS, run=pb.Run(callbacks=[pb.callbacks.tensorboard_log(Writer())]))
    assert {("loss", step) for step in range(1, 16)} <= set(seen)
    assert {step for tag, step in seen if tag == "validation_nlpd"} == {3, 6, 9, 12, 15}

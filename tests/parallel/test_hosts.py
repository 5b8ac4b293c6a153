"""Several processes as one, over loopback: they find each other, agree, and say what went wrong."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import partialbayes as pb
from partialbayes.io._pytree_file import read_file
from tests.processes import SETTINGS, problem

ROOT = Path(__file__).parents[2]
LIMIT = 150  # seconds after which the processes of a test are killed


def free_port():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


def start(devices, *arguments):
    environment = os.environ | {
        "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
        "XLA_FLAGS": f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count={devices}",
        "JAX_PLATFORMS": "cpu",
    }
    return subprocess.Popen(
        [sys.executable, "-m", "tests.processes", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        cwd=ROOT,
    )


def run_two(what, *arguments):
    """The output and the return codes of two processes, killed if they take too long."""
    port = free_port()
    runs = [start(2, what, port, number, *arguments) for number in range(2)]
    deadline = time.monotonic() + LIMIT
    try:
        outputs = [run.communicate(timeout=max(1, deadline - time.monotonic()))[0] for run in runs]
    finally:
        for run in runs:
            run.kill()
            run.wait()
    return outputs, [run.returncode for run in runs]


def test_a_coordinator_that_is_not_there():
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(
        TimeoutError, match=rf"reached at {address} within 1 seconds \(Connection refused"
    ):
        pb.parallel.initialize(address, num_processes=2, process_id=1, timeout=1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "coordinator is needed: JAX found no Slurm"),
        ({"coordinator": "127.0.0.1:1", "process_id": 0}, "num_processes is needed"),
        (
            {"coordinator": "host", "num_processes": 2, "process_id": 0},
            "must be 'host:port', not 'host'",
        ),
        ({"coordinator": "h:1", "num_processes": 2, "process_id": 2}, "process_id must be from 0 to 1"),
        ({"timeout": 0}, "timeout must be a whole number"),
    ],
)
def test_arguments_that_make_no_sense(arguments, message):
    with pytest.raises(ValueError, match=message):
        pb.parallel.initialize(**arguments)


def test_one_process_has_the_rows_of_all():
    rows = pb.parallel.allgather_rows((np.ones((3, 2)), np.ones(3)))
    assert [part.shape for part in rows] == [(3, 2), (3,)]
    with pytest.raises(ValueError, match="differ in length"):
        pb.parallel.allgather_rows((np.ones((3, 2)), np.ones(4)))


def test_two_processes_find_each_other_by_slurm_and_share_their_rows():
    outputs, codes = run_two("joined")
    assert codes == [0, 0], outputs
    for output in outputs:
        assert "4 2 [0, 0, 1, 1, 1] [0, 0, 1, 1, 1]" in output


def test_two_versions_of_the_library():
    outputs, codes = run_two("other_version")
    assert codes == [0, 0], outputs
    for output in outputs:
        assert "process 0 has partialbayes 0.0 and JAX" in output
        assert "but process 1 has partialbayes 0.1 and JAX" in output


def on_one_device(epochs, **running):
    algorithm, data = problem()
    run = pb.Run(**running)
    return pb.fit(algorithm, data, epochs=epochs, validation=data, run=run, **SETTINGS)


@pytest.mark.slow
def test_two_processes_train_as_one(tmp_path):
    outputs, codes = run_two("train", tmp_path / "run.safetensors", 3, 1000)
    assert codes == [0, 0], outputs
    alone = on_one_device(3)
    algorithm, data = problem()
    refined = pb.refine(algorithm.model, alone.posterior, data, num_particles=64)
    for number in range(2):
        with np.load(tmp_path / f"run.{number}.npz") as stored:
            found = dict(stored)
        np.testing.assert_allclose(found["loss"], alone.history.metrics["loss"], rtol=1e-5)
        np.testing.assert_allclose(found["values"], alone.posterior.particles.values, atol=1e-5)
        mean = pb.predict(algorithm.model, alone.posterior, data[0]).mean
        np.testing.assert_allclose(found["mean"], mean, atol=1e-5)
        np.testing.assert_allclose(found["log_evidence"], refined.log_evidence, rtol=1e-4)
    # Written once, and whole: one device takes it for its own, and has nothing left to do.
    assert sorted(file.suffix for file in tmp_path.iterdir()) == [".npz", ".npz", ".safetensors"]
    again = on_one_device(3, checkpoint=tmp_path / "run.safetensors", resume=True)
    np.testing.assert_allclose(found["values"], again.posterior.particles.values, atol=1e-7)


@pytest.mark.slow
def test_a_process_that_is_killed_ends_the_other_and_the_run_can_go_on(tmp_path):
    path = tmp_path / "run.safetensors"
    before = time.monotonic()
    (survivor, _), codes = run_two("train", path, 300, 20)
    assert time.monotonic() - before < LIMIT
    assert codes[1] == -signal.SIGKILL
    assert codes[0] not in (0, -signal.SIGKILL), survivor  # it ended by itself
    # Where the collective itself does not notice, JAX ends the process when heartbeats are missing.
    assert "another process of this run is gone" in survivor or "another task died" in survivor
    assert 18 <= read_file(path)[1]["step"] < 900
    resumed = on_one_device(300, checkpoint=path, resume=True)
    alone = on_one_device(300)
    np.testing.assert_allclose(resumed.history.metrics["loss"], alone.history.metrics["loss"], atol=1e-5)


@pytest.mark.slow
def test_one_device_resumes_a_run_saved_on_four(tmp_path):
    path = tmp_path / "run.safetensors"
    run = start(4, "train_alone", path)
    output, _ = run.communicate(timeout=LIMIT)
    assert run.returncode == 0, output
    assert 6 <= read_file(path)[1]["step"] < 15
    resumed = on_one_device(5, checkpoint=path, resume=True)
    straight = on_one_device(5)
    assert resumed.history.best_step == straight.history.best_step
    np.testing.assert_allclose(
        resumed.history.metrics["loss"], straight.history.metrics["loss"], rtol=1e-5
    )
    np.testing.assert_allclose(
        resumed.posterior.particles.values, straight.posterior.particles.values, atol=1e-5
    )


def test_a_checkpoint_that_only_some_hosts_see(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "partialbayes._engine.checkpoints.broadcast_from_process_zero", lambda number, shared: not number
    )
    with pytest.raises(pb.errors.CheckpointError, match="exists for one process and not for another"):
        on_one_device(1, checkpoint=tmp_path / "run.safetensors")

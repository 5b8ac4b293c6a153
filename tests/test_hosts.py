"""Several processes as one, over loopback: they find each other, agree, and say what went wrong."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import partialbayes as pb

ROOT = Path(__file__).parents[1]
LIMIT = 150  # seconds after which the processes of a test are killed


def free_port():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


def run_two(what, *arguments):
    """The output and the return codes of two processes, killed if they take too long."""
    port = free_port()
    environment = os.environ | {
        "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
        "JAX_PLATFORMS": "cpu",
    }
    runs = [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.processes",
                what,
                str(port),
                str(number),
                *map(str, arguments),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
            cwd=ROOT,
        )
        for number in range(2)
    ]
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
        pb.parallel.initialise(address, num_processes=2, process_id=1, timeout=1)


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
        pb.parallel.initialise(**arguments)


def test_one_process_has_the_rows_of_all():
    rows = pb.parallel.rows_of_all((np.ones((3, 2)), np.ones(3)))
    assert [part.shape for part in rows] == [(3, 2), (3,)]
    with pytest.raises(ValueError, match="differ in length"):
        pb.parallel.rows_of_all((np.ones((3, 2)), np.ones(4)))


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

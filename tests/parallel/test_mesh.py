"""One run on several devices. They are made in a process of their own: this one has one device."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import partialbayes as pb

ROOT = Path(__file__).parents[2]


def check_on_four_devices(*names):
    script = ROOT / "tests" / "several_devices.py"
    environment = os.environ | {
        "XLA_FLAGS": f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=4",
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
    }
    done = subprocess.run(
        [sys.executable, str(script), *names],
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    wrong = json.loads(done.stdout.splitlines()[-1])
    assert wrong == dict.fromkeys(names, ""), "\n".join(wrong.values())


def test_four_devices_give_what_one_gives_and_send_what_the_formula_says():
    check_on_four_devices("errors", "ohsmc", "map_estimate", "variational", "divided_psi", "collectives")


@pytest.mark.slow
def test_everything_else_runs_on_four_devices():
    check_on_four_devices(
        "chunks",
        "convolution",
        "ensemble",
        "islands",
        "other_meshes",
        "particles_with_rows_of_their_own",
        "refine_and_predict",
        "resumed",
        "second_stage",
        "sgsmc",
        "streamed",
        "trajectory",
    )


def test_one_device_is_a_mesh_too():
    mesh = pb.parallel.mesh()
    assert dict(mesh.shape) == {"particle": 1, "data": 1, "psi": 1}
    with pytest.raises(ValueError, match=r"JAX sees only 1.*xla_force_host_platform_device_count=2"):
        pb.parallel.mesh(particle=2)
    with pytest.raises(ValueError, match="data must be a whole number"):
        pb.parallel.mesh(data=0)

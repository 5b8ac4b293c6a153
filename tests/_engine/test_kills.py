"""A run that is killed, however often, ends with the bits of one that was left alone."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import partialbayes.io._pytree_file as file


def start_run(path, mode, epochs):
    root = Path(__file__).parents[2]
    environment = os.environ | {"PYTHONPATH": f"{root / 'src'}:{root}"}
    command = [sys.executable, "-m", "tests.kills", "--run", str(path), mode, str(epochs)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def kill_many_times(tmp_path, mode, kills, epochs):
    """Kill a run at random moments, then let it end; compare with one that was left alone."""
    straight = start_run(tmp_path / "straight.safetensors", mode, epochs).communicate(timeout=600)[0]
    assert len(straight.splitlines()) == 2  # it came to its end
    path = tmp_path / "killed.safetensors"
    rng = np.random.default_rng(kills)
    done = [0]
    for _ in range(kills):
        run = start_run(path, mode, epochs)
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
        _, description = file.read_file(path)
        done.append(description["seen" if mode == "online" else "step"])
        assert done[-1] >= done[-2]
    assert done[-1] > 0
    assert start_run(path, mode, epochs).communicate(timeout=600)[0] == straight
    left = sorted(each.name for each in tmp_path.iterdir())
    assert left == ["killed.safetensors", "straight.safetensors"]  # nothing stray


def test_killed_for_good_and_resumed(tmp_path):
    kill_many_times(tmp_path, "fit", kills=2, epochs=100)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["fit", "source", "many", "stage", "online"])
def test_killed_many_times(tmp_path, mode):
    kill_many_times(tmp_path, mode, kills=20, epochs=400)

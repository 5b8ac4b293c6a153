"""A run that is killed, however often, ends with the bits of one that was left alone."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

import partialbayes.io._pytree_file as file

RUN = """
    import sys
    from pathlib import Path
    import jax
    import numpy as np
    import partialbayes as pb
    from tests.oracles import conjugate

    path, mode, epochs = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    oracle = conjugate()
    data = x, y = np.asarray(oracle.inputs), np.asarray(oracle.targets)
    algorithm = pb.ohsmc(oracle.model, num_particles=64)
    run = pb.Run(checkpoint=pb.training.Checkpoints(path, every_steps=5), resume=True)
    settings = {"epochs": epochs, "validation": pb.Validation(data, every=1), "run": run}

    def tell(*trees):
        sums = [float(np.asarray(leaf, np.float64).sum()) for leaf in jax.tree.leaves(trees)]
        print(*sums, flush=True)

    print("started", flush=True)
    if mode == "arrays":
        trained = pb.fit(algorithm, data, batch_size=5, **settings)
        tell(trained.posterior, trained.history.metrics, trained.history.best_step)
    elif mode == "stream":
        stream = pb.training.data_source(data, batch_size=5)
        trained = pb.fit(algorithm, stream, **settings)
        tell(trained.posterior, trained.history.metrics, trained.history.best_step)
    elif mode == "many":
        runs = pb.fit_many(algorithm, data, batch_size=5, repeats=3, **settings)
        tell([(each.posterior, each.history.metrics) for each in runs])
    elif mode == "second stage":
        averaging = pb.algorithms.swag(oracle.model, num_particles=8, rank=2, num_warmup=0)
        stage = pb.training.continue_training(averaging, num_steps=50, batch_size=5)
        staged = pb.two_stage(algorithm, stage)
        trained = pb.fit(staged, data, batch_size=5, **settings)
        tell(trained.posterior, trained.history.metrics)
    else:
        learner = pb.ohsmc(oracle.model, num_particles=64, kernel=pb.kernels.forgetting("diagonal"))
        if path.exists():
            online = pb.online.restore(path, learner, data, window_size=20)
        else:
            online = pb.online.start(learner, (x[:2], y[:2]), window_size=20)
        while online.seen < 12 * epochs:
            rows = (online.seen + np.arange(2)) % len(y)
            online, _ = pb.online.update(online, (x[rows], y[rows]), num_replays=3, batch_size=5)
            pb.online.save(path, online)
        tell(online.state, online.memory)
"""


def start_run(path, mode, epochs):
    root = Path(__file__).parents[2]
    environment = os.environ | {"PYTHONPATH": f"{root / 'src'}:{root}"}
    command = [sys.executable, "-c", textwrap.dedent(RUN), str(path), mode, str(epochs)]
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
    kill_many_times(tmp_path, "arrays", kills=2, epochs=100)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["arrays", "stream", "many", "second stage", "online"])
def test_killed_many_times(tmp_path, mode):
    kill_many_times(tmp_path, mode, kills=20, epochs=400)

"""What each process of the tests of several processes runs: ``python -m tests.processes <what> …``.

Two CPU devices each, joined over loopback by gloo.
"""

import contextlib
import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np

import partialbayes as pb
from partialbayes.parallel import _hosts
from tests.oracles import conjugate

SETTINGS = {"batch_size": 10, "key": 3}


def problem():
    oracle = conjugate()
    return pb.ohsmc(oracle.model, num_particles=16, kernel=pb.kernels.random_walk(0.01)), (
        oracle.inputs,
        oracle.targets,
    )


def join(port, number, count=2):
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    pb.parallel.initialize(
        f"127.0.0.1:{port}",
        num_processes=count,
        process_id=int(number),
        timeout=60,
        heartbeat_timeout=10,
    )


def joined(port, number):
    """Slurm's way: nothing is passed."""
    os.environ |= {
        "SLURM_JOB_ID": "1",
        "SLURM_STEP_NODELIST": "127.0.0.1",
        "SLURM_NTASKS": "2",
        "SLURM_PROCID": number,
        "SLURM_LOCALID": number,
        "JAX_COORDINATOR_PORT": port,
    }
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    pb.parallel.initialize(timeout=60, heartbeat_timeout=10)
    own = np.full((2 + int(number), 1), int(number))
    rows = pb.parallel.allgather_rows({"x": own, "y": own[:, 0]})
    print(jax.device_count(), jax.local_device_count(), rows["x"][:, 0].tolist(), rows["y"].tolist())


def other_version(port, number):
    _hosts.metadata = SimpleNamespace(version=lambda name: f"0.{number}")
    try:
        join(port, number)
    except RuntimeError as error:
        print(error)


def train(port, number, path, epochs, dies_at):
    join(port, number)
    algorithm, data = problem()
    half = slice(0, 15) if number == "0" else slice(15, None)
    data = pb.parallel.allgather_rows(tuple(np.asarray(part)[half] for part in data))
    mesh = pb.parallel.mesh(particle=4)

    def die(progress):
        if number == "1" and progress.begin >= int(dies_at):
            os.kill(os.getpid(), signal.SIGKILL)

    every = 3
    if number == "1":  # it is process 0 that says when to save, and that writes
        path, every = path.replace(".safetensors", ".not_written"), 5
    trained = pb.fit(
        algorithm,
        data,
        epochs=int(epochs),
        validation=data,
        run=pb.Run(
            mesh=mesh, checkpoint=pb.training.Checkpoints(path, every_steps=every), callbacks=[die]
        ),
        **SETTINGS,
    )
    refined = pb.refine(algorithm.model, trained.posterior, data, num_particles=64, mesh=mesh)
    assert refined.posterior.particles.values.is_fully_addressable  # whole on every host
    np.savez(
        Path(path).with_suffix(f".{number}.npz"),
        log_evidence=refined.log_evidence,
        loss=trained.history.metrics["loss"],
        values=trained.posterior.particles.values,
        mean=pb.predict(algorithm.model, trained.posterior, data[0]).mean,
    )


def train_alone(path):
    """Four devices of one process; stopped half-way."""

    def stop(progress):
        if progress.begin >= 6:
            raise KeyboardInterrupt

    algorithm, data = problem()
    saved = pb.training.Checkpoints(path, every_steps=3)
    with contextlib.suppress(KeyboardInterrupt):
        pb.fit(
            algorithm,
            data,
            epochs=5,
            validation=data,
            run=pb.Run(mesh=pb.parallel.mesh(particle=4), checkpoint=saved, callbacks=[stop]),
            **SETTINGS,
        )


if __name__ == "__main__":
    what, *arguments = sys.argv[1:]
    globals()[what](*arguments)
    sys.stdout.flush()

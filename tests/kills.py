"""Processes killed while they write: what is left, and what the next one does with it.

``python tests/kills.py --kills 100`` kills as many processes that save one model over another again and
again, and as many that learn from a stream and save after every update, each at a random moment. After
each kill:

- the model loads, and is one that was saved whole: to the bit, and none older than the last one that
  ``save`` had returned from;
- the next save leaves nothing behind but the model.

No test and not part of CI. It prints one line for each of the two, and the failures.
"""

import argparse
import contextlib
import os
import random
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import partialbayes as pb

X = np.random.default_rng(0).normal(size=(64, 2))
Y = X[:, 0] - X[:, 1] ** 2


def _posterior(model: Any, version: int) -> Any:
    """The posterior that a version of the model has, large enough for its writing to take a moment."""
    import jax
    import jax.numpy as jnp

    shapes = jax.eval_shape(lambda key: model.init(key).psi, jax.random.key(0))
    psi = jax.tree.map(lambda leaf: jnp.asarray(np.full(leaf.shape, version), leaf.dtype), shapes)
    count = 20_000
    values = jnp.asarray(np.full((count, model.split.dim), version), jnp.float32)
    weights = jnp.asarray(np.full(count, -np.log(count)), jnp.float32)
    return pb.types.Posterior(psi, pb.types.Particles(values, weights))


def _model() -> Any:
    return pb.partial_bnn(pb.mlp([2, 4, 1]), "layers/0/*", pb.gaussian())


def save_again_and_again(folder: Path, version: int, tell: Callable[[int], None]) -> None:
    """Save one version over the other until killed, telling each that is done."""
    model = _model()
    while True:
        version += 1
        pb.save(
            folder / "model",
            model,
            _posterior(model, version),
            metadata={"version": version},
            overwrite=True,
        )
        tell(version)


def check_saved(folder: Path, told: int) -> int:
    """The version that is there, after checks that it is whole and not too old."""
    saved = pb.load(folder / "model")
    version = int(saved.metadata["version"])
    assert version >= told, f"version {told} was saved, but {version} is there"
    assert np.all(np.asarray(saved.posterior.particles.values) == version), "another version's particles"
    pb.save(
        folder / "model", saved.model, saved.posterior, metadata={"version": version}, overwrite=True
    )
    return version


def learn_and_save(folder: Path, version: int, tell: Callable[[int], None]) -> None:
    """Learn from a stream and save after each update until killed, telling each that is done."""
    path = folder / "model"
    if path.exists():
        stream = pb.PartialBNNRegressor.load(path)
    else:
        stream = pb.PartialBNNRegressor((4,), num_particles=20, n_replays=1, random_state=0)
    while True:
        rows = np.random.default_rng(version).integers(0, 64, 32)
        stream.partial_fit(X[rows], Y[rows])
        version += 1
        stream.save(path, overwrite=True, notes={"version": version})
        tell(version)


def check_stream(folder: Path, told: int) -> int:
    """The version that is there, after checks that it predicts and is not too old."""
    stream = pb.PartialBNNRegressor.load(folder / "model")
    version = int(pb.load(folder / "model").metadata["notes"]["version"])
    assert version >= told, f"version {told} was saved, but {version} is there"
    assert np.isfinite(stream.predict(X[:4])).all()
    stream.save(folder / "model", overwrite=True, notes={"version": version})
    return version


def _in_a_process(act: Callable[[Callable[[int], None]], int]) -> tuple[int, int]:
    """Start a process; its number, and the end of the pipe that it tells numbers through."""
    reader, writer = os.pipe()
    child = os.fork()  # nothing has been computed here yet, so JAX has no threads
    if child == 0:
        os.close(reader)
        status = 1
        try:
            warnings.simplefilter("ignore")
            cache = Path(tempfile.gettempdir(), "partialbayes-kills")  # or most of the time goes there
            with pb.io.compilation_cache(cache):
                status = act(lambda number: os.write(writer, f"{number}\n".encode()) and None)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(writer)
    return child, reader


def _told(reader: int) -> list[int]:
    with os.fdopen(reader, "rb") as stream:
        return [int(line) for line in stream.read().splitlines() if line]


def kill_again_and_again(
    work: Callable[[Path, int, Callable[[int], None]], None],
    check: Callable[[Path, int], int],
    kills: int,
    seconds: float,
    longest: float,
) -> tuple[int, list[str]]:
    """Kill workers at random moments; how many kills there were, and what was wrong."""
    rng = random.Random(0)
    wrong: list[str] = []
    version, done, end = 0, 0, time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        while done < kills and time.monotonic() < end:

            def run(tell: Callable[[int], None], version: int = version) -> int:
                work(folder, version, tell)
                return 0

            child, reader = _in_a_process(run)
            first = os.read(reader, 16)  # wait until it is at work
            time.sleep(rng.random() * longest)
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            numbers = [int(line) for line in first.splitlines() if line] + _told(reader)
            if not numbers:
                wrong.append("the worker failed before its first save")
                break
            told = max(numbers)
            done += 1
            version = told

            def inspect(tell: Callable[[int], None], told: int = told) -> int:
                tell(check(folder, told))
                left = sorted(file.name for file in folder.iterdir())
                inside = sorted(file.name for file in (folder / "model").iterdir())
                assert left == ["model"], left
                assert len(inside) == 2, inside
                return 0

            child, reader = _in_a_process(inspect)
            found = _told(reader)
            if os.waitpid(child, 0)[1] != 0 or not found:
                wrong.append(f"after kill {done} (version {told})")
                continue
            version = found[0]
    return done, wrong


def main() -> int:
    """Kill what was asked for; 1 if anything was lost or left."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=100, help="of each, at most")
    parser.add_argument("--seconds", type=float, default=900.0, help="for each, at most")
    parser.add_argument("--what", nargs="*", default=["save", "stream"])
    asked = parser.parse_args()
    works: dict[str, tuple[Any, Any, float]] = {
        "save": (save_again_and_again, check_saved, 0.2),
        "stream": (learn_and_save, check_stream, 0.3),
    }
    failed = False
    for name in asked.what:
        work, check, longest = works[name]
        begun = time.monotonic()
        done, wrong = kill_again_and_again(work, check, asked.kills, asked.seconds, longest)
        failed |= bool(wrong) or done == 0
        sys.stdout.write(f"{name}: {done} kills, {len(wrong)} wrong; {time.monotonic() - begun:.0f} s\n")
        sys.stdout.write("".join(f"  {text}\n" for text in wrong[:10]))
        sys.stdout.flush()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

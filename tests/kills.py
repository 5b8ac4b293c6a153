"""Processes killed while they write: what is left, and what the next one does with it.

``python tests/kills.py --kills 100`` kills as many processes of each kind, each at a random moment.

Those that write again and again: one saves a model over another (``save``), one an estimator with kernel
machines (``estimator``), and one learns from a stream and saves after every update (``stream``). After
each kill the model loads, and is one that was saved whole: to the bit, and none older than the last one
that ``save`` had returned from.

Those that have an end, and go on from their checkpoint in the next process: ``fit``, ``fit_many``, a
second stage, ``pb.online`` and the command line. Each life begins no earlier than the one before, and
the end has the same bits as that of a run which was left alone.

The next process leaves nothing behind but what it was to write. No test and not part of CI. It prints
one line for each kind, and the failures. ``--run PATH KIND EPOCHS`` is one run, for the tests.
"""

import argparse
import contextlib
import io
import os
import random
import shutil
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


def save_estimator(folder: Path, version: int, tell: Callable[[int], None]) -> None:
    """Save versions of an estimator, one over the other, until killed, telling each that is done."""
    path = folder / "model"
    if path.exists():
        estimator = pb.PartialBNNRegressor.load(path)
    else:
        made = pb.PartialBNNRegressor((4,), num_particles=2, n_folds=2, max_iter=1, random_state=0)
        estimator = made.fit(X, Y)
    while True:
        version += 1
        psi = estimator.posterior_.psi
        weights = np.full_like(psi.network["kernel/weights"], version)
        psi = psi._replace(network={**psi.network, "kernel/weights": weights})
        estimator.posterior_ = estimator.posterior_._replace(psi=psi)
        estimator._folds = (np.roll(np.arange(len(X)) % 2, version), psi.likelihood)
        estimator.oof_predictive_ = None
        estimator.save(path, overwrite=True, notes={"version": version})
        tell(version)


def check_estimator(folder: Path, told: int) -> int:
    """The version that is there, after checks that it is whole, predicts and is not too old."""
    estimator = pb.PartialBNNRegressor.load(folder / "model")
    version = int(pb.load(folder / "model").metadata["notes"]["version"])
    assert version >= told, f"version {told} was saved, but {version} is there"
    weights = np.asarray(estimator.posterior_.psi.network["kernel/weights"])
    assert np.all(weights == version), "another version's kernel machines"
    assert np.array_equal(estimator._folds[0], np.roll(np.arange(len(X)) % 2, version)), "other folds"
    assert np.isfinite(estimator.predict(X[:4])).all()
    estimator.save(folder / "model", overwrite=True, notes={"version": version})
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


def _progress(kills: int, wrong: list[str]) -> None:
    """Tell of every tenth kill, so that a run cut short has shown something."""
    if kills % 10 == 0:
        sys.stderr.write(f"{kills} kills, {len(wrong)} wrong\n")
        sys.stderr.flush()


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
            _progress(done, wrong)
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


def run_to_its_end(path: Path, kind: str, epochs: int) -> list[float]:
    """Go on with the run of a kind that is at a path, save it every few steps; sums of its result."""
    import jax

    from tests.oracles import conjugate

    oracle = conjugate()
    data = x, y = np.asarray(oracle.inputs), np.asarray(oracle.targets)
    algorithm = pb.ohsmc(oracle.model, num_particles=64)
    run = pb.Run(checkpoint=pb.training.Checkpoints(path, every_steps=5), resume=True)
    settings: dict[str, Any] = {"epochs": epochs, "validation": pb.Validation(data, every=1), "run": run}
    found: Any
    if kind == "fit":
        trained = pb.fit(algorithm, data, batch_size=5, **settings)
        found = trained.posterior, trained.history.metrics, trained.history.best_step
    elif kind == "source":
        trained = pb.fit(algorithm, pb.training.data_source(data, batch_size=5), **settings)
        found = trained.posterior, trained.history.metrics, trained.history.best_step
    elif kind == "many":
        runs = pb.fit_many(algorithm, data, batch_size=5, repeats=3, **settings)
        found = [(each.posterior, each.history.metrics) for each in runs]
    elif kind == "stage":
        averaging = pb.algorithms.swag(oracle.model, num_particles=8, rank=2, num_warmup=0)
        stage = pb.training.continue_training(averaging, num_steps=50, batch_size=5)
        trained = pb.fit(pb.two_stage(algorithm, stage), data, batch_size=5, **settings)
        found = trained.posterior, trained.history.metrics
    elif kind == "online":
        learner = pb.ohsmc(oracle.model, num_particles=64, kernel=pb.kernels.forgetting("diagonal"))
        if path.exists():
            online = pb.online.restore(path, learner, data, window_size=20)
        else:
            online = pb.online.start(learner, (x[:2], y[:2]), window_size=20)
        while online.seen < 12 * epochs:
            rows = (online.seen + np.arange(2)) % len(y)
            online, _ = pb.online.update(online, (x[rows], y[rows]), num_replays=3, batch_size=5)
            pb.online.save(path, online)
        found = online.state, online.memory
    else:
        found = _by_command(path, epochs)
    return [float(np.asarray(leaf, np.float64).sum()) for leaf in jax.tree.leaves(found)]


def _by_command(path: Path, epochs: int) -> Any:
    """Train by the command line, whose checkpoint is at the path while it trains."""
    from partialbayes.cli._main import main as command_line

    pb.training.Checkpoints.__new__.__defaults__ = (60.0, 5)  # type: ignore[attr-defined]
    table = path.with_name("table.csv")
    if not table.exists():
        rows = "".join(f"{a:.4f},{b:.4f},{y:.4f}\n" for (a, b), y in zip(X, Y, strict=True))
        table.write_text("a,b,y\n" + rows)
    out = path.with_suffix("")
    command = ["fit", str(table), "--target", "y", "--out", str(out), "--resume", "--overwrite"]
    command += ["--method", "ohsmc", "--hidden-layer-sizes", "4", "--num-particles", "20"]
    with contextlib.redirect_stdout(io.StringIO()):
        code = command_line([*command, "--max-iter", str(epochs), "--n-iter-no-change", "None"])
    assert code == 0, code
    assert not path.exists(), "the checkpoint is still there"
    return pb.load(out).posterior


def seen_of(path: Path) -> int:
    """How far a run is by its checkpoint; -1 if there is none."""
    from partialbayes.io._pytree_file import read_file

    if not path.exists():
        return -1
    _, description = read_file(path)
    return int(description["seen" if "seen" in description else "step"])


def _sums_of(path: Path, kind: str, epochs: int) -> str:
    """The result of a run that is left alone, in a process of its own."""

    def act(tell: Callable[[int], None]) -> int:
        path.with_suffix(".sums").write_text(repr(run_to_its_end(path, kind, epochs)))
        return 0

    child, reader = _in_a_process(act)
    os.close(reader)
    assert os.waitpid(child, 0)[1] == 0, f"a run of {kind} failed"
    sums = path.with_suffix(".sums").read_text()
    path.with_suffix(".sums").unlink()
    return sums


def kill_runs(kind: str, kills: int, seconds: float, epochs: int) -> tuple[int, list[str]]:
    """Kill runs that have an end at random moments; how many kills there were, and what was wrong."""
    rng = random.Random(0)
    wrong: list[str] = []
    done, ends, seen, end = 0, 0, -1, time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as name:
        alone, folder = Path(name, "alone"), Path(name, "killed")
        alone.mkdir()
        straight = _sums_of(alone / "run.checkpoint", kind, epochs)
        wanted = sorted(file.name for file in alone.iterdir())

        def compare() -> None:
            if _sums_of(folder / "run.checkpoint", kind, epochs) != straight:
                wrong.append(f"after kill {done}: not the bits of a run that was left alone")
            if (left := sorted(file.name for file in folder.iterdir())) != wanted:
                wrong.append(f"after kill {done}: there is {left} instead of {wanted}")
            shutil.rmtree(folder)

        while done < kills and time.monotonic() < end:
            folder.mkdir(exist_ok=True)
            path = folder / "run.checkpoint"

            def act(tell: Callable[[int], None], path: Path = path) -> int:
                tell(seen_of(path))
                run_to_its_end(path, kind, epochs)
                return 0

            before = path.stat().st_mtime_ns if path.exists() else 0
            child, reader = _in_a_process(act)
            now = before
            while now == before and os.waitpid(child, os.WNOHANG)[0] == 0:
                time.sleep(0.002)
                with contextlib.suppress(FileNotFoundError):
                    now = path.stat().st_mtime_ns
            ended = now == before
            if not ended:
                time.sleep(rng.random() * 0.2)
                ended = os.waitpid(child, os.WNOHANG)[0] != 0
                if not ended:
                    os.kill(child, signal.SIGKILL)
                    os.waitpid(child, 0)
                    done += 1
                    _progress(done, wrong)
            began = _told(reader)
            if not began or began[0] < seen:
                wrong.append(f"kill {done}: a life began at {began}, the one before at {seen}")
            seen = began[0] if began else seen
            if ended or done % 20 == 0:  # so that there is something to compare in a short time too
                compare()
                ends, seen = ends + 1, -1
        if folder.exists():
            compare()
            ends += 1
    if done and not ends:
        wrong.append("no run came to its end")
    return done, wrong


def main() -> int:
    """Kill what was asked for; 1 if anything was lost or left."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=100, help="of each, at most")
    parser.add_argument("--seconds", type=float, default=900.0, help="for each, at most")
    runs = {"fit": 200, "many": 100, "stage": 200, "online": 100, "command": 400}  # epochs
    parser.add_argument("--what", nargs="*", default=["save", "estimator", "stream", *runs])
    parser.add_argument("--run", nargs=3, metavar=("PATH", "KIND", "EPOCHS"))
    asked = parser.parse_args()
    if asked.run:
        sys.stdout.write("started\n")
        sys.stdout.flush()
        path, kind, epochs = asked.run
        sys.stdout.write(f"{run_to_its_end(Path(path), kind, int(epochs))}\n")
        return 0
    works: dict[str, tuple[Any, Any, float]] = {
        "save": (save_again_and_again, check_saved, 0.2),
        "estimator": (save_estimator, check_estimator, 0.2),
        "stream": (learn_and_save, check_stream, 0.3),
    }
    failed = False
    for name in asked.what:
        begun = time.monotonic()
        if name in runs:
            done, wrong = kill_runs(name, asked.kills, asked.seconds, runs[name])
        else:
            work, check, longest = works[name]
            done, wrong = kill_again_and_again(work, check, asked.kills, asked.seconds, longest)
        failed |= bool(wrong) or done == 0
        sys.stdout.write(f"{name}: {done} kills, {len(wrong)} wrong; {time.monotonic() - begun:.0f} s\n")
        sys.stdout.write("".join(f"  {text}\n" for text in wrong[:10]))
        sys.stdout.flush()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

"""A long day: does memory, or anything else that a process has only so much of, grow without end?

``python tests/soak.py`` trains a million steps, predicts ten thousand times at varying numbers of rows,
makes five thousand online updates and loads a model five hundred times. For each it prints resident
memory, memory maps, open files and threads at the start, in the middle and at the end. ``--share 0.01``
does a hundredth of all that, and ``--seconds`` bounds each part. Linux only. No test and not part of CI.
"""

import argparse
import gc
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import partialbayes as pb

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2000, 3))
Y = X[:, 0] - X[:, 1] ** 2


class Use(NamedTuple):
    """What the process holds.

    Attributes:
        megabytes: Resident memory.
        maps: Memory maps; Linux allows 65,530.
        files: Open file descriptors.
        threads: Threads.
    """

    megabytes: int
    maps: int
    files: int
    threads: int


def use() -> Use:
    """What the process holds now."""
    gc.collect()
    own = Path("/proc/self")
    pages = int((own / "statm").read_text().split()[1])
    maps = len((own / "maps").read_text().splitlines())
    counts = (len(list((own / name).iterdir())) for name in ("fd", "task"))
    return Use(pages * 4096 // 2**20, maps, *counts)


def train(num: int) -> Callable[[], Any]:
    """Runs of 1000 steps each."""
    model = pb.partial_bnn(pb.mlp([3, 4, 1]), pb.subsets.layer(-1), pb.gaussian(pb.learned(0.5)))
    algorithm = pb.ohsmc(model, num_particles=10)
    return lambda: pb.fit(algorithm, (X[:100], Y[:100]), epochs=100, batch_size=10, key=num)


def parts(folder: Path, share: float) -> dict[str, tuple[int, Callable[[int], Any], str]]:
    """How often each thing is done, and how."""
    small = {"hidden_layer_sizes": (8,), "num_particles": 20, "random_state": 0}
    trained = pb.PartialBNNRegressor(max_iter=2, **small).fit(X[:200], Y[:200])
    trained.save(folder / "model")
    stream = pb.PartialBNNRegressor(n_replays=2, **small).partial_fit(X[:64], Y[:64])
    run = train(0)

    def predict(index: int) -> None:
        rows = int(RNG.integers(1, 2000))
        trained.predict(X[:rows], return_std=True)

    def update(index: int) -> None:
        begin = int(RNG.integers(0, 1900))
        stream.partial_fit(X[begin : begin + 20], Y[begin : begin + 20])

    def load(index: int) -> None:
        saved = pb.load(folder / "model")
        np.asarray(pb.predict(saved.model, saved.posterior, X[:8].astype(np.float32)).mean)

    def times(number: int) -> int:
        return max(3, int(share * number))

    return {
        "steps": (times(1000), lambda index: run(), "1000 steps of training each"),
        "predictions": (times(10_000), predict, "predictions of 1 to 2000 rows"),
        "updates": (times(5000), update, "online updates"),
        "loads": (times(500), load, "loads, with a prediction each"),
    }


def soak(act: Callable[[int], Any], number: int, seconds: float) -> tuple[int, list[Use]]:
    """Do a thing so many times, or as often as time allows; the use at start, middle and end."""
    act(0)  # what the first time compiles and allocates belongs to no growth
    seen = [use()]
    middle, begun = None, time.monotonic()
    done = 0
    for index in range(1, number + 1):
        act(index)
        done = index
        spent = time.monotonic() - begun
        if middle is None and (index * 2 >= number or spent * 2 >= seconds):
            middle = use()
        if spent >= seconds:
            break
    return done, [*seen, middle or use(), use()]


def main() -> int:
    """Soak, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--share", type=float, default=1.0, help="of the whole day")
    parser.add_argument("--seconds", type=float, default=3600.0, help="for each part, at most")
    parser.add_argument("--parts", nargs="*", default=["steps", "predictions", "updates", "loads"])
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    sys.stdout.write(
        f"{'':<14}{'times':>7}  {'':<8}" + "".join(f"{name:>10}" for name in Use._fields) + "\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        for name, (number, act, what) in parts(Path(folder), asked.share).items():
            if name not in asked.parts:
                continue
            done, seen = soak(act, number, asked.seconds)
            for moment, held in zip(("start", "middle", "end"), seen, strict=True):
                values = "".join(f"{value:>10}" for value in held)
                sys.stdout.write(f"{name:<14}{done:>7}  {moment:<8}{values}\n")
            sys.stdout.write(f"  ({what})\n")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Mutants of saved files: does each load as what it was, or is it refused in one sentence?

``python tests/fuzz.py --mutants 3000 --seconds 600`` makes that many mutants of each of the four kinds
of files: model folders, estimator folders, exported predictors and checkpoints of runs. Half are
damaged as disks and networks do it (bits, holes, truncation, repeats). The others are crafted: single
values in the JSON and the arrays are replaced, and the checksums made to match. What must hold:

- a damaged file is refused by a `CheckpointError`, or holds the same content to the bit;
- a crafted one is refused likewise, or is a valid file: it loads, and what it holds is finite; or it is
  a run that diverges, and says so;
- no other exception, no crash, no warning, no memory without bound.

No test and not part of CI. It prints one line per kind, the first failures, and its peak memory.
"""

import argparse
import copy
import gzip
import json
import random
import resource
import shutil
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import partialbayes as pb
from partialbayes.io._model_folder import _digest
from partialbayes.io._pytree_file import read_file, save_tree

X = np.random.default_rng(0).normal(size=(40, 2))  # the fewest rows of an estimator with kernel machines
Y = X[:, 0] - X[:, 1] ** 2
ODD = [
    *(None, True, False, 0, -1, 7, 1.5, -2.5, 1e300, float("nan"), float("inf"), 2**70, "", "x"),
    *("../../etc/passwd", "relu", [], [1], [[]], {}, {"a": 1}, ["x"] * 3, "os.system"),
]


class Kind(NamedTuple):
    """One kind of file.

    Attributes:
        name: What it is called.
        files: The files below the folder that are damaged.
        read: ``folder -> content``, arrays and numbers, as a user reads it.
        craft: ``(random, folder) -> None``, changes one value and the checksums; None where anything
            crafted is a program of its own.
    """

    name: str
    files: tuple[str, ...]
    read: Callable[[Path], Any]
    craft: Callable[[random.Random, Path], None] | None


def damage(rng: random.Random, content: bytes) -> bytes:
    """The content as a bad disk or network would give it back."""
    data = bytearray(content)
    size = max(len(data), 1)
    how = rng.randrange(7)
    if how == 0:
        data[rng.randrange(size)] ^= 1 << rng.randrange(8)
    elif how == 1:
        del data[rng.randrange(size) :]
    elif how == 2:
        place = rng.randrange(size)
        data[place : place + rng.randrange(1, 64)] = bytes(rng.randrange(1, 64))
    elif how == 3:
        place = rng.randrange(size)
        data[place : place + 8] = rng.randbytes(8)
    elif how == 4:
        data += rng.randbytes(rng.randrange(1, 64))
    elif how == 5:
        place = rng.randrange(size)
        data[place:place] = data[place : place + rng.randrange(1, 200)]
    else:
        data = bytearray(rng.randbytes(rng.randrange(200)))
    return bytes(data)


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path to every value in a tree of JSON."""
    inner: Any = ()
    if isinstance(value, dict | list):
        inner = value.items() if isinstance(value, dict) else enumerate(value)
    return [path, *(place for key, item in inner for place in _places(item, (*path, key)))]


def craft_json(rng: random.Random, value: Any) -> Any:
    """The tree with one value replaced, removed or repeated."""
    value = copy.deepcopy(value)
    path = rng.choice(_places(value))
    if not path:
        return rng.choice(ODD)
    holder = value
    for key in path[:-1]:
        holder = holder[key]
    how = rng.randrange(4)
    if how == 0:
        del holder[path[-1]]
    elif how == 1 and isinstance(holder, list):
        holder.append(copy.deepcopy(holder[path[-1]]))
    elif how == 2 and isinstance(holder[path[-1]], int | float):
        holder[path[-1]] = holder[path[-1]] * rng.choice([-1, 0, 2, 0.5, 1e9]) + rng.choice([0, 1])
    else:
        holder[path[-1]] = rng.choice(ODD)
    return value


def craft_arrays(rng: random.Random, arrays: dict[str, Any]) -> dict[str, Any]:
    """The arrays with one of them changed in shape, dtype or value, removed or renamed."""
    arrays = dict(arrays)
    name = rng.choice(sorted(arrays))
    array = np.array(arrays[name])
    how = rng.randrange(8)
    if how == 0:
        del arrays[name]
    elif how == 1:
        arrays[name + "x"] = arrays.pop(name)
    elif how == 2:
        arrays[name] = array.astype(rng.choice([np.float16, np.float64, np.int32, np.uint8]))
    elif how == 3:
        arrays[name] = array[None]
    elif how == 4:
        arrays[name] = array.reshape(-1)[: array.size // 2]
    elif how == 5 and array.dtype.kind == "f" and array.size:
        array.reshape(-1)[rng.randrange(array.size)] = rng.choice([np.nan, np.inf, -np.inf, 1e30])
        arrays[name] = array
    elif how == 6:
        arrays[name] = np.concatenate([np.atleast_1d(array)] * 2)
    else:
        arrays[name] = np.zeros_like(array)
    return arrays


def craft_folder(rng: random.Random, folder: Path) -> None:
    """Change one value of a model folder, and make the checksums match."""
    path = folder / "model.json"
    description = json.loads(path.read_text())
    file = folder / description["arrays"]
    arrays, _ = read_file(file)
    if rng.random() < 0.7:
        description = craft_json(rng, description)
    else:
        arrays = craft_arrays(rng, arrays)
    text = json.dumps(description)
    if rng.random() < 0.01:
        text = "[" * 50_000
    path.write_text(text)
    save_tree(file, arrays, {"description": _digest(text)})


def craft_checkpoint(rng: random.Random, folder: Path) -> None:
    """Change one value of a checkpoint, and make the checksum match."""
    file = folder / "run.safetensors"
    arrays, description = read_file(file)
    if rng.random() < 0.5:
        changed = craft_json(rng, description)
        description = changed if isinstance(changed, dict) else {"kind": changed}
    else:
        arrays = craft_arrays(rng, arrays)
    save_tree(file, arrays, description)


def _numbers(tree: Any) -> list[Any]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree) if np.asarray(leaf).dtype.kind in "biuf"]


def _bytes(content: Any) -> list[Any]:
    return [(part.dtype.str, part.shape, part.tobytes()) for part in _numbers(content)]


def make(folder: Path) -> list[Kind]:
    """The files to make mutants of, and how each kind is read."""
    model = pb.partial_bnn(pb.mlp([2, 4, 1]), "layers/0/*", pb.gaussian(pb.learned(0.5)))
    algorithm = pb.ohsmc(model, num_particles=5)
    checkpoint = pb.training.Checkpoints(folder / "run" / "run.safetensors", every_steps=2)
    settings: dict[str, Any] = {"epochs": 4, "batch_size": 6}
    trained = pb.fit(algorithm, (X, Y), run=pb.Run(checkpoint=checkpoint), **settings)
    scale = pb.prediction.TargetScale(3.0, 2.0)
    notes = {"why": ["a", 1]}
    pb.save(
        folder / "model",
        model,
        trained.posterior,
        history=trained.history,
        target_scale=scale,
        metadata=notes,
    )
    made = pb.PartialBNNRegressor((4,), num_particles=2, n_folds=2, max_iter=1, random_state=0)
    estimator = made.fit(X, Y)
    assert estimator.oof_predictive_ is not None  # its arrays are saved too
    assert "kernel/weights" in estimator.posterior_.psi.network
    estimator.save(folder / "estimator")
    (folder / "predictor").mkdir()
    pb.export(folder / "predictor" / "predictor", model, trained.posterior, X)
    like = jax.eval_shape(model.init, jax.random.key(0))

    def read_model(place: Path) -> Any:
        saved = pb.load(place)
        outputs = jax.eval_shape(saved.model.outputs, *like, jax.ShapeDtypeStruct((3, 2), jnp.float32))
        return saved.posterior, saved.history, saved.target_scale, outputs.shape

    def read_estimator(place: Path) -> Any:
        found = pb.PartialBNNRegressor.load(place)
        how = "bayesian" if getattr(found, "_conformity", None) is None else "conformal"
        low, high = found.predict_interval(X, 0.5, how)
        rows = np.arange(len(X))
        out_of_fold = found._out_of_fold(X, rows).mean if found._knows_folds(len(X)) else 0.0
        scales = found.input_shift_, found.input_scale_, found.target_scale_
        # The ends may be infinite: so is the variance of Student's t with few degrees of freedom.
        return (found.posterior_, out_of_fold), scales, low, high

    def read_predictor(place: Path) -> Any:
        pb.io.load_predictor(place / "predictor")
        return gzip.decompress((place / "predictor").read_bytes())

    def read_checkpoint(place: Path) -> Any:
        own = pb.training.Checkpoints(place / "run.safetensors", every_steps=2)
        found = pb.fit(algorithm, (X, Y), run=pb.Run(checkpoint=own, resume=True), **settings)
        return found.posterior

    arrays = "arrays.safetensors"
    return [
        Kind("model", ("model.json", arrays), read_model, craft_folder),
        Kind("estimator", ("model.json", arrays), read_estimator, craft_folder),
        Kind("predictor", ("predictor",), read_predictor, None),
        Kind("run", ("run.safetensors",), read_checkpoint, craft_checkpoint),
    ]


def _same(kind: Kind, content: Any, wanted: Any) -> bool:
    if isinstance(wanted, bytes):
        return bool(content == wanted)
    return _bytes(content) == _bytes(wanted)


def attempt(kind: Kind, folder: Path, wanted: Any, crafted: bool) -> str:
    """What became of a mutant: "same", "valid", "refused", or what went wrong."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            content = kind.read(folder)
    except (pb.errors.CheckpointError, pb.errors.TrainingDivergedError) as error:
        return "refused" if "\n" not in str(error) else f"wrong: not one line, {error!r:.200}"
    except ValueError as error:
        if "not a PartialBNN" in str(error):  # a folder of something else
            return "refused"
        return f"wrong: {error!r:.200}"
    except Exception as error:
        return f"wrong: {error!r:.200}"
    if _same(kind, content, wanted):
        return "same"
    if not crafted:
        return "wrong: altered content was loaded"
    numbers = _numbers(content if kind.name == "run" else content[0])
    finite = all(np.isfinite(part).all() for part in numbers)
    return "valid" if finite else "wrong: what was loaded is not finite"


def fuzz(
    kind: Kind, source: Path, mutants: int, seconds: float, seed: int
) -> tuple[Counter[str], list[str]]:
    """Try mutants of one kind until there are enough or time is up."""
    rng = random.Random(f"{seed} {kind.name}")
    found: Counter[str] = Counter()
    failures: list[str] = []
    wanted = kind.read(source)
    place = source.with_name(source.name + "-mutant")
    end = time.monotonic() + seconds
    for number in range(mutants):
        if time.monotonic() > end:
            break
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(source, place)
        crafted = kind.craft is not None and rng.random() < 0.5
        if crafted and kind.craft is not None:
            kind.craft(rng, place)
        else:
            file = place / rng.choice(kind.files)
            file.write_bytes(damage(rng, file.read_bytes()))
        what = attempt(kind, place, wanted, crafted)
        found[what.split(":")[0]] += 1
        if what.startswith("wrong") and len(failures) < 10:
            failures.append(f"mutant {number} ({'crafted' if crafted else 'damaged'}): {what}")
    return found, failures


def main() -> int:
    """Fuzz the kinds that were asked for; 1 if any mutant went wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mutants", type=int, default=3000, help="of each kind, at most")
    parser.add_argument("--seconds", type=float, default=600.0, help="for each kind, at most")
    parser.add_argument("--kinds", nargs="*", default=["model", "estimator", "predictor", "run"])
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for kind in make(Path(folder)):
            if kind.name not in asked.kinds:
                continue
            begun = time.monotonic()
            source = Path(folder) / kind.name
            found, failures = fuzz(kind, source, asked.mutants, asked.seconds, asked.seed)
            wrong += found["wrong"]
            told = ", ".join(f"{count} {what}" for what, count in sorted(found.items()))
            sys.stdout.write(f"{kind.name}: {told}; {time.monotonic() - begun:.0f} s\n")
            sys.stdout.write("".join(f"  {failure}\n" for failure in failures))
            sys.stdout.flush()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sys.stdout.write(f"peak memory {peak:.0f} MB\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

"""A predictor that needs JAX alone: StableHLO with the posterior inside, for any number of rows.

The file is compressed by gzip, for its checksum: what was damaged on the way is refused by whatever
reads it, this library or Python's own ``gzip``.
"""

from __future__ import annotations

import gzip
import os
import re
import sys
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Array, PyTree

from partialbayes._utils.atomic import write_atomically
from partialbayes._utils.checks import as_float_arrays, num_rows, require_numeric
from partialbayes.errors import CheckpointError
from partialbayes.prediction._predict import as_posterior
from partialbayes.prediction._predictive import Predictive, Values
from partialbayes.prediction._target_scale import TargetScale, lost_in_single_precision
from partialbayes.results import Fit
from partialbayes.types import Model, Posterior


def export(
    path: str | Path,
    model: Model,
    posterior: Posterior | Fit,
    inputs: PyTree,
    *,
    target_scale: TargetScale | None = None,
    prepare: Callable[[PyTree], PyTree] | None = None,
    platforms: Sequence[str] | None = None,
) -> None:
    """Write a predictor to a file that any program with JAX can call, without this library.

    There, ``jax.export.deserialize(bytearray(gzip.open(path).read())).call(inputs)`` gives a dictionary:
    ``mean`` (of classes the probability of class one, or of each), ``variance`` and its
    ``epistemic`` part. `io.load_predictor` does the same. The file is a program: run it only if you
    trust where it comes from.

    Args:
        path: The file, such as ``"predictor.stablehlo"``.
        model: The model that was trained.
        posterior: What `fit` returned, or the posterior in it; it becomes part of the file.
        inputs: Examples of inputs, for their shape and dtype; the number of rows stays free.
        target_scale: How the training targets were standardized, if they were.
        prepare: What to do to inputs before they reach the network, such as standardizing them.
        platforms: What to compile for, such as ``("cpu", "cuda", "tpu")``; the present one by
            default.

    Raises:
        ValueError: ``inputs`` holds no rows; or single precision, in which the predictor computes,
            cannot hold predictions of this ``target_scale``.
        CheckpointError: The disk refused.

    Example:
        >>> import gzip, tempfile, jax, jax.numpy as jnp, partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 5, 1]), "layers/0/*", pb.gaussian())
        >>> x = jnp.linspace(-1.0, 1.0, 8)[:, None]
        >>> trained = pb.fit(pb.map_estimate(model), (x, x), epochs=2)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     pb.export(folder + "/predictor", model, trained.posterior, x)
        ...     with gzip.open(folder + "/predictor") as file:
        ...         predictor = jax.export.deserialize(bytearray(file.read()))
        >>> predictor.call(x[:3])["mean"].shape
        (3,)
    """
    import jax.export

    posterior = as_posterior(posterior)
    num_rows("inputs", inputs)
    require_numeric("inputs", inputs)
    if target_scale is not None and np.any(lost_in_single_precision(*target_scale[:2])):
        raise ValueError(
            f"target_scale is {target_scale.shift!r} and {target_scale.scale!r}: an exported predictor "
            "computes in single precision, which cannot hold such targets. Export without target_scale, "
            "and restore the units where it is used."
        )
    (batch,) = jax.export.symbolic_shape("batch")

    def shape(leaf: Array) -> Any:
        return jax.ShapeDtypeStruct((batch, *leaf.shape[1:]), leaf.dtype)  # type: ignore[no-untyped-call]

    specification = jax.tree.map(shape, as_float_arrays(inputs))

    def predictor(inputs: PyTree) -> dict[str, Values]:
        prepared = inputs if prepare is None else prepare(inputs)
        # All rows at once: how many there will be is not known.
        predictive = Predictive(model, posterior, prepared, target_scale)
        return {
            "mean": predictive.mean,
            "variance": predictive.variance,
            "epistemic": predictive.epistemic_variance,
        }

    exported = jax.export.export(jax.jit(predictor), platforms=platforms)(specification)
    content = gzip.compress(_without_paths(bytes(exported.serialize())), compresslevel=1, mtime=0)
    try:
        write_atomically(Path(path), content, mode=0o644)
    except OSError as error:
        raise CheckpointError(
            f"the predictor could not be written to {path} ({error.strerror}); what was there "
            "before, if anything, still is. Free some space or choose another place."
        ) from error


def load_predictor(path: str | Path) -> Callable[[PyTree], dict[str, Array]]:
    """Read a predictor that `export` wrote, after a check that it is whole.

    It is a program: load it only if you trust where it comes from.

    Args:
        path: The file.

    Returns:
        ``inputs -> {"mean": …, "variance": …, "epistemic": …}``, for any number of rows.

    Raises:
        CheckpointError: The file is missing, damaged or something else.

    Example:
        >>> import tempfile, jax.numpy as jnp, partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 5, 1]), "layers/0/*", pb.gaussian())
        >>> x = jnp.linspace(-1.0, 1.0, 8)[:, None]
        >>> trained = pb.fit(pb.map_estimate(model), (x, x), epochs=2)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     pb.export(folder + "/predictor", model, trained.posterior, x)
        ...     predict = pb.io.load_predictor(folder + "/predictor")
        >>> predict(x[:3])["mean"].shape
        (3,)
    """
    import jax.export

    try:
        content = gzip.decompress(Path(path).read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise CheckpointError(f"{path} is not a whole predictor ({error}); it may be damaged.") from None
    try:
        return jax.export.deserialize(bytearray(content)).call
    except Exception as error:  # whatever the reader raises, it is the file
        raise CheckpointError(f"{path} is not a predictor that this version of JAX can read.") from error


def _without_paths(program: bytes) -> bytes:
    """Blank the source files of this machine, which a program names for each of its steps.

    In place, letter for letter, so that nothing in it moves. The names are strings that end in a zero
    byte; only those of files that are loaded or on disk are blanked, so that no weight is taken for one.
    """
    files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    known = {os.fsencode(file) for file in files if isinstance(file, str)}

    def blank(match: re.Match[bytes]) -> bytes:
        text = match[0]
        # What stands before the first string of a program is not set off from it.
        for start in range(len(text)):
            name = text[start:]
            if name in known or (os.path.isabs(name) and os.path.isfile(name)):
                return text[:start] + b"-" * len(name)
        return text

    return re.sub(rb"[^\x00-\x1f]{1,4096}\.py(?=\x00)", blank, program)

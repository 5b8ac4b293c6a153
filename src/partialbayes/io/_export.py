"""Export predictors that need only JAX: StableHLO with the posterior inside, for any number of rows.

The file is compressed with gzip, whose checksum reveals damage to any reader.
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

    In that program, ``jax.export.deserialize(bytearray(gzip.open(path).read())).call(inputs)`` returns a
    dictionary with ``mean`` (for classes: the probability of class one, or of each class),
    ``variance`` and its ``epistemic`` part. The file is a program: run it only if you trust its source.

    Args:
        path: The file to write, such as ``"predictor.stablehlo"``.
        model: The trained model.
        posterior: The result of `fit`, or its posterior. It becomes part of the file.
        inputs: Example inputs, for their shapes and dtypes. The predictor accepts any number of rows.
        target_scale: The scaling of the training targets, if they were standardized.
        prepare: A function applied to the inputs before the network, such as standardization.
        platforms: Platforms to compile for, such as ``("cpu", "cuda", "tpu")``. Defaults to the
            current one.

    Raises:
        ValueError: ``inputs`` holds no rows, or single precision, which the predictor uses, cannot
            represent predictions with this ``target_scale``.
        CheckpointError: The file could not be written.

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
            "computes in single precision, which cannot represent such targets. Export without "
            "target_scale, and convert its predictions to the original units yourself."
        )
    (batch,) = jax.export.symbolic_shape("batch")

    def shape(leaf: Array) -> Any:
        return jax.ShapeDtypeStruct((batch, *leaf.shape[1:]), leaf.dtype)  # type: ignore[no-untyped-call]

    specification = jax.tree.map(shape, as_float_arrays(inputs))

    def predictor(inputs: PyTree) -> dict[str, Values]:
        prepared = inputs if prepare is None else prepare(inputs)
        # All rows at once: their number is not known.
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
            f"the predictor could not be written to {path} ({error.strerror}); an earlier file there "
            "is unchanged. Free some space or choose another path."
        ) from error


def load_predictor(path: str | Path) -> Callable[[PyTree], dict[str, Array]]:
    """Read a predictor that `export` wrote, and verify its checksum.

    The file is a program: load it only if you trust its source.

    Args:
        path: The file to read.

    Returns:
        A function ``inputs -> {"mean": …, "variance": …, "epistemic": …}`` for any number of rows.

    Raises:
        CheckpointError: The file is missing, damaged or not a predictor.

    Example:
        >>> import tempfile, partialbayes as pb  # model, trained and x as in the example of predict
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
        raise CheckpointError(f"{path} is missing, incomplete or damaged ({error}).") from None
    try:
        return jax.export.deserialize(bytearray(content)).call
    except Exception as error:  # whatever the reader raises, the file is the cause
        raise CheckpointError(f"{path} is not a predictor that this version of JAX can read.") from error


def _without_paths(program: bytes) -> bytes:
    """Blank the paths of source files, which a program contains for each of its operations.

    Each byte is replaced in place, so that offsets stay valid. Paths are strings that end in a zero
    byte. Only paths of loaded or existing files are blanked, so that no weight is mistaken for one.
    """
    files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    known = {os.fsencode(file) for file in files if isinstance(file, str)}

    def blank(match: re.Match[bytes]) -> bytes:
        text = match[0]
        # No separator precedes the first string of a program.
        for start in range(len(text)):
            name = text[start:]
            if name in known or (os.path.isabs(name) and os.path.isfile(name)):
                return text[:start] + b"-" * len(name)
        return text

    return re.sub(rb"[^\x00-\x1f]{1,4096}\.py(?=\x00)", blank, program)

"""A predictor that needs JAX alone: StableHLO with the posterior inside, for any number of rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from jaxtyping import Array, PyTree

from partialbayes._utils.atomic import write_atomically
from partialbayes._utils.checks import as_float_arrays, num_rows
from partialbayes.prediction._predictive import Predictive
from partialbayes.prediction._target_scale import TargetScale
from partialbayes.types import Model, Posterior


def export(
    path: str | Path,
    model: Model,
    posterior: Posterior,
    inputs: PyTree,
    *,
    target_scale: TargetScale | None = None,
    prepare: Callable[[PyTree], PyTree] | None = None,
    platforms: Sequence[str] | None = None,
) -> None:
    """Write a predictor to a file that any program with JAX can call, without this library.

    There, ``jax.export.deserialize(bytearray(file.read())).call(inputs)`` gives a dictionary:
    ``mean`` (of classes the probability of class one, or of each), ``variance`` and its
    ``epistemic`` part.

    Args:
        path: The file, such as ``"predictor.stablehlo"``.
        model: The model that was trained.
        posterior: From `fit`; it becomes part of the file.
        inputs: Examples of inputs, for their shape and dtype; the number of rows stays free.
        target_scale: How the training targets were standardized, if they were.
        prepare: What to do to inputs before they reach the network, such as standardizing them.
        platforms: What to compile for, such as ``("cpu", "cuda", "tpu")``; the present one by
            default.

    Raises:
        ValueError: ``inputs`` holds no rows.

    Example:
        >>> import tempfile, jax, jax.numpy as jnp, partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 5, 1]), "layers/0/*", pb.gaussian())
        >>> x = jnp.linspace(-1.0, 1.0, 8)[:, None]
        >>> trained = pb.fit(pb.map_estimate(model), (x, x), epochs=2, progress=False)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     pb.export(folder + "/predictor", model, trained.posterior, x)
        ...     file = open(folder + "/predictor", "rb")
        ...     predictor = jax.export.deserialize(bytearray(file.read()))
        ...     file.close()
        >>> predictor.call(x[:3])["mean"].shape
        (3,)
    """
    import jax.export

    num_rows("inputs", inputs)
    (batch,) = jax.export.symbolic_shape("batch")

    def shape(leaf: Array) -> Any:
        return jax.ShapeDtypeStruct((batch, *leaf.shape[1:]), leaf.dtype)  # type: ignore[no-untyped-call]

    specification = jax.tree.map(shape, as_float_arrays(inputs))

    def predictor(inputs: PyTree) -> dict[str, Array]:
        prepared = inputs if prepare is None else prepare(inputs)
        # All rows at once: how many there will be is not known.
        predictive = Predictive(model, posterior, prepared, target_scale)
        return {
            "mean": predictive.mean,
            "variance": predictive.variance,
            "epistemic": predictive.epistemic_variance,
        }

    exported = jax.export.export(jax.jit(predictor), platforms=platforms)(specification)
    write_atomically(Path(path), bytes(exported.serialize()), mode=0o644)

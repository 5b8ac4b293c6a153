"""A predictor that needs JAX alone: StableHLO with the posterior inside, for any number of rows."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from partialbayes.checks import as_float_arrays, num_rows
from partialbayes.target_scale import TargetScale
from partialbayes.types import Model, Phi, Posterior, Psi


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
        target_scale: How the training targets were standardised, if they were.
        prepare: What to do to inputs before they reach the network, such as standardising them.
        platforms: What to compile for, such as ``("cpu", "cuda", "tpu")``; the present one by
            default.

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
        moments = mixture_moments(model, posterior, prepared)
        if target_scale is None:
            return moments
        shift, scale = (jnp.asarray(part, moments["mean"].dtype) for part in target_scale)
        shift, scale = (jnp.broadcast_to(part, moments["mean"].shape) for part in (shift, scale))
        return {
            "mean": shift + scale * moments["mean"],
            "variance": jnp.square(scale) * moments["variance"],
            "epistemic": jnp.square(scale) * moments["epistemic"],
        }

    exported = jax.export.export(jax.jit(predictor), platforms=platforms)(specification)
    _write(Path(path), bytes(exported.serialize()))


def mixture_moments(model: Model, posterior: Posterior, inputs: PyTree) -> dict[str, Array]:
    """Moments of the predictive mixture, in operations that leave the number of rows free."""

    def one(psi: Psi, phi: Phi) -> tuple[Array, Array]:
        parameters = model.predict(phi, psi, inputs)
        return model.likelihood.mean(parameters), model.likelihood.variance(parameters)

    def member(psi: Psi, values: Array) -> tuple[Array, Array]:
        return jax.vmap(lambda phi: one(psi, phi))(values)

    values, log_weights = posterior.particles
    if log_weights.ndim == 2:
        means, variances = jax.vmap(member)(posterior.psi, values)
        means, variances = (part.reshape(-1, *part.shape[2:]) for part in (means, variances))
    else:
        means, variances = member(posterior.psi, values)
    weights = jnp.exp(log_weights).reshape(-1)
    mean = jnp.tensordot(weights, means, 1)
    epistemic = jnp.tensordot(weights, jnp.square(means - mean[None]), 1)
    return {
        "mean": mean,
        "variance": jnp.tensordot(weights, variances, 1) + epistemic,
        "epistemic": epistemic,
    }


def _write(path: Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    finally:
        Path(temporary).unlink(missing_ok=True)

"""Rebuild the parts of a saved model from its folder, and check that they fit together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from partialbayes._utils import recipes
from partialbayes._utils.paths import named_leaves, sort_like
from partialbayes.errors import CheckpointError
from partialbayes.prediction._target_scale import TargetScale
from partialbayes.results import Departure, History
from partialbayes.types import Likelihood, Model, Network, Particles, Posterior, PRNGKey, trains


def part_of(folder: Path, name: str, passed: Any, recipe: Any) -> Any:
    """Return the network, likelihood or prior that was passed, or rebuild it from its recipe."""
    if passed is not None:
        return passed
    if recipe is None:
        raise CheckpointError(
            f"the {name} of {folder} was not built by this library; pass it: load(folder, {name}=...)."
        )
    try:
        made = recipes.make(json.dumps(recipe))
    except Exception as error:  # whatever a builder raises, the file is the cause
        reason = f"{error}" if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        raise CheckpointError(f"the {name} of {folder} cannot be rebuilt: {reason}") from None
    if not isinstance(made, {"network": Network, "likelihood": Likelihood}.get(name, object)):
        raise CheckpointError(f"the {name} of {folder} is not one, but a {type(made).__name__}.")
    return made


def require_weights(
    folder: Path, network: Network, masks: dict[str, Any], frozen: dict[str, Any], saved: dict[str, Any]
) -> None:
    """Refuse a network whose weights differ from the saved ones; name the first that differs.

    This compares shapes only, before any array of that size is allocated.
    """
    try:
        shapes = jax.eval_shape(network.init, jax.random.key(0))
    except Exception as error:
        raise CheckpointError(
            f"the network of {folder} cannot be rebuilt: {type(error).__name__}: {error}"
        ) from error
    own = {name: leaf.shape for name, leaf in named_leaves(shapes)}
    for path, chosen in masks.items():
        if path not in own:
            raise CheckpointError(
                f"{folder} holds the random weight {path!r}, but the network has none of that name."
            )
        if own[path] != chosen.shape:
            raise CheckpointError(
                f"the weight {path!r} has shape {chosen.shape} in {folder}, but {own[path]} in the "
                "network."
            )
        if chosen.dtype != bool or not chosen.any():
            raise CheckpointError(f"{folder} has no valid mask of the random entries of {path!r}.")
    for path in own:
        if path not in masks and path not in frozen and f"psi/network/{path}" not in saved:
            raise CheckpointError(f"{folder} holds no weight {path!r}, which the model has.")
    for path, value in frozen.items():
        if path not in own or (path not in masks and own[path] != value.shape):
            raise CheckpointError(
                f"{folder} holds the frozen weight {path!r} of shape {value.shape}, but the network has "
                + ("none of that name." if path not in own else f"one of shape {own[path]}.")
            )


def is_reordered(network: Network, model: Model) -> bool:
    """Return whether the current order of φ differs from the order of the flattened weights."""
    random = [
        leaf for leaf, mask in zip(model.split.leaves, model.split.masks, strict=True) if mask.any()
    ]
    sorted_paths = [leaf.path for leaf in random]
    shapes = jax.eval_shape(network.init, jax.random.key(0))
    flattened = [path for path, _ in named_leaves(shapes) if path in set(sorted_paths)]
    return sorted_paths[: len(flattened)] != flattened or any(
        leaf.axes != tuple(range(len(leaf.shape))) for leaf in random
    )


def with_frozen(network: Network, masks: dict[str, Any], frozen: dict[str, Any]) -> Network:
    """Return the network with its frozen weights set to the saved values."""
    if not frozen:
        return network

    def init(key: PRNGKey) -> PyTree:
        params = network.init(key)
        values = []
        for name, leaf in named_leaves(params):
            value = leaf
            if name in frozen and name not in masks:
                value = jnp.asarray(frozen[name])
            elif name in frozen:
                places = np.flatnonzero(~masks[name])
                value = jnp.ravel(leaf).at[places].set(frozen[name]).reshape(leaf.shape)
            values.append(value)
        # Flattening sorts dictionaries, but layers are counted in the network's own order.
        return sort_like(params, jax.tree.unflatten(jax.tree.structure(params), values))

    return network._replace(init=init)


def posterior_of(folder: Path, model: Model, arrays: dict[str, Any]) -> Posterior:
    for name in ("particles/values", "particles/log_weights"):
        if name not in arrays:
            raise CheckpointError(f"{folder} holds no {name!r}, so there is no posterior in it.")
    particles = Particles(arrays["particles/values"], arrays["particles/log_weights"])
    _require_cloud(folder, particles)
    members = particles.log_weights.shape[:-1]
    like = jax.eval_shape(lambda key: model.init(key).psi, jax.random.key(0))
    named = {f"psi/{name}": leaf for name, leaf in named_leaves(like)}
    saved = {name: array for name, array in arrays.items() if name.startswith("psi/")}
    for name in [*named, *saved]:
        weight = name.removeprefix("psi/").removeprefix("network/")
        if name not in saved:
            raise CheckpointError(f"{folder} holds no weight {weight!r}, which the model has.")
        if name not in named:
            raise CheckpointError(
                f"{folder} holds the weight {weight!r}, which the model does not have."
            )
        shape, wanted = saved[name].shape, (*members, *named[name].shape)
        if (shape, saved[name].dtype) != (wanted, named[name].dtype):
            raise CheckpointError(
                f"the weight {weight!r} is {saved[name].dtype}{list(shape)} in {folder}, but "
                f"{named[name].dtype}{list(wanted)} in the model."
            )
    if particles.values.shape[-1] != model.split.dim:
        raise CheckpointError(
            f"the particles in {folder} have {particles.values.shape[-1]} numbers each, but φ of the "
            f"model has {model.split.dim}; it was saved with another likelihood."
        )
    psi = jax.tree.unflatten(jax.tree.structure(like), [jnp.asarray(saved[name]) for name in named])
    posterior = Posterior(psi, jax.tree.map(jnp.asarray, particles))
    require_sound(posterior, f"the posterior in {folder}")
    return posterior


def _require_cloud(folder: Path, particles: Particles) -> None:
    """Refuse particles that differ in number from their weights, or in precision from this process."""
    values, log_weights = particles
    kind = jnp.result_type(float)
    if values.ndim not in (2, 3) or values.shape[:-1] != log_weights.shape or log_weights.size == 0:
        raise CheckpointError(
            f"the particles in {folder} have shape {values.shape}, but their weights have shape "
            f"{log_weights.shape}."
        )
    if (values.dtype, log_weights.dtype) != (kind, kind):
        raise CheckpointError(
            f"the particles in {folder} are {values.dtype} and their weights {log_weights.dtype}, but "
            f"JAX uses {kind} in this process."
        )


def require_sound(posterior: Posterior, what: str) -> None:
    """Refuse a posterior with NaN or infinity, except in particles of weight zero."""
    values, log_weights = map(np.asarray, posterior.particles)
    counts = log_weights > -np.inf
    with np.errstate(over="ignore"):
        total = np.exp(log_weights.astype(float)).sum()
    if not abs(total - 1.0) < 0.01:
        raise CheckpointError(f"{what} has weights that sum to {total:.4g}, not to 1.")
    members = counts.any(axis=-1)
    floating = [np.asarray(leaf) for leaf in jax.tree.leaves(posterior.psi) if trains(leaf)]
    psi = [leaf[members] if members.ndim else leaf for leaf in floating]
    if not all(np.isfinite(part).all() for part in [values[counts], *psi]):
        raise CheckpointError(f"{what} contains NaN or infinity; train again.")


def history_of(folder: Path, arrays: dict[str, Any]) -> History | None:
    if not arrays:
        return None
    nothing = np.zeros((0, 0))
    names = ("eval_steps", "validation_nlpd", "best_step")
    steps, scores, best = (np.asarray(arrays.get(name, nothing)) for name in names)
    if (steps.ndim, scores.ndim, best.ndim) != (1, 1, 0) or best.dtype.kind not in "iu":
        raise CheckpointError(f"the history in {folder} is incomplete.")
    if len(scores) not in (0, len(steps)) or not 0 <= best < 2**62:
        raise CheckpointError(f"the history in {folder} is inconsistent.")
    compared = {name: value.item() for name, value in under(arrays, "departure").items()}
    departure = Departure(**compared) if compared else None
    return History(under(arrays, "metrics"), steps, scores, int(best), departure)


def target_scale_of(folder: Path, arrays: dict[str, Any]) -> TargetScale | None:
    if not arrays:
        return None
    log = arrays.get("log", np.zeros((), bool))
    if log.dtype != bool or log.ndim:
        raise CheckpointError(f"the target scale in {folder} has no valid flag for logarithms.")
    scale = TargetScale(arrays.get("shift"), arrays.get("scale"), bool(log))
    for part in scale[:2]:
        if part is None or part.dtype.kind not in "iuf" or part.ndim > 1 or not np.isfinite(part).all():
            raise CheckpointError(f"the target scale in {folder} is not finite.")
    if not (scale.scale > 0).all():
        raise CheckpointError(f"the target scale in {folder} is not positive.")
    return scale


def under(arrays: dict[str, Any], prefix: str) -> dict[str, Any]:
    start = prefix + "/"
    return {name[len(start) :]: array for name, array in arrays.items() if name.startswith(start)}

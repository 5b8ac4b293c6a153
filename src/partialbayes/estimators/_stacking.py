"""From trained groups to one predictive mixture, by the rows that each group did not see.

Each view has a snapshot of training, numbers that correct its spread, and a weight in the mixture. All
are those that make the out-of-fold rows of all groups together most probable.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from partialbayes.estimators._folds import Folds, fold_places
from partialbayes.estimators._recipe import Recipe
from partialbayes.prediction._calibrate import find_numbers, log_densities
from partialbayes.prediction._components import components
from partialbayes.types import Model, Particles, Posterior

_LEAST_FREEDOM = 2.1  # of Student's t, so that there is a variance
# All groups together spread more than the one whose out-of-fold rows the numbers were found on.
_SHARPER = 0.9


class Stacked(NamedTuple):
    """What the out-of-fold rows make of the groups.

    Attributes:
        posterior: Of all groups, with the numbers that suit their mixture; `of_one_fold` has those that
            suit one group.
        nlpd: Of the rows out of fold, in units of training; NaN where nothing was held out.
    """

    posterior: Posterior
    nlpd: float


def stack(
    model: Model,
    recipe: Recipe,
    snapshots: list[Posterior],
    data: tuple[Array, Array],
    folds: Folds,
) -> Stacked:
    """Choose a snapshot for each view, calibrate it, and weigh the views.

    Args:
        model: Of one group.
        recipe: What was trained.
        snapshots: The posterior at several steps of training, the end last.
        data: Inputs and targets, in units of training.
        folds: From `make_folds`.
    """
    snapshots = [_with_variance(snapshot) for snapshot in snapshots]
    if folds.of_row.max() < 0:
        return Stacked(_on_device(snapshots[-1]), np.nan)
    places, mask = fold_places(folds)
    inputs, targets = (np.asarray(array)[places] for array in data)
    targets, mask = targets.reshape(-1, *targets.shape[2:]), mask.reshape(-1)
    count = recipe.num_particles
    log_weights = jax.device_put(np.full((count, 1), -np.log(count), np.float32))
    # By view, then by snapshot: the numbers, and the densities they give.
    tried: list[list[tuple[dict[str, float], Any]]] = [[] for _ in range(recipe.num_views)]
    for snapshot in snapshots:
        views = jax.device_get(_own_fold(model, recipe, snapshot, inputs))
        for view, of_view in enumerate(tried):
            own = jax.device_put(jax.tree.map(lambda leaf, view=view: leaf[view], views))
            numbers = find_numbers(model.likelihood, own, targets, log_weights, jax.device_put(mask))
            density = log_densities(numbers, model.likelihood, own, targets, log_weights)
            of_view.append((numbers, np.asarray(density, float)[mask]))
    chosen = [_best([density.mean() for _, density in of_view]) for of_view in tried]
    found = [of_view[best][0] for of_view, best in zip(tried, chosen, strict=True)]
    densities = np.stack([of_view[best][1] for of_view, best in zip(tried, chosen, strict=True)])
    posterior = _joined(snapshots, chosen, recipe.num_folds)
    shares = _shares(densities)
    mixed = np.logaddexp.reduce(densities + np.log(shares)[:, None], axis=0)
    posterior = _with_numbers(posterior, recipe, found, shares)
    return Stacked(_on_device(_times(posterior, _SHARPER)), -float(mixed.mean()))


def _on_device(posterior: Posterior) -> Posterior:
    """The posterior as arrays of JAX; up to here NumPy, which has nothing to compile."""
    found: Posterior = jax.device_put(posterior)
    return found


def of_one_fold(posterior: Posterior) -> Posterior:
    """The posterior with the numbers that were found for the groups of one fold alone."""
    return _on_device(_times(posterior, 1.0 / _SHARPER))


def _times(posterior: Posterior, factor: float) -> Posterior:
    """The posterior with the scales, or the temperatures, of its networks times a factor.

    Those of kernel machines stay: the machines of different folds differ little.
    """
    is_network = 1.0 - np.asarray(posterior.psi.network.get("kernel/switch", np.float32(0.0)))
    of_group = {name: np.asarray(leaf) for name, leaf in posterior.psi.likelihood["calibration"].items()}
    for name in ("log_temperature", "log_factor"):
        if name in of_group:
            of_group[name] = of_group[name] + np.float32(np.log(factor)) * is_network
    if "floor" in of_group:
        of_group["floor"] = of_group["floor"] * np.float32(factor) ** is_network
    likelihood = {**posterior.psi.likelihood, "calibration": of_group}
    return posterior._replace(psi=posterior.psi._replace(likelihood=likelihood))


def _best(scores: list[float]) -> int:
    """The place of the highest score, the last of equals; NaN is lowest."""
    known = np.nan_to_num(np.asarray(scores), nan=-np.inf)
    return int(np.flatnonzero(known == known.max())[-1])


def _joined(snapshots: list[Posterior], chosen: list[int], num_folds: int) -> Posterior:
    """The groups of each view from the snapshot chosen for it."""
    parts = [
        jax.tree.map(
            lambda leaf, view=view: leaf[view * num_folds : (view + 1) * num_folds], snapshots[best]
        )
        for view, best in enumerate(chosen)
    ]
    joined: Posterior = jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
    return joined


def _with_variance(posterior: Posterior) -> Posterior:
    """The posterior with degrees of freedom of Student's t that have a variance."""
    base = posterior.psi.likelihood["base"]
    if not (isinstance(base, dict) and "degrees_of_freedom" in base):
        return posterior
    least = np.float32(np.log(_LEAST_FREEDOM))
    base = {**base, "degrees_of_freedom": np.maximum(base["degrees_of_freedom"], least)}
    likelihood = {**posterior.psi.likelihood, "base": base}
    return posterior._replace(psi=posterior.psi._replace(likelihood=likelihood))


def _shares(log_densities: Float[np.ndarray, "view row"]) -> Float[np.ndarray, " view"]:
    """Shares of the views in the mixture that make the rows most probable, by expectation-maximization.

    A row's worth of doubt keeps both in.
    """
    views, rows = log_densities.shape
    log_densities = np.nan_to_num(log_densities, nan=-1e6, posinf=1e6, neginf=-1e6)
    shares = np.full(views, 1.0 / views)
    for _ in range(200):
        joint = log_densities + np.log(shares)[:, None]
        owned = np.exp(joint - np.logaddexp.reduce(joint, axis=0)[None]).sum(axis=1)
        shares = (owned + 0.5) / (rows + 0.5 * views)
    return shares


def _with_numbers(
    posterior: Posterior, recipe: Recipe, numbers: list[dict[str, float]], shares: Any
) -> Posterior:
    """The posterior with the numbers and the share of each view in its groups."""
    folds, count = recipe.num_folds, recipe.num_particles
    each = {
        name: np.repeat([of_view[name] for of_view in numbers], folds).astype(np.float32)
        for name in numbers[0]
    }
    likelihood = {**posterior.psi.likelihood, "calibration": each}
    logs: Any = np.repeat(np.log(shares / (folds * count)), folds)[:, None] * np.ones(count)
    particles = Particles(posterior.particles.values, logs.astype(np.float32))
    return Posterior(posterior.psi._replace(likelihood=likelihood), particles)


@functools.partial(jax.jit, static_argnames=("model", "recipe"))
def _own_fold(model: Model, recipe: Recipe, posterior: Posterior, inputs: Array) -> Any:
    """What the members of each group predict on its fold: views, members, all rows of all folds."""
    psi, (values, log_weights) = posterior
    repeated = jnp.concatenate([inputs] * recipe.num_views)

    def one(psi: Any, values: Array, log_weights: Array, inputs: Array) -> Any:
        return components(model, Posterior(psi, Particles(values, log_weights)), inputs, None)

    def arrange(leaf: Array) -> Array:
        _, members, places, *rest = leaf.shape
        parted = leaf.reshape(recipe.num_views, recipe.num_folds, members, places, *rest)
        return jnp.moveaxis(parted, 1, 2).reshape(recipe.num_views, members, -1, *rest)

    return jax.tree.map(arrange, jax.vmap(one)(psi, values, log_weights, repeated))

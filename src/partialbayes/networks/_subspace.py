"""Make a few directions of weight space the random part of a network.

    weights = center + Σ_i c_i direction_i,    c = φ, some five to twenty numbers.

The directions along which training moved last, the principal directions of its path, are those that
the data do not determine: the loss is low along them, and the outputs of the network change. Their
length is the spread of the path, so that a standard normal prior of c has the spread of the path.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from partialbayes._utils.checks import require_instance, require_positive_int
from partialbayes._utils.recipes import serializable_builder
from partialbayes.types import Model, Network, Particles, Posterior, PRNGKey, Psi


class Path(NamedTuple):
    """The result of `path_directions`.

    Attributes:
        center: The mean of the path, as weights of the network.
        directions: One row per direction, over all floating-point weights in flattening order.
        shares: The fraction of the path's variance along each direction.
    """

    center: PyTree
    directions: Float[np.ndarray, "direction weight"]
    shares: Float[np.ndarray, " direction"]


@serializable_builder("networks.subspace")
def subspace(network: Network, directions: Any, *, center: PyTree = None) -> Network:
    """Add a few random coordinates to a network: all its weights move along given directions.

    The new weights are at ``coordinates``, one per direction, zero at the start; those of the network
    are at ``network/<path>``.

    Args:
        network: Any network; its code does not change.
        directions: One row per direction, over all floating-point weights in flattening order, as
            `path_directions` returns them; ``jax.flatten_util.ravel_pytree`` uses the same order.
        center: Weights to start from, a tree like the network's own; its initial weights by default.

    Returns:
        The network with the new weights.

    Example:
        >>> import numpy as np, partialbayes as pb
        >>> network = pb.networks.subspace(pb.mlp([1, 3, 1]), np.ones((2, 10)))
        >>> pb.partial_bnn(network, "coordinates", pb.gaussian()).split.dim
        2
    """
    require_instance("network", network, Network, "wrap yours by from_nnx, from_equinox or from_params.")
    shapes = jax.eval_shape(network.init, jax.random.key(0))
    leaves, treedef = jax.tree.flatten(shapes)
    sizes = [leaf.size if _moves(leaf) else 0 for leaf in leaves]
    matrix = np.asarray(directions, np.float64)
    if matrix.ndim != 2 or matrix.shape[1] != sum(sizes) or not np.isfinite(matrix).all():
        raise ValueError(
            f"directions have shape {matrix.shape}; for the {sum(sizes)} floating-point weights of this "
            f"network they must be finite, one row per direction, shape (directions, {sum(sizes)})."
        )
    pieces = np.split(matrix, np.cumsum(sizes)[:-1], axis=1)
    blocks = [jnp.asarray(piece, jnp.result_type(float)) for piece in pieces]
    if center is not None:
        given = [jnp.shape(leaf) for leaf in jax.tree.leaves(center)]
        if given != [leaf.shape for leaf in leaves]:
            raise ValueError(
                f"center does not look like the weights of the network: its shapes are {given}, the "
                f"network's {[leaf.shape for leaf in leaves]}."
            )

    def init(key: PRNGKey) -> PyTree:
        start = network.init(key)
        if center is not None:
            values = jax.tree.leaves(center)
            start = jax.tree.unflatten(
                jax.tree.structure(start),
                [jnp.asarray(value, leaf.dtype) for value, leaf in zip(values, leaves, strict=True)],
            )
        return {"coordinates": jnp.zeros(len(matrix), jnp.result_type(float)), "network": start}

    def apply(params: PyTree, inputs: PyTree) -> PyTree:
        change = [params["coordinates"] @ block for block in blocks]
        moved = [
            value + jnp.asarray(step, leaf.dtype).reshape(leaf.shape) if size else value
            for value, step, leaf, size in zip(
                jax.tree.leaves(params["network"]), change, leaves, sizes, strict=True
            )
        ]
        return network.apply(jax.tree.unflatten(treedef, moved), inputs)

    return network._replace(init=init, apply=apply, recipe=None)


def path_directions(model: Model, posterior: Posterior, num_directions: int) -> Path:
    """Find the principal directions of the path of a run, for `subspace`.

    Args:
        model: The model that was trained; which of its weights were random does not matter.
        posterior: The posterior of `trajectory`, whose members are the snapshots of the path; a cloud
            counts as its mean.
        num_directions: Number of directions, fewer than there are members.

    Returns:
        The center, the directions and their shares of the variance.

    Example:
        >>> import jax.numpy as jnp, partialbayes as pb
        >>> network, x = pb.mlp([1, 3, 1]), jnp.linspace(-1.0, 1.0, 8)[:, None]
        >>> model = pb.partial_bnn(network, "layers/0/*", pb.gaussian())
        >>> run = pb.algorithms.trajectory(pb.map_estimate(model), num_members=6, every=10)
        >>> trained = pb.fit(run, (x, jnp.sin(x)), epochs=100)
        >>> path = pb.networks.path_directions(model, trained.posterior, 2)
        >>> along = pb.networks.subspace(network, path.directions, center=path.center)
        >>> pb.partial_bnn(along, "coordinates", pb.gaussian()).split.dim
        2
    """
    require_positive_int("num_directions", num_directions, "for example num_directions=5.")
    if posterior.num_members <= num_directions:
        raise ValueError(
            f"num_directions is {num_directions}, but the posterior has {posterior.num_members} members "
            f"to find them from; train by trajectory(…, num_members={2 * num_directions}) or more."
        )

    def weights(psi: Psi, particles: Particles) -> PyTree:
        phi = jax.nn.softmax(particles.log_weights) @ particles.values
        return model.split.merge(phi, psi.network)

    members = jax.vmap(weights)(*posterior)
    moving = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(members) if _moves(leaf)]
    flat = np.concatenate([leaf.reshape(len(leaf), -1) for leaf in moving], axis=1)
    anomalies = (flat - flat.mean(axis=0)) / np.sqrt(len(flat) - 1)
    _, lengths, rows = np.linalg.svd(anomalies, full_matrices=False)
    center = jax.tree.map(lambda leaf: leaf.mean(axis=0) if _moves(leaf) else leaf[0], members)
    kept = lengths[:num_directions]
    total = max(float(np.square(lengths).sum()), np.finfo(float).tiny)
    return Path(center, kept[:, None] * rows[:num_directions], np.square(kept) / total)


def _moves(leaf: Array | jax.ShapeDtypeStruct) -> bool:
    return bool(jnp.issubdtype(leaf.dtype, jnp.floating))

"""Divide a run over a mesh of devices by annotations.

Particles are divided over the axis ``particle`` of the mesh, rows of a batch over ``data``, the weights
of ψ and its optimizer over ``psi``; log-weights and all else are on every device. The annotations use
the mesh that is active where a function is traced (`use_mesh`); without a mesh they do nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Int, PyTree

from partialbayes.types import Particles, Psi

PARTICLE = "particle"
DATA = "data"
PSI = "psi"

Tree = TypeVar("Tree", bound=PyTree)


@contextmanager
def use_mesh(mesh: Mesh | None) -> Iterator[None]:
    """Trace functions inside the block for this mesh; None is the default device."""
    if mesh is None:
        yield
    else:
        with jax.set_mesh(mesh):
            yield


def axis_size(axis: str) -> int:
    """Return the size of an axis of the active mesh; 1 if there is no such axis or mesh."""
    return int(dict(jax.sharding.get_abstract_mesh().shape).get(axis, 1))


def shard_particles(values: Float[Array, "particle ..."]) -> Float[Array, "particle ..."]:
    """Divide the first axis over ``particle`` if it divides evenly."""
    return _shard_first_axis(values, PARTICLE)


def shard_data(tree: Tree) -> Tree:
    """Divide the first axis of every leaf over ``data`` if it divides evenly."""
    divided: Tree = jax.tree.map(lambda leaf: _shard_first_axis(leaf, DATA), tree)
    return divided


def replicate(array: Array) -> Array:
    """Copy an array to every device."""
    return array if jax.sharding.get_abstract_mesh().empty else _with_constraint(array, _spec())


def replicate_row(array: Array, index: Int[Array, ""]) -> Array:
    """Compute ``array[index]`` without sending all rows to every device."""
    if axis_size(DATA) == 1:
        return array[index]
    chosen = jnp.expand_dims(jnp.arange(array.shape[0]) == index, tuple(range(1, array.ndim)))
    return jnp.where(chosen, array, jnp.zeros((), array.dtype)).sum(axis=0, dtype=array.dtype)


def _shard_first_axis(array: Array, axis: str) -> Array:
    size = axis_size(axis)
    if size == 1 or array.shape[0] % size:
        return array
    free = (PartitionSpec.UNCONSTRAINED,) * (array.ndim - 1)
    return _with_constraint(array, _spec(axis, *free))


def constrain(tree: Tree) -> Tree:
    """Divide clouds of particles over ``particle`` and ψ over ``psi``; replicate the rest."""
    if jax.sharding.get_abstract_mesh().empty:
        return tree
    return _with_constraint(tree, _specs(tree, axis_size(PARTICLE), axis_size(PSI)))


def put_on_mesh(mesh: Mesh | None, tree: Tree) -> Tree:
    """Send arrays to the devices of a mesh, divided as in `constrain`."""
    if mesh is None:
        return tree
    return _put(mesh, tree, _specs(tree, num_parts(mesh, PARTICLE), num_parts(mesh, PSI)))


def shard_rows(mesh: Mesh | None, tree: Tree) -> Tree:
    """Send rows to the devices of a mesh, divided over ``data`` if they divide evenly."""
    if mesh is None:
        return tree
    parts = num_parts(mesh, DATA)

    def spec(leaf: Array) -> PartitionSpec:
        return _spec(DATA) if parts > 1 and leaf.ndim and leaf.shape[0] % parts == 0 else _spec()

    return _put(mesh, tree, jax.tree.map(spec, tree))


def num_parts(mesh: Mesh | None, axis: str) -> int:
    """Return the size of an axis of a mesh; 1 if there is no such axis or mesh."""
    return 1 if mesh is None else int(dict(mesh.shape).get(axis, 1))


def _specs(tree: PyTree, parts: int, psi_parts: int) -> PyTree:
    def of(node: Array | Particles | Psi) -> PyTree:
        if isinstance(node, Psi):  # also the optimizer's moments, which have ψ's shape
            return jax.tree.map(partial(_weight_spec, psi_parts), node)
        if not isinstance(node, Particles):
            return _spec()
        *members, num_particles, _ = node.values.shape
        even = parts > 1 and num_particles % parts == 0
        return (_spec(*(None for _ in members), PARTICLE) if even else _spec(), _spec())

    specs = jax.tree.map(of, tree, is_leaf=lambda node: isinstance(node, Particles | Psi))
    leaves = jax.tree.leaves(specs, is_leaf=lambda node: isinstance(node, PartitionSpec))
    return jax.tree.unflatten(jax.tree.structure(tree), leaves)


def _weight_spec(parts: int, leaf: Array) -> PartitionSpec:
    """Divide a weight over ``psi`` along its longest axis that divides evenly."""
    even = [axis for axis, size in enumerate(leaf.shape) if parts > 1 and size % parts == 0]
    if not even:
        return _spec()
    longest = max(even, key=lambda axis: leaf.shape[axis])
    return _spec(*(None for _ in range(longest)), PSI)


def _put(mesh: Mesh, tree: Tree, specs: PyTree) -> Tree:
    there: Tree = jax.device_put(tree, jax.tree.map(lambda spec: NamedSharding(mesh, spec), specs))
    return there


# JAX has no types for these two.


def _spec(*axes: Any) -> PartitionSpec:
    return PartitionSpec(*axes)  # type: ignore[no-untyped-call]


def _with_constraint(tree: Tree, specs: PyTree) -> Tree:
    constrained: Tree = jax.lax.with_sharding_constraint(tree, specs)  # type: ignore[no-untyped-call]
    return constrained

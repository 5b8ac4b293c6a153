"""How one run is divided over a mesh of devices: by annotation, the functions stay what they are.

A mesh has an axis ``particle``, an axis ``data``, an axis ``psi``, or several of them. Particles are
divided over the first, the rows of a batch over the second, the weights of ψ and its optimizer over
the third; log-weights and all the rest are on every device. Here are the
annotations, for the few places where the compiler needs to be told. They look at the mesh that is in
force where a function is traced (`use_mesh`), and without one they change nothing.
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
    """What is traced inside this block is for this mesh; None for the default device."""
    if mesh is None:
        yield
    else:
        with jax.set_mesh(mesh):
            yield


def axis_size(axis: str) -> int:
    """How many parts the mesh in force has along an axis; one if it has none, or there is no mesh."""
    return int(dict(jax.sharding.get_abstract_mesh().shape).get(axis, 1))


def shard_particles(values: Float[Array, "particle ..."]) -> Float[Array, "particle ..."]:
    """The first axis divided over ``particle``, where it can be divided evenly."""
    return _shard_first_axis(values, PARTICLE)


def shard_data(tree: Tree) -> Tree:
    """The first axis of every leaf divided over ``data``, where it can be divided evenly."""
    divided: Tree = jax.tree.map(lambda leaf: _shard_first_axis(leaf, DATA), tree)
    return divided


def replicate(array: Array) -> Array:
    """All of it on every device."""
    return array if jax.sharding.get_abstract_mesh().empty else _with_constraint(array, _spec())


def replicate_row(array: Array, index: Int[Array, ""]) -> Array:
    """``array[index]``, without all the other rows being sent to every device to find it."""
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
    """Every cloud of particles divided over ``particle``, every ψ over ``psi``, all else everywhere."""
    if jax.sharding.get_abstract_mesh().empty:
        return tree
    return _with_constraint(tree, _specs(tree, axis_size(PARTICLE), axis_size(PSI)))


def put_on_mesh(mesh: Mesh | None, tree: Tree) -> Tree:
    """The same, for arrays at hand: they are sent to the devices of the mesh."""
    if mesh is None:
        return tree
    return _put(mesh, tree, _specs(tree, num_parts(mesh, PARTICLE), num_parts(mesh, PSI)))


def shard_rows(mesh: Mesh | None, tree: Tree) -> Tree:
    """Rows at hand, divided over ``data`` where they can be divided evenly."""
    if mesh is None:
        return tree
    parts = num_parts(mesh, DATA)

    def spec(leaf: Array) -> PartitionSpec:
        return _spec(DATA) if parts > 1 and leaf.ndim and leaf.shape[0] % parts == 0 else _spec()

    return _put(mesh, tree, jax.tree.map(spec, tree))


def num_parts(mesh: Mesh | None, axis: str) -> int:
    """How many parts a mesh has along an axis; one if it has no such axis, or there is no mesh."""
    return 1 if mesh is None else int(dict(mesh.shape).get(axis, 1))


def _specs(tree: PyTree, parts: int, psi_parts: int) -> PyTree:
    def of(node: Array | Particles | Psi) -> PyTree:
        if isinstance(node, Psi):  # also in the optimizer, whose moments are shaped as ψ is
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
    """The longest axis of a weight divided over ``psi``, of those that can be divided evenly."""
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

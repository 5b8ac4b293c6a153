"""Split the weights of a network into φ, a flat vector, and ψ, a dictionary.

`split_weights` turns a subset into two functions, parameters → (phi, psi) and back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, PyTree

from partialbayes._utils.paths import named_leaves, path_of
from partialbayes.subsets._select import Selection, as_subset
from partialbayes.types import WEIGHT_NAMES, Latent, Leaf, Split, trains

_LARGE = 10_000  # entries of an array


def split_weights(
    params: PyTree,
    stochastic: Selection,
    *,
    freeze: Selection | None = None,
    output_axis: int = -1,
    order: Sequence[str] | None = None,
) -> Split:
    """Split a parameter tree into stochastic and deterministic weights.

    Args:
        params: Parameters of the network, or their shapes (``jax.eval_shape`` of its init). Arrays that
            cannot be trained, such as integers, need their values.
        stochastic: The random weights: a glob over paths, several globs, a predicate on leaves, or a
            `Subset`.
        freeze: The weights that are not trained, in the same forms. They need their values. Random
            weights stay random.
        output_axis: The axis of a kernel that indexes its output units; see `Network`.
        order: The paths in the order in which the network defines them, by which layers are counted. The
            order of ``params`` by default.

    Returns:
        The split; ``merge(*flatten(params))`` equals ``params``. A leaf that is stochastic in part has
        its other weights in psi as one flat array.

    Example:
        >>> import jax, partialbayes as pb
        >>> params = pb.mlp([2, 3, 1]).init(jax.random.key(0))
        >>> phi, psi = pb.model.split_weights(params, "**/bias").flatten(params)
        >>> phi.shape, sorted(psi)
        ((4,), ['layers/0/kernel', 'layers/1/kernel'])
    """
    arrays, treedef = jax.tree.flatten(params)
    names = [name for name, _ in named_leaves(params)]
    ordered = order is not None or order_is_known(params)
    places = {path: place for place, path in enumerate(order or defined_order(params))}
    leaves = tuple(
        Leaf(
            name,
            jnp.shape(value),
            jnp.result_type(value),
            places[name],
            _fan_in(jnp.shape(value), output_axis),
            ordered,
            output_axis,
        )
        for name, value in zip(names, arrays, strict=True)
    )
    _require_distinct(names)
    masks = tuple(as_subset(stochastic).masks(leaves))
    _require_stochastic(leaves, masks)
    frozen_masks = _frozen_masks(leaves, masks, freeze)
    frozen = {
        leaf.path: _select(_constant(leaf, value), fixed)
        for leaf, fixed, value in zip(leaves, frozen_masks, arrays, strict=True)
        if fixed.any() or not (leaf.size or trains(leaf))
    }
    trained = [~mask & ~fixed for mask, fixed in zip(masks, frozen_masks, strict=True)]
    sizes = [int(mask.sum()) for mask in masks]
    # By path: libraries differ in the order in which they flatten the same layers.
    by_path = sorted(range(len(leaves)), key=lambda index: _sort_key(names[index]))
    starts = dict(zip(by_path, np.cumsum([0, *(sizes[index] for index in by_path)])[:-1], strict=True))

    def flatten(params: PyTree) -> tuple[Array, dict[str, Array]]:
        values = jax.tree.leaves(params)
        phi = [to_phi(leaves[i], masks[i], jnp.asarray(values[i])) for i in by_path if sizes[i]]
        psi: dict[str, Array] = {}
        for leaf, rest, value in zip(leaves, trained, values, strict=True):
            if rest.any() or not (leaf.size or leaf.path in frozen):
                psi[leaf.path] = _select(jnp.asarray(value), rest)
        return jnp.concatenate(phi), psi

    def merge(phi: Array, psi: dict[str, Array]) -> PyTree:
        values = []
        for index, (leaf, mask) in enumerate(zip(leaves, masks, strict=True)):
            pieces: list[tuple[Any, Array]] = []
            if sizes[index]:
                piece = phi[starts[index] : starts[index] + sizes[index]].astype(leaf.dtype)
                pieces.append((mask, from_phi(leaf, mask, piece)))
            if leaf.path in psi:
                pieces.append((trained[index], psi[leaf.path]))
            if leaf.path in frozen:
                pieces.append((frozen_masks[index], _hide_from_folding(frozen[leaf.path])))
            if len(pieces) == 1:
                values.append(pieces[0][1].reshape(leaf.shape))
                continue
            places = np.argsort(np.concatenate([np.flatnonzero(part) for part, _ in pieces]))
            values.append(jnp.concatenate([piece for _, piece in pieces])[places].reshape(leaf.shape))
        return jax.tree.unflatten(treedef, values)

    return Split(
        tuple(leaves[index] for index in by_path),
        tuple(masks[index] for index in by_path),
        sum(sizes),
        flatten,
        merge,
        frozen=frozen,
    )


def to_phi(leaf: Leaf, chosen: Any, value: Array) -> Array:
    """Return the chosen entries of a leaf in the order of φ."""
    turned = np.transpose(chosen, leaf.axes)
    return jnp.ravel(_select(jnp.transpose(value, leaf.axes), turned))


def from_phi(leaf: Leaf, chosen: Any, piece: Any) -> Any:
    """Invert `to_phi`: the leaf itself if all is chosen, else the entries in the leaf's own order.

    Axes of ``piece`` before the last are kept.
    """
    before = piece.shape[:-1]
    if not chosen.all():
        numbers = np.arange(leaf.size).reshape(leaf.shape)
        own = np.transpose(numbers, leaf.axes)[np.transpose(chosen, leaf.axes)]
        return piece if (np.diff(own) > 0).all() else piece[..., np.argsort(own)]
    turned = piece.reshape(*before, *(leaf.shape[axis] for axis in leaf.axes))
    back = len(before) + np.argsort(leaf.axes)
    return turned.transpose(*range(len(before)), *(int(axis) for axis in back))


def _sort_key(path: str) -> list[tuple[bool, int, str]]:
    """Sort names, and layer 2 before layer 10."""
    return [(False, int(name), "") if name.isdecimal() else (True, 0, name) for name in path.split("/")]


def _hide_from_folding(value: Array) -> Array:
    """Hide a large constant from the compiler, which would spend minutes folding it."""
    barrier: Callable[[Array], Array] = jax.lax.optimization_barrier
    return barrier(value) if value.size > _LARGE else value


def _select(value: Array, chosen: Any) -> Array:
    """Return the chosen weights of a leaf: the leaf itself if all are chosen, else a flat array."""
    return value if chosen.all() else jnp.ravel(value)[np.flatnonzero(chosen)]


def _frozen_masks(
    leaves: Sequence[Leaf], masks: Sequence[Any], freeze: Selection | None
) -> list[Bool[np.ndarray, "..."]]:
    """Mark weights that are neither random nor trained: chosen by the user, or not differentiable."""
    fixed = [np.full(leaf.shape, not trains(leaf)) for leaf in leaves]
    if freeze is None:
        return fixed
    try:
        chosen = as_subset(freeze).masks(leaves)
    except (TypeError, ValueError) as error:
        raise type(error)(str(error).replace("stochastic", "freeze", 1)) from None
    return [(own | more) & ~mask for own, more, mask in zip(fixed, chosen, masks, strict=True)]


def with_latents(split: Split, latents: Sequence[Latent]) -> Split:
    """Append the random parameters of a likelihood to φ."""
    if not latents:
        return split
    starts = [jax.eval_shape(latent.start) for latent in latents]
    extra = tuple(
        Leaf(f"likelihood/{latent.name}", start.shape, start.dtype)
        for latent, start in zip(latents, starts, strict=True)
    )
    ends = split.dim + np.cumsum([leaf.size for leaf in extra])

    def flatten(params: PyTree) -> tuple[Array, dict[str, Array]]:
        phi, psi = split.flatten(params)
        return jnp.concatenate([phi, *(jnp.ravel(latent.start()) for latent in latents)]), psi

    def read(phi: Array) -> dict[str, Array]:
        return {
            latent.name: phi[end - leaf.size : end].reshape(leaf.shape)
            for latent, leaf, end in zip(latents, extra, ends, strict=True)
        }

    return replace(
        split,
        leaves=split.leaves + extra,
        masks=split.masks + tuple(np.ones(leaf.shape, bool) for leaf in extra),
        dim=int(ends[-1]),
        flatten=flatten,
        latents=read,
    )


def defined_order(params: PyTree) -> list[str]:
    """List the paths of the leaves in the order of definition; flattening sorts dictionaries."""
    return [path_of(keys) for keys in _walk_in_order(params)]


def order_is_known(tree: PyTree, inside: bool = False) -> bool:
    """Return True if layers can be counted: no dictionary holds several layers.

    JAX sorts dictionaries by name. Only the adapter of a library knows that their order is that of
    definition (`Network.ordered`).
    """
    if jax.tree_util.treedef_is_leaf(jax.tree.structure(tree)):
        return True
    children = jax.tree.leaves(tree, is_leaf=lambda node: node is not tree)
    if isinstance(tree, dict) and len(tree) > 1:
        arrays = all(jax.tree_util.treedef_is_leaf(jax.tree.structure(child)) for child in children)
        return arrays and (inside or all(str(name) in WEIGHT_NAMES for name in tree))
    return all(order_is_known(child, inside=True) for child in children)


def _constant(leaf: Leaf, value: Any) -> Array:
    if isinstance(value, jax.ShapeDtypeStruct):
        raise ValueError(
            f"{leaf.path!r} holds {leaf.dtype} numbers, which are not trained; pass the parameters "
            "instead of their shapes."
        )
    return jnp.asarray(value)


def _walk_in_order(tree: PyTree, prefix: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    children = jax.tree_util.tree_flatten_with_path(tree, is_leaf=lambda node: node is not tree)[0]
    if len(children) == 1 and not children[0][0]:
        yield prefix
        return
    if isinstance(tree, dict):
        place = {name: index for index, name in enumerate(tree)}
        children = sorted(children, key=lambda child: place[child[0][0].key])
    for path, child in children:
        yield from _walk_in_order(child, (*prefix, *path))


def _fan_in(shape: tuple[int, ...], output_axis: int) -> int:
    if len(shape) < 2:
        return 1
    return int(np.prod(shape, dtype=np.int64)) // max(shape[output_axis], 1)


def _require_distinct(names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ValueError(
                f"two weights have the path {name!r}, so a pattern cannot distinguish them; rename one "
                "(a name must not contain '/')."
            )


def _require_stochastic(leaves: Sequence[Leaf], masks: Sequence[Any]) -> None:
    if not any(mask.any() for mask in masks):
        raise ValueError(
            "stochastic selects no weight at all; choose among the paths "
            + ", ".join(repr(leaf.path) for leaf in leaves)
            + ", or train by plain optimization."
        )
    for leaf, mask in zip(leaves, masks, strict=True):
        if mask.any() and not leaf.is_floating:
            raise ValueError(
                f"stochastic selects {leaf.path!r}, which holds {leaf.dtype} numbers; "
                f"only floating-point weights can be random. Leave it out: & ~glob({leaf.path!r})."
            )

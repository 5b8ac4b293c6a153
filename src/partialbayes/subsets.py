"""Which weights are stochastic: a `Subset` of the weights, and the `Split` it makes of them.

A subset marks single weights: for each leaf of the parameter tree it gives a boolean mask. Whole
leaves are the usual case. `split_weights` turns a subset into two functions, parameters →
(phi, psi) and back, with phi one flat vector.
"""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, PyTree


class Leaf(NamedTuple):
    """One array of the parameter tree, without its values."""

    path: str
    shape: tuple[int, ...]
    dtype: Any

    @property
    def size(self) -> int:
        """The number of weights in it."""
        return int(np.prod(self.shape, dtype=np.int64))


Masks: TypeAlias = list[Bool[np.ndarray, "..."]]


class Subset:
    """A choice of weights, to be combined by ``|``, ``&`` and ``~``."""

    def __init__(self, masks: Callable[[Sequence[Leaf]], Masks]) -> None:
        self.masks = masks

    def __or__(self, other: Subset) -> Subset:
        return Subset(
            lambda leaves: [a | b for a, b in zip(self.masks(leaves), other.masks(leaves), strict=True)]
        )

    def __and__(self, other: Subset) -> Subset:
        return Subset(
            lambda leaves: [a & b for a, b in zip(self.masks(leaves), other.masks(leaves), strict=True)]
        )

    def __invert__(self) -> Subset:
        return Subset(lambda leaves: [~mask for mask in self.masks(leaves)])


def where(predicate: Callable[[Leaf], bool]) -> Subset:
    """The leaves for which ``predicate(leaf)`` holds; a leaf has ``path``, ``shape``, ``dtype``.

    Example:
        >>> import partialbayes as pb
        >>> small = pb.where(lambda leaf: leaf.size < 100)
    """
    return Subset(lambda leaves: [np.full(leaf.shape, bool(predicate(leaf))) for leaf in leaves])


def paths(*patterns: str) -> Subset:
    """The leaves whose path matches one of the glob patterns.

    ``*`` stands for any characters within one name, ``**`` for any number of names:
    ``"layers/2/**"`` is all of layer 2, ``"**/bias"`` every bias.

    Example:
        >>> import partialbayes as pb
        >>> chosen = pb.paths("layers/2/**") | pb.paths("**/bias")
    """

    def masks(leaves: Sequence[Leaf]) -> Masks:
        names = [leaf.path for leaf in leaves]
        for pattern in patterns:
            if not any(_matches(name, pattern) for name in names):
                raise ValueError(
                    f"stochastic: the pattern {pattern!r} matches no weight; "
                    f"the nearest paths are {_nearest(pattern, names)}."
                )
        return [
            np.full(leaf.shape, any(_matches(leaf.path, pattern) for pattern in patterns))
            for leaf in leaves
        ]

    return Subset(masks)


def _matches(path: str, pattern: str) -> bool:
    def match(names: list[str], globs: list[str]) -> bool:
        if not globs:
            return not names
        if globs[0] == "**":
            return any(match(names[skip:], globs[1:]) for skip in range(len(names) + 1))
        return bool(names) and fnmatch.fnmatchcase(names[0], globs[0]) and match(names[1:], globs[1:])

    return match(path.split("/"), pattern.split("/"))


def _nearest(pattern: str, names: list[str]) -> str:
    def likeness(name: str) -> float:
        return difflib.SequenceMatcher(None, pattern, name).ratio()

    return ", ".join(repr(name) for name in sorted(names, key=likeness, reverse=True)[:5])


def as_subset(stochastic: Subset | str | Iterable[str] | Callable[[Leaf], bool]) -> Subset:
    """A subset from what a user may write: a glob, several globs, a predicate, or a subset."""
    if isinstance(stochastic, Subset):
        return stochastic
    if isinstance(stochastic, str):
        return paths(stochastic)
    if callable(stochastic):
        return where(stochastic)
    return paths(*stochastic)


@dataclass(frozen=True, eq=False)
class Split:
    """The weights of a network, divided into a flat phi and a pytree psi.

    Attributes:
        leaves: Every array of the parameter tree, in flattening order.
        masks: For each leaf, which of its weights are stochastic.
        dim: The number of stochastic weights.
        split: ``params -> (phi, psi)``.
        merge: ``(phi, psi) -> params``.
    """

    leaves: tuple[Leaf, ...]
    masks: tuple[Bool[np.ndarray, ...], ...]
    dim: int
    split: Callable[[PyTree], tuple[Array, dict[str, Array]]]
    merge: Callable[[Array, dict[str, Array]], PyTree]

    def describe(self) -> str:
        """A table of each weight's path, shape, count and side.

        Example:
            >>> import jax, partialbayes as pb
            >>> network = pb.mlp([2, 3, 1])
            >>> print(pb.split_weights(network.init(jax.random.key(0)), "layers/0/*").describe())
            path             shape   weights  side
            layers/0/bias    (3,)          3  phi
            layers/0/kernel  (2, 3)        6  phi
            layers/1/bias    (1,)          1  psi
            layers/1/kernel  (3, 1)        3  psi
            phi: 9 stochastic weights, psi: 4 deterministic weights
        """
        rows = [("path", "shape", "weights", "side")]
        for leaf, mask in zip(self.leaves, self.masks, strict=True):
            side = "phi" if mask.all() else "psi" if not mask.any() else f"phi ({mask.sum()}) + psi"
            rows.append((leaf.path, str(leaf.shape), str(leaf.size), side))
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        lines = [
            f"{path:<{widths[0]}}  {shape:<{widths[1]}}  {count:>{widths[2]}}  {side}"
            for path, shape, count, side in rows
        ]
        rest = sum(leaf.size for leaf in self.leaves) - self.dim
        lines.append(f"phi: {self.dim} stochastic weights, psi: {rest} deterministic weights")
        return "\n".join(lines)


def split_weights(
    params: PyTree, stochastic: Subset | str | Iterable[str] | Callable[[Leaf], bool]
) -> Split:
    """Divide a parameter tree into its stochastic and deterministic weights.

    Args:
        params: The network's parameters, or their shapes (``jax.eval_shape`` of the init).
        stochastic: A glob over paths, several, a predicate on leaves, or a `Subset`.

    Returns:
        The split; ``merge(*split(params))`` gives the parameters back exactly. In psi a leaf that
        is stochastic in part holds its other weights as one flat array.
    """
    with_paths, treedef = jax.tree_util.tree_flatten_with_path(params)
    leaves = tuple(
        Leaf(jax.tree_util.keystr(path, simple=True, separator="/"), jnp.shape(x), jnp.result_type(x))
        for path, x in with_paths
    )
    masks = tuple(as_subset(stochastic).masks(leaves))
    sizes = [int(mask.sum()) for mask in masks]
    dim = sum(sizes)
    if dim == 0:
        raise ValueError(
            "stochastic selects no weight at all; choose among the paths "
            + ", ".join(repr(leaf.path) for leaf in leaves)
            + ", or train by plain optimisation."
        )
    for leaf, size in zip(leaves, sizes, strict=True):
        if size and not jnp.issubdtype(leaf.dtype, jnp.floating):
            raise ValueError(
                f"stochastic selects {leaf.path!r}, which holds {jnp.dtype(leaf.dtype).name} numbers; "
                "only floating-point weights can be random. Leave it out of the subset."
            )
    starts = np.concatenate([[0], np.cumsum(sizes)])
    whole = [size == leaf.size for leaf, size in zip(leaves, sizes, strict=True)]

    def split(params: PyTree) -> tuple[Array, dict[str, Array]]:
        phi: list[Array] = []
        psi: dict[str, Array] = {}
        for leaf, mask, size, all_of_it, value in zip(
            leaves, masks, sizes, whole, jax.tree.leaves(params), strict=True
        ):
            if size == 0:
                psi[leaf.path] = jnp.asarray(value)
            elif all_of_it:
                phi.append(jnp.ravel(value))
            else:
                flat = jnp.ravel(value)
                phi.append(flat[np.flatnonzero(mask)])
                psi[leaf.path] = flat[np.flatnonzero(~mask)]
        return jnp.concatenate(phi), psi

    def merge(phi: Array, psi: dict[str, Array]) -> PyTree:
        values = []
        for index, (leaf, mask) in enumerate(zip(leaves, masks, strict=True)):
            if sizes[index] == 0:
                values.append(psi[leaf.path])
                continue
            piece = phi[starts[index] : starts[index + 1]].astype(leaf.dtype)
            if not whole[index]:
                # One gather puts both parts back in their places.
                places = np.argsort(np.concatenate([np.flatnonzero(mask), np.flatnonzero(~mask)]))
                piece = jnp.concatenate([piece, psi[leaf.path]])[places]
            values.append(piece.reshape(leaf.shape))
        return jax.tree.unflatten(treedef, values)

    return Split(leaves, masks, dim, split, merge)

"""Choose stochastic weights: a `Subset` marks single weights of the parameter tree.

For each leaf it gives a boolean mask. Subsets are chosen by path, predicate, position, role or mask, and
combined by ``|``, ``&`` and ``~``.

A *layer* is the set of leaves whose paths differ only in the last name, such as ``layers/2/kernel`` and
``layers/2/bias``. Layers are counted in the order in which the network defines them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Bool, Float

from partialbayes._utils.paths import matches, nearest, require_match
from partialbayes.types import BIAS_NAMES, SCALE_NAMES, Leaf

Masks: TypeAlias = list[Bool[np.ndarray, "..."]]


class Subset:
    """A choice of weights, which ``|``, ``&`` and ``~`` combine.

    Example:
        >>> import partialbayes as pb
        >>> chosen = pb.subsets.layer(-1) & ~pb.subsets.biases()
    """

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


Selection: TypeAlias = Subset | str | Iterable[str] | Callable[[Leaf], bool]
"""A subset, a glob, several globs, or a predicate on leaves."""


def as_subset(selection: Selection) -> Subset:
    """Convert a glob, several globs or a predicate to a subset."""
    if isinstance(selection, Subset):
        return selection
    if isinstance(selection, str):
        return glob(selection)
    if callable(selection):
        return where(selection)
    if not isinstance(selection, Iterable):
        raise TypeError(
            f"stochastic must be one or several globs over paths, a predicate or a Subset, not "
            f"{selection!r}; for example 'layers/2/**'."
        )
    return glob(*selection)


def where(predicate: Callable[[Leaf], bool]) -> Subset:
    """Choose the leaves for which a predicate holds.

    Args:
        predicate: Maps a `Leaf` to True or False.

    Returns:
        The subset.

    Example:
        >>> import partialbayes as pb
        >>> small = pb.subsets.where(lambda leaf: leaf.size < 100)
        >>> pb.partial_bnn(pb.mlp([1, 20, 1]), small, pb.gaussian()).split.dim
        61
    """
    return Subset(lambda leaves: [np.full(leaf.shape, bool(predicate(leaf))) for leaf in leaves])


def glob(*patterns: str) -> Subset:
    """Choose the leaves whose path matches a glob pattern.

    ``*`` matches any characters within one name, ``**`` any number of names: ``"layers/2/**"`` is all of
    layer 2, ``"**/bias"`` every bias, ``"**"`` everything.

    Args:
        *patterns: Glob patterns over paths.

    Returns:
        The subset.

    Example:
        >>> import partialbayes as pb
        >>> chosen = pb.subsets.glob("layers/2/**") | pb.subsets.glob("**/bias")
    """
    for pattern in patterns:
        if not isinstance(pattern, str):
            raise TypeError(
                f"stochastic must be one or several globs, a predicate on leaves or a Subset, not "
                f"{pattern!r}; for masks use mask({{path: array}})."
            )

    def masks(leaves: Sequence[Leaf]) -> Masks:
        for pattern in patterns:
            require_match(pattern, [leaf.path for leaf in leaves])
        return [
            np.full(leaf.shape, any(matches(leaf.path, pattern) for pattern in patterns))
            for leaf in leaves
        ]

    return Subset(masks)


def layer(*indices: int) -> Subset:
    """Choose whole layers by position: ``layer(0)`` is the first, ``layer(-1)`` the last.

    Args:
        *indices: Positions of layers; negative ones count from the end.

    Returns:
        The subset.

    Raises:
        ValueError: In `partial_bnn`: there is no such layer, or the order of the layers is unknown.

    Example:
        >>> import partialbayes as pb
        >>> ends = pb.subsets.layer(0, -1)
    """

    def masks(leaves: Sequence[Leaf]) -> Masks:
        names = layer_names(leaves)
        if not all(leaf.ordered for leaf in leaves):
            raise ValueError(
                "stochastic: which layer comes first is not known, because the weights are in a "
                "dictionary, which JAX sorts by name; choose by path, for example "
                f"{names[0] + '/**'!r} among {', '.join(map(repr, names))}; or, if the dictionary is in "
                "the order of the layers, pass from_params(..., ordered=True)."
            )
        for index in indices:
            if not -len(names) <= index < len(names):
                raise ValueError(
                    f"stochastic: there is no layer {index}; the network has {len(names)}: "
                    f"{', '.join(map(repr, names))}."
                )
        chosen = {names[index] for index in indices}
        return [np.full(leaf.shape, leaf.layer in chosen) for leaf in leaves]

    return Subset(masks)


def output_layer() -> Subset:
    """Choose the layer that the network defines last, ``layer(-1)``.

    Returns:
        The subset.

    Example:
        >>> import partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([2, 20, 1]), pb.subsets.output_layer(), pb.gaussian())
        >>> model.split.dim
        21
    """
    return layer(-1)


def biases() -> Subset:
    """Choose every bias by its name, ``bias`` or ``b``.

    Returns:
        The subset.

    Example:
        >>> import partialbayes as pb
        >>> pb.partial_bnn(pb.mlp([2, 20, 1]), pb.subsets.biases(), pb.gaussian()).split.dim
        21
    """
    return _role("bias", lambda leaf: leaf.name in BIAS_NAMES)


def normalization_scales() -> Subset:
    """Choose the scales of normalization layers: ``scale``, ``gamma``, or a ``weight`` of one axis.

    Returns:
        The subset.

    Example:
        >>> import partialbayes as pb
        >>> chosen = pb.subsets.normalization_scales() | pb.subsets.biases()
    """

    def is_scale(leaf: Leaf) -> bool:
        return leaf.name in SCALE_NAMES or (leaf.name == "weight" and len(leaf.shape) <= 1)

    return _role("normalization scale", is_scale)


def _role(role: str, predicate: Callable[[Leaf], bool]) -> Subset:
    def masks(leaves: Sequence[Leaf]) -> Masks:
        found = [predicate(leaf) for leaf in leaves]
        if not any(found):
            raise ValueError(
                f"stochastic: no weight of this network is a {role} by its name; select by path or "
                f"predicate among {', '.join(repr(leaf.path) for leaf in leaves)}."
            )
        return [np.full(leaf.shape, chosen) for leaf, chosen in zip(leaves, found, strict=True)]

    return Subset(masks)


def mask(masks_by_path: Mapping[str, Any]) -> Subset:
    """Choose single weights by boolean arrays, one for each path.

    Args:
        masks_by_path: Maps the path of a leaf to an array of its shape, True for stochastic weights.
            Leaves without an entry are not chosen.

    Returns:
        The subset.

    Example:
        >>> import numpy as np, partialbayes as pb
        >>> chosen = pb.subsets.mask({"layers/0/kernel": np.array([[True, False, False]])})
        >>> pb.partial_bnn(pb.mlp([1, 3, 1]), chosen, pb.gaussian()).split.dim
        1
    """
    arrays = {path: np.asarray(value) for path, value in masks_by_path.items()}
    for path, array in arrays.items():
        if array.dtype != bool:
            raise ValueError(
                f"stochastic: the mask of {path!r} holds {array.dtype} numbers; it must be boolean, "
                "True where a weight is stochastic."
            )

    def masks(leaves: Sequence[Leaf]) -> Masks:
        shapes = {leaf.path: leaf.shape for leaf in leaves}
        for path, array in arrays.items():
            if path not in shapes:
                raise ValueError(
                    f"stochastic: a mask has the path {path!r}, but there is no such weight; "
                    f"the nearest paths are {nearest(path, list(shapes))}."
                )
            if array.shape != shapes[path]:
                raise ValueError(
                    f"stochastic: the mask of {path!r} has shape {array.shape}, but the weight has "
                    f"shape {shapes[path]}; pass one boolean per weight."
                )
        return [arrays.get(leaf.path, np.zeros(leaf.shape, bool)) for leaf in leaves]

    return Subset(masks)


def random_fraction(fraction: float, among: Selection = "**", *, seed: int = 0) -> Subset:
    """Choose a random fraction of single weights, the same for the same seed.

    Args:
        fraction: Fraction in (0, 1]; at least one weight is chosen.
        among: The weights to choose from; all by default.
        seed: Integer seed.

    Returns:
        The subset.

    Example:
        >>> import partialbayes as pb
        >>> chosen = pb.subsets.random_fraction(0.1, among="layers/0/kernel")
        >>> pb.partial_bnn(pb.mlp([10, 10, 1]), chosen, pb.gaussian()).split.dim
        10
    """
    if not 0.0 < fraction <= 1.0:
        raise ValueError(f"fraction must be above 0 and at most 1, not {fraction!r}.")

    def scores(leaves: Sequence[Leaf]) -> list[Float[np.ndarray, ...]]:
        generator = np.random.default_rng(seed)
        return [generator.random(leaf.shape) for leaf in leaves]

    return top(scores, lambda available: max(1, round(fraction * available)), among)


def top(
    scores: Callable[[Sequence[Leaf]], list[Any]], count: Callable[[int], int], among: Selection
) -> Subset:
    """Choose the highest-scoring floating-point weights among a selection; ties go to the first."""

    def masks(leaves: Sequence[Leaf]) -> Masks:
        candidates = [
            chosen & leaf.is_floating
            for leaf, chosen in zip(leaves, as_subset(among).masks(leaves), strict=True)
        ]
        flat = np.concatenate([np.ravel(np.asarray(score, float)) for score in scores(leaves)])
        allowed = np.concatenate([np.ravel(chosen) for chosen in candidates])
        order = np.argsort(-np.where(allowed, flat, -np.inf), kind="stable")
        keep = np.zeros(flat.shape, bool)
        keep[order[: count(int(allowed.sum()))]] = True
        ends = np.cumsum([leaf.size for leaf in leaves])[:-1]
        pieces = np.split(keep & allowed, ends)
        return [piece.reshape(leaf.shape) for leaf, piece in zip(leaves, pieces, strict=True)]

    return Subset(masks)


def layer_names(leaves: Sequence[Leaf]) -> list[str]:
    """List the paths of the layers in the order in which the network defines them."""
    return list(dict.fromkeys(leaf.layer for leaf in sorted(leaves, key=lambda leaf: leaf.position)))

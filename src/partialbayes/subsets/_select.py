"""Which weights are stochastic: a `Subset` marks single weights of the parameter tree.

For each leaf it gives a boolean mask; whole leaves are the usual case. Subsets are chosen by path,
predicate, position, role or explicit masks, and combined by ``|``, ``&`` and ``~``. Those that need
the weights' values or data are in `partialbayes.subsets._ranking`.

A *layer* is the set of leaves that differ in the last name of their path only: ``layers/2/kernel``
and ``layers/2/bias``. Layers are counted in the order in which the network defines them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Bool, Float

from partialbayes._utils.globs import matches, nearest, require_match
from partialbayes.types import BIAS_NAMES, SCALE_NAMES, Leaf

Masks: TypeAlias = list[Bool[np.ndarray, "..."]]


class Subset:
    """A choice of weights, to be combined by ``|``, ``&`` and ``~``.

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
"""What a user may write: a subset, a glob, several globs, or a predicate on leaves."""


def as_subset(selection: Selection) -> Subset:
    """A subset from what a user may write."""
    if isinstance(selection, Subset):
        return selection
    if isinstance(selection, str):
        return glob(selection)
    if callable(selection):
        return where(selection)
    if not isinstance(selection, Iterable):
        raise TypeError(
            f"stochastic must be a glob over paths, several, a predicate or a Subset, not "
            f"{selection!r}; for example 'layers/2/**'."
        )
    return glob(*selection)


def where(predicate: Callable[[Leaf], bool]) -> Subset:
    """The leaves for which ``predicate(leaf)`` holds; see `Leaf` for what it may look at.

    Example:
        >>> import partialbayes as pb
        >>> small = pb.subsets.where(lambda leaf: leaf.size < 100)
    """
    return Subset(lambda leaves: [np.full(leaf.shape, bool(predicate(leaf))) for leaf in leaves])


def glob(*patterns: str) -> Subset:
    """The leaves whose path matches one of the glob patterns.

    ``*`` stands for any characters within one name, ``**`` for any number of names:
    ``"layers/2/**"`` is all of layer 2, ``"**/bias"`` every bias, ``"**"`` everything.

    Raises:
        ValueError: From `partial_bnn`, where a pattern matches no weight; it names the nearest.
        TypeError: A pattern is not text.

    Example:
        >>> import partialbayes as pb
        >>> chosen = pb.subsets.glob("layers/2/**") | pb.subsets.glob("**/bias")
    """
    for pattern in patterns:
        if not isinstance(pattern, str):
            raise TypeError(
                f"stochastic must be a glob, several, a predicate on leaves or a Subset; {pattern!r} is "
                "none of these. For masks use mask({path: array})."
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
    """Whole layers by position: ``layer(0)`` is the first, ``layer(-1)`` the last.

    Raises:
        ValueError: From `partial_bnn`: there is no such layer, or the order of the layers is not
            known.

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
                "the order of the layers, say so by from_params(..., ordered=True)."
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
    """The layer that the network defines last, ``layer(-1)``.

    Example:
        >>> import partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([2, 20, 1]), pb.subsets.output_layer(), pb.gaussian())
        >>> model.split.dim
        21
    """
    return layer(-1)


def biases() -> Subset:
    """Every bias, by its name: ``bias`` or ``b``.

    Example:
        >>> import partialbayes as pb
        >>> pb.partial_bnn(pb.mlp([2, 20, 1]), pb.subsets.biases(), pb.gaussian()).split.dim
        21
    """
    return _role("bias", lambda leaf: leaf.name in BIAS_NAMES)


def normalization_scales() -> Subset:
    """Every scale of a normalization layer: ``scale``, ``gamma``, or a ``weight`` of one axis.

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
                f"stochastic: no weight of this network is a {role} by its name; the paths are "
                f"{', '.join(repr(leaf.path) for leaf in leaves)}. Select by path or predicate."
            )
        return [np.full(leaf.shape, chosen) for leaf, chosen in zip(leaves, found, strict=True)]

    return Subset(masks)


def mask(masks_by_path: Mapping[str, Any]) -> Subset:
    """Single weights: a boolean array for each path named; weights elsewhere are not chosen.

    Args:
        masks_by_path: From a leaf's path to an array of its shape, True for stochastic weights.

    Raises:
        ValueError: From `partial_bnn`: a path is unknown, or its mask not boolean or of another
            shape.

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
                    f"stochastic: there is a mask for {path!r}, but no such weight; the nearest paths "
                    f"are {nearest(path, list(shapes))}."
                )
            if array.shape != shapes[path]:
                raise ValueError(
                    f"stochastic: the mask of {path!r} has shape {array.shape}, but the weight has "
                    f"shape {shapes[path]}; give one boolean per weight."
                )
        return [arrays.get(leaf.path, np.zeros(leaf.shape, bool)) for leaf in leaves]

    return Subset(masks)


def random_fraction(fraction: float, among: Selection = "**", *, seed: int = 0) -> Subset:
    """A random share of single weights, the same for the same seed.

    Args:
        fraction: Between 0 and 1; at least one weight is chosen.
        among: Which weights to choose from; all by default.
        seed: Whole number.

    Raises:
        ValueError: ``fraction`` is not within (0, 1].

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
    """The highest-scoring floating-point weights among a selection; ties go to the first."""

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
    """The layers' paths, in the order in which the network defines them."""
    return list(dict.fromkeys(leaf.layer for leaf in sorted(leaves, key=lambda leaf: leaf.position)))

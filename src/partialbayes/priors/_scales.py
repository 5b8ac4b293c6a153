"""Scales of priors: one number, or one per weight or layer, or by fan-in; fixed or learned."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree, Shaped

from partialbayes._utils.checks import require_positive
from partialbayes._utils.paths import matches, require_match
from partialbayes._utils.recipes import serializable_argument
from partialbayes.parameters import Learned, Sampled, as_parameter, parameter_dict
from partialbayes.subsets._select import layer_names
from partialbayes.types import Leaf, Split


@serializable_argument
class FanIn(NamedTuple):
    """A scale of gain / sqrt(fan-in)."""

    gain: Any


@serializable_argument
class PerLayer(NamedTuple):
    """One scale per layer."""

    scale: Any


def fan_in(gain: Any = 1.0) -> FanIn:
    """Scale the prior of each kernel by ``gain / sqrt(fan-in)``, and of each bias by ``gain``.

    The fan-in of a kernel is the product of all its axes except that of its outputs.

    Args:
        gain: A number, ``learned(start)``, or any other form of a scale.

    Returns:
        The scale, to pass to a prior.

    Example:
        >>> import partialbayes as pb
        >>> prior = pb.priors.normal(scale=pb.priors.fan_in(2.0))
    """
    return FanIn(gain)


def per_layer(scale: Any) -> PerLayer:
    """Give each layer with stochastic weights a prior scale of its own.

    Args:
        scale: ``learned(start)`` to learn one scale per layer, or one number per layer in the order in
            which the network defines them.

    Returns:
        The scale, to pass to a prior.

    Example:
        >>> import partialbayes as pb
        >>> prior = pb.priors.normal(scale=pb.priors.per_layer(pb.learned(1.0)))
    """
    return PerLayer(scale)


class Scale(NamedTuple):
    """A scale bound to a split.

    Attributes:
        init: Returns the initial learned parameters.
        value: Maps learned parameters to the scale of each weight.
    """

    init: Callable[[], PyTree]
    value: Callable[[PyTree], Float[Array, " dim"]]


def require_scale(scale: Any) -> None:
    """Reject values that are not a scale for any split."""
    if isinstance(scale, Sampled):
        raise ValueError(
            "scale: sampled() is for parameters of a likelihood; a prior's scale may be a number or "
            "learned(start)."
        )
    if isinstance(scale, FanIn | PerLayer):
        require_scale(scale[0])
    elif isinstance(scale, Mapping):
        for value in scale.values():
            require_scale(value)
    elif not isinstance(scale, Learned):
        require_positive("scale", scale)


def bind_scale(scale: Any, split: Split) -> Scale:
    """Bind a scale to a split."""
    if isinstance(scale, FanIn):
        gain = bind_scale(scale.gain, split)
        divisor = np.sqrt(_per_weight(split, lambda leaf: float(leaf.fan_in)))
        return Scale(gain.init, lambda learned: gain.value(learned) / divisor)
    if isinstance(scale, PerLayer):
        names = layer_names([leaf for leaf in split.leaves if _count(split, leaf)])
        return _by_group(_layer_values(scale.scale, names), lambda leaf: leaf.layer, split)
    if isinstance(scale, Mapping):
        chosen = {leaf.path: _choose_pattern(leaf, scale, split) for leaf in split.leaves}
        return _by_group(dict(scale), lambda leaf: chosen[leaf.path], split)
    single = as_parameter("scale", scale)
    if single.shape not in ((), (split.dim,)):
        raise ValueError(
            f"scale of the prior has shape {single.shape}; give one number, or one for each of the "
            f"{split.dim} stochastic weights, shape ({split.dim},), or a dictionary of patterns."
        )
    return Scale(single.init, lambda learned: jnp.broadcast_to(single.value(learned, {}), (split.dim,)))


def _by_group(values: dict[str, Any], group: Callable[[Leaf], str], split: Split) -> Scale:
    """Give each group of leaves one scale."""
    names = list(values)
    parameters = parameter_dict(
        {name: as_parameter(f"scale of {name!r}", values[name]) for name in names}
    )
    index = _per_weight(split, lambda leaf: names.index(group(leaf)))

    def value(learned: PyTree) -> Float[Array, " dim"]:
        current = parameters.values(learned, {})
        return jnp.stack([current[name] for name in names])[index]

    return Scale(parameters.init, value)


def _layer_values(scale: Any, names: list[str]) -> dict[str, Any]:
    if isinstance(scale, Learned) and np.ndim(scale.start) == 0:
        return dict.fromkeys(names, scale)
    starts = scale.start if isinstance(scale, Learned) else scale
    if np.shape(starts) != (len(names),):
        raise ValueError(
            f"scale: per_layer was given shape {np.shape(starts)}, but {len(names)} layers have "
            f"stochastic weights: {', '.join(map(repr, names))}; pass one number for each."
        )
    return {
        name: Learned(start) if isinstance(scale, Learned) else start
        for name, start in zip(names, starts, strict=True)
    }


def _choose_pattern(leaf: Leaf, scale: Mapping[str, Any], split: Split) -> str:
    """Choose the pattern for a leaf: its own path, else a glob, else ``**``."""
    for pattern in scale:
        require_match(pattern, [leaf.path for leaf in split.leaves], "scale")
    found = [pattern for pattern in scale if matches(leaf.path, pattern)]
    if not found:
        if not _count(split, leaf):
            return next(iter(scale))
        raise ValueError(
            f"scale: no pattern matches the stochastic weight {leaf.path!r}; add one, or '**' for all "
            "the rest."
        )
    if leaf.path in found:
        return leaf.path
    globs = [pattern for pattern in found if pattern != "**"] or found
    if len({repr(scale[pattern]) for pattern in globs}) > 1 and _count(split, leaf):
        listed = " and ".join(f"{pattern!r} ({scale[pattern]!r})" for pattern in globs)
        raise ValueError(
            f"scale: the patterns {listed} both match {leaf.path!r} and disagree; make them disjoint, "
            f"or name {leaf.path!r} itself, which decides."
        )
    return globs[0]


def _count(split: Split, leaf: Leaf) -> int:
    return int(split.masks[split.leaves.index(leaf)].sum())


def _per_weight(split: Split, function: Callable[[Leaf], Any]) -> Shaped[np.ndarray, " dim"]:
    """Repeat a function of leaves over their stochastic weights."""
    counts = [int(mask.sum()) for mask in split.masks]
    return np.concatenate(
        [
            np.full(count, function(leaf))
            for leaf, count in zip(split.leaves, counts, strict=True)
            if count
        ]
    )

"""Convert Flax NNX modules to networks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
from jaxtyping import PyTree

from partialbayes.networks._pretrained import require_weights
from partialbayes.types import Network, PRNGKey

if TYPE_CHECKING:
    from flax import nnx


def from_nnx(
    module: nnx.Module | Callable[[nnx.Rngs], nnx.Module], *, pretrained: bool = False
) -> Network:
    """Convert a Flax NNX module to a network.

    Args:
        module: A module, whose weights are the start of training; or a function from ``nnx.Rngs`` to a
            module, which draws new weights for each key.
        pretrained: Whether the weights are trained; see `Network`.

    Returns:
        The network. The paths of its weights are the attribute names of the module, such as
        ``layers/0/kernel``. It is in evaluation mode: dropout is off, and state other than parameters
        (batch statistics) is constant. The module is not changed.

    Raises:
        TypeError: ``module`` is neither an ``nnx.Module`` nor a function from ``nnx.Rngs`` to one.
        ValueError: The module draws random numbers in evaluation mode, or ``pretrained`` is set with a
            function, which has no weights.

    Example:
        >>> from flax import nnx
        >>> import partialbayes as pb
        >>> network = pb.from_nnx(lambda rngs: nnx.Linear(2, 1, rngs=rngs))
    """
    from flax import nnx

    def parts(source: Any) -> tuple[Any, Any, Any]:
        copy = nnx.clone(source)
        copy.eval()
        return nnx.split(copy, nnx.Param, ...)

    def weights(source: Any, state: Any) -> PyTree:
        return _sort_by_definition(nnx.to_pure_dict(state), source)

    if isinstance(module, nnx.Module):
        graph, own, rest = parts(module)
        start = weights(module, own)

        def init(key: PRNGKey) -> PyTree:
            return start
    elif callable(module):
        require_weights(pretrained, "module")
        graph, own, rest = parts(module(nnx.Rngs(0)))

        def init(key: PRNGKey) -> PyTree:
            fresh = module(nnx.Rngs(key))
            return weights(fresh, nnx.state(fresh, nnx.Param))
    else:
        raise TypeError(
            f"module must be an nnx.Module or a function from nnx.Rngs to one, not {type(module)}."
        )

    def apply(params: PyTree, inputs: PyTree) -> PyTree:
        # Copies, so that changes by the call are dropped.
        state, frozen = jax.tree.map(lambda leaf: leaf, (own, rest))
        nnx.replace_by_pure_dict(state, params)
        merged: Any = nnx.merge(graph, state, frozen)
        before = jax.tree.leaves(nnx.state(merged, nnx.RngCount))
        outputs = merged(inputs)
        after = jax.tree.leaves(nnx.state(merged, nnx.RngCount))
        if any(a is not b for a, b in zip(after, before, strict=True)):
            raise ValueError(
                "module draws random numbers when it is called in evaluation mode; switch that off, so "
                "that its outputs depend only on weights and inputs."
            )
        return outputs

    return Network(init, apply, ordered=True, pretrained=pretrained)


def _sort_by_definition(state: Any, module: Any) -> Any:
    """Sort a dictionary by the order in which the module's attributes were set."""
    if not isinstance(state, dict):
        return state
    names = list(vars(module)) if hasattr(module, "__dict__") else []

    def child(name: Any) -> Any:
        return getattr(module, name, None) if isinstance(name, str) else module[name]

    known = sorted((name for name in state if name in names), key=names.index)
    others = [name for name in state if name not in names]
    return {name: _sort_by_definition(state[name], child(name)) for name in (*known, *others)}

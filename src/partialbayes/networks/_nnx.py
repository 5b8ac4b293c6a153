"""Flax NNX modules as networks."""

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
    """A network from a Flax NNX module.

    Args:
        module: A module, whose present weights are where training starts; or a function from
            ``nnx.Rngs`` to a module, which gives fresh weights for every key.
        pretrained: Whether the module's weights are worth keeping; see `Network`.

    Returns:
        The network; the paths of its weights are the module's attribute names, such as
        ``layers/0/kernel``. It is in evaluation mode: dropout is off, and state that is not a
        parameter (batch statistics) stays as it is. The module itself is not touched.

    Raises:
        TypeError: ``module`` is neither an ``nnx.Module`` nor a function from ``nnx.Rngs`` to one.
        ValueError: The module draws random numbers in evaluation mode; or ``pretrained`` with a
            function, which has no weights to keep.

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
        return _in_defined_order(nnx.to_pure_dict(state), source)

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
        # Copies: what the call changes in them is dropped.
        state, frozen = jax.tree.map(lambda leaf: leaf, (own, rest))
        nnx.replace_by_pure_dict(state, params)
        merged: Any = nnx.merge(graph, state, frozen)
        before = jax.tree.leaves(nnx.state(merged, nnx.RngCount))
        outputs = merged(inputs)
        after = jax.tree.leaves(nnx.state(merged, nnx.RngCount))
        if any(a is not b for a, b in zip(after, before, strict=True)):
            raise ValueError(
                "the module draws random numbers when it is called in evaluation mode, so its outputs "
                "are no function of its weights and inputs; switch that off in the module."
            )
        return outputs

    return Network(init, apply, ordered=True, pretrained=pretrained)


def _in_defined_order(state: Any, module: Any) -> Any:
    """The same dictionary in the order in which the module's attributes were set."""
    if not isinstance(state, dict):
        return state
    names = list(vars(module)) if hasattr(module, "__dict__") else []

    def child(name: Any) -> Any:
        return getattr(module, name, None) if isinstance(name, str) else module[name]

    known = sorted((name for name in state if name in names), key=names.index)
    others = [name for name in state if name not in names]
    return {name: _in_defined_order(state[name], child(name)) for name in (*known, *others)}

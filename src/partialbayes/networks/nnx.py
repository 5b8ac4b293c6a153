"""Flax NNX modules as networks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
from jaxtyping import PyTree

from partialbayes.types import Network, PRNGKey

if TYPE_CHECKING:
    from flax import nnx


def from_nnx(module: nnx.Module | Callable[[nnx.Rngs], nnx.Module]) -> Network:
    """A network from a Flax NNX module.

    Args:
        module: A module, whose present weights are where training starts; or a function from
            ``nnx.Rngs`` to a module, which gives fresh weights for every key.

    Returns:
        The network; the paths of its weights are the module's attribute names, such as
        ``layers/0/kernel``. State that is not a parameter stays as it is.

    Example:
        >>> from flax import nnx
        >>> import partialbayes as pb
        >>> network = pb.from_nnx(lambda rngs: nnx.Linear(2, 1, rngs=rngs))
    """
    from flax import nnx

    def parts(source: Any) -> tuple[Any, Any, Any]:
        if isinstance(source, nnx.Module):
            source.eval()
        return nnx.split(source, nnx.Param, ...)

    if isinstance(module, nnx.Module):
        graph, own, rest = parts(module)
        start = nnx.to_pure_dict(own)

        def init(key: PRNGKey) -> PyTree:
            return start
    elif callable(module):
        graph, own, rest = parts(module(nnx.Rngs(0)))

        def init(key: PRNGKey) -> PyTree:
            _, fresh, _ = parts(module(nnx.Rngs(key)))
            return nnx.to_pure_dict(fresh)
    else:
        raise TypeError(
            f"module must be an nnx.Module or a function from nnx.Rngs to one, not {type(module)}."
        )

    def apply(params: PyTree, inputs: PyTree) -> PyTree:
        state = jax.tree.map(lambda leaf: leaf, own)
        nnx.replace_by_pure_dict(state, params)
        merged: Any = nnx.merge(graph, state, rest)
        return merged(inputs)

    return Network(init, apply)

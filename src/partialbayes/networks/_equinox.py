"""Convert Equinox modules to networks."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
from jaxtyping import PyTree

from partialbayes.networks._pretrained import require_weights
from partialbayes.types import Network, PRNGKey

if TYPE_CHECKING:
    import equinox


def from_equinox(
    module: equinox.Module | Callable[[PRNGKey], equinox.Module],
    state: Any = None,
    *,
    pretrained: bool = False,
) -> Network:
    """Convert an Equinox module, which takes a single example, to a network.

    Args:
        module: A module, whose weights are the start of training; or a function from a key to a module,
            which draws new weights for each key.
        state: The ``eqx.nn.State`` of a module with batch statistics, which is called as ``module(x,
            state)``.
        pretrained: Whether the weights are trained; see `Network`.

    Returns:
        The network. The paths of its weights are the field names of the module, such as
        ``layers/0/weight``. It is in inference mode: dropout is off, and state is constant.

    Raises:
        TypeError: ``module`` is neither an ``eqx.Module`` nor a function from a key to one.
        ValueError: The module needs arguments besides an input, or ``pretrained`` is set with a
            function, which has no weights.

    Example:
        >>> import equinox as eqx, jax, partialbayes as pb
        >>> network = pb.from_equinox(lambda key: eqx.nn.MLP(2, 1, 20, 2, key=key))
        >>> pb.partial_bnn(network, "layers/1/**", pb.gaussian()).split.dim
        420
    """
    import equinox as eqx

    def weights(source: Any) -> PyTree:
        return eqx.filter(source, eqx.is_inexact_array)

    if isinstance(module, eqx.Module):
        template: Any = module
        start = weights(template)

        def init(key: PRNGKey) -> PyTree:
            return start
    elif callable(module):
        require_weights(pretrained, "module")
        template = module(jax.random.key(0))
        if not isinstance(template, eqx.Module):
            raise TypeError(
                f"module must return an eqx.Module for a key, not {type(template)}; for a module with "
                "state pass the module and its state, from eqx.nn.make_with_state."
            )

        def init(key: PRNGKey) -> PyTree:
            return weights(module(key))
    else:
        raise TypeError(f"module must be an eqx.Module or a function from a key to one, not {module!r}.")

    _check_call(type(template), has_state=state is not None)
    frozen = eqx.filter(eqx.nn.inference_mode(template), eqx.is_inexact_array, inverse=True)

    def apply(params: PyTree, inputs: PyTree) -> PyTree:
        merged = eqx.combine(params, frozen)
        if state is None:
            return jax.vmap(merged)(inputs)
        outputs, _ = jax.vmap(merged, axis_name="batch", in_axes=(0, None), out_axes=(0, None))(
            inputs, state
        )
        return outputs

    return Network(init, apply, output_axis=0, pretrained=pretrained)


def _check_call(kind: type, has_state: bool) -> None:
    """Require that a module can be called as ``module(x)`` or ``module(x, state)``."""
    needed = [
        parameter.name
        for parameter in list(inspect.signature(kind.__call__).parameters.values())[2:]
        if parameter.default is inspect.Parameter.empty
        and parameter.kind not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    ]
    random = [name for name in needed if name in ("key", "rng", "rngs")]
    if random:
        raise ValueError(
            f"module {kind.__name__} cannot be called without {random[0]!r}; give it the default None, "
            "and draw no random numbers in inference mode."
        )
    if needed and not has_state:
        raise ValueError(
            f"module {kind.__name__} takes {needed} besides its input; for a module with state pass "
            "from_equinox(module, state)."
        )

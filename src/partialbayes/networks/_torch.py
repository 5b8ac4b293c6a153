"""Use PyTorch modules as networks, run by JAX.

A bridge runs the module's own code on JAX arrays, so that outputs, gradients and compilation are JAX's:
torchax, or torch2jax if only that is installed.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from partialbayes._utils.paths import named_leaves, nested
from partialbayes.types import Network

if TYPE_CHECKING:
    import torch


def from_torch(
    module: torch.nn.Module,
    *,
    output: Callable[[Any], Any] | None = None,
    pretrained: bool = True,
    bridge: str | None = None,
) -> Network:
    """Make a network from a PyTorch module.

    Args:
        module: The module; training starts at its current weights. It is copied, and does not change.
        output: Selects the output from the module's result, such as ``lambda result: result.logits``;
            all of the result by default.
        pretrained: Whether the module's weights are trained; see `Network`. False for a module
            that was never trained.
        bridge: The bridge, "torchax" or "torch2jax"; the first that is installed by default.

    Returns:
        The network. The paths of its weights are the module's names, such as ``layer4/0/conv1/weight``.
        It is in evaluation mode: dropout is off, and buffers (batch statistics) are constant. Inputs
        are arrays as the module takes them (images are NCHW; see `with_layout`); a tuple is passed as
        several arguments, a dictionary as arguments by name.

    Raises:
        ImportError: Neither bridge is installed, or not the requested one.
        ValueError: The module has no weights, or has not made them yet. At a call: it uses an operator
            that the bridge lacks, draws random numbers in evaluation mode, or decides by the values of
            its inputs.

    Example:
        >>> import partialbayes as pb
        >>> def classifier(module):  # a trained torch.nn.Module
        ...     return pb.partial_bnn(pb.from_torch(module), "head/**", pb.categorical(), freeze="**")
    """
    run = _BRIDGES[_installed(bridge)]
    import torch

    module = getattr(module, "_orig_mod", module)  # what torch.compile was given
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"module must be a torch.nn.Module, not {module!r:.80}.")
    if isinstance(module, torch.jit.ScriptModule):
        raise TypeError("module is scripted or traced; pass the torch.nn.Module that it was made from.")
    if any(torch.nn.parameter.is_lazy(value) for value in module.parameters()):
        raise ValueError("module has not made its weights yet: call it once on an input.")
    evaluated = copy.deepcopy(module).eval().requires_grad_(False)
    params = {name: _as_jax(value) for name, value in evaluated.named_parameters()}
    buffers = {name: _as_jax(value) for name, value in evaluated.named_buffers()}
    if not params:
        raise ValueError("module has no weights; pass the torch.nn.Module that holds them.")
    weights = nested({name.replace(".", "/"): value for name, value in params.items()})
    call = run(evaluated, output or (lambda result: result))

    def apply(params: PyTree, inputs: PyTree) -> PyTree:
        state = {path.replace("/", "."): value for path, value in named_leaves(params)}
        arguments, named = _arguments(inputs)
        # Foreign code need not pass the caller's strict checks.
        with jax.numpy_rank_promotion("allow"), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Explicitly requested dtype int64")
            try:
                return call(state | buffers, arguments, named)
            except (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError) as error:
                raise ValueError(
                    "the module decides by the values of its inputs (an if, .item(), .numpy()), and so "
                    "cannot be compiled; use torch.where, or cut the module before that. JAX reports: "
                    f"{str(error)[:200]}"
                ) from None

    return Network(lambda key: weights, apply, output_axis=0, ordered=True, pretrained=pretrained)


def _installed(bridge: str | None) -> str:
    if bridge not in (None, *_BRIDGES):
        raise ValueError(f"bridge must be 'torchax' or 'torch2jax', not {bridge!r}.")
    there = [name for name in _BRIDGES if find_spec(name) is not None]
    if find_spec("torch") is None or not there or bridge not in (None, *there):
        missing = bridge or "a bridge: torchax, or torch2jax"
        raise ImportError(
            f"from_torch needs torch and {missing}; install them by pip install -r "
            "requirements-torch.txt."
        )
    return bridge or there[0]


def _torchax(module: Any, output: Callable[[Any], Any]) -> Callable[..., PyTree]:
    import torch
    import torchax
    from torchax.tensor import OperatorNotFound

    environment = torchax.default_env()

    def call(state: dict[str, Array], arguments: tuple[Any, ...], named: dict[str, Any]) -> PyTree:
        before = environment.prng_key
        state, arguments, named = environment.j2t_iso((state, arguments, named))
        try:
            # Tensors that the module makes (positions, masks) are made on the same device.
            with environment, torch.device("jax"):
                result = output(torch.func.functional_call(module, state, arguments, named))
        except OperatorNotFound as error:
            raise ValueError(
                "the module uses an operator that torchax does not have; replace it, or cut the module "
                f"before it. torchax reports: {str(error)[:300]}"
            ) from None
        except AssertionError as error:
            if "mixed math" not in str(error):
                raise
            raise ValueError(
                "the module mixes its inputs with a tensor that is neither a parameter nor a buffer; "
                "make it one by register_buffer."
            ) from None
        if environment.prng_key is not before:
            environment.prng_key = before
            raise _draws()
        return environment.t2j_iso(result)

    return call


def _torch2jax(module: Any, output: Callable[[Any], Any]) -> Callable[..., PyTree]:
    from torch2jax import t2j

    function = t2j(module)
    names = {id(value): name for name, value in module.named_parameters()}
    shared = {  # a weight of several names is passed under each of them
        name: names[id(value)] for name, value in module.named_parameters(remove_duplicate=False)
    }
    kept = set(module.state_dict())

    def call(state: dict[str, Array], arguments: tuple[Any, ...], named: dict[str, Any]) -> PyTree:
        if named:
            raise ValueError(
                "inputs by name need torchax as the bridge; with torch2jax pass a tuple in the order of "
                "the module's arguments."
            )
        state = state | {name: state[first] for name, first in shared.items()}
        own = {name: value for name, value in state.items() if name in kept}
        try:
            return output(function(*arguments, state_dict=own))
        except AssertionError as error:
            if "mk_rng" in str(error):
                raise _draws() from None
            raise
        except (KeyError, NotImplementedError) as error:
            raise ValueError(
                "the module uses an operator that torch2jax does not have; replace it, cut the module "
                f"before it, or install torchax. torch2jax reports: {str(error)[:300]}"
            ) from None

    return call


_BRIDGES = {"torchax": _torchax, "torch2jax": _torch2jax}  # in order of preference


def _draws() -> ValueError:
    return ValueError(
        "the module draws random numbers when it is called in evaluation mode, so its outputs are no "
        "function of its weights and inputs; switch that off in the module."
    )


def _arguments(inputs: PyTree) -> tuple[tuple[Any, ...], dict[str, Any]]:
    inputs = jax.tree.map(jnp.asarray, inputs)
    if isinstance(inputs, dict):
        return (), inputs
    return tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,), {}


def _as_jax(tensor: Any) -> Array:
    """Copy a tensor to JAX; the module may change its own later."""
    import torch

    tensor = tensor.detach().cpu()
    if tensor.dtype == torch.bfloat16:
        return jnp.asarray(tensor.float().numpy(), jnp.bfloat16)
    return jnp.array(np.asarray(tensor.numpy()), copy=True)

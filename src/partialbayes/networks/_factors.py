"""Add factors of matrix products to a network, as new weights that differ between particles.

A kernel W of a product x W becomes, without a copy of W per particle,

    rank one    W ∘ (1 + s) (1 + r)ᵀ        x ↦ ((x ∘ (1 + s)) W) ∘ (1 + r)
    low rank    W + A B / √(n k)            x ↦ x W + (x A) B / √(n k)

with s for the n inputs and r for the outputs of the product, A of k columns and B of k rows. The
computation consists of products of activations with W, as before, and a little work on inputs and
outputs. In a convolution s belongs to the input channels and r to the output channels; A is a
convolution of the same extent with k output channels.

The code of the network does not change: its computation is traced, and the products that involve a
chosen weight are computed by the right-hand sides above.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from partialbayes._utils.checks import require_instance, require_positive_int
from partialbayes._utils.compat import evaluate, is_jit
from partialbayes._utils.jaxprs import interpret
from partialbayes._utils.paths import matches, named_leaves, require_match
from partialbayes._utils.recipes import serializable_builder
from partialbayes.types import Network, PRNGKey

Pattern = str | Sequence[str]
"""A glob over the paths of weights, or several."""


@serializable_builder("networks.rank_one")
def rank_one(
    network: Network,
    pattern: Pattern,
    *,
    spread: float = 0.0,
    signs: Pattern | None = None,
    inputs: PyTree = None,
) -> Network:
    """Multiply inputs and outputs of chosen layers by new weights, 1 + s and 1 + r.

    The new weights are at ``factors/<path>/input`` and ``factors/<path>/output``, those of the network
    at ``network/<path>``. They are deviations from one, so a prior of mean zero, such as the normal one,
    is centered on the original network, and its scale, fixed or learned, is the distance from it.

    Args:
        network: Any network; its code does not change.
        pattern: The weights that get factors, by one or several globs over their paths. Each must enter
            one matrix product or convolution, and nothing else.
        spread: Standard deviation of the new weights at the start of training; with 0 the network
            computes the same as before.
        signs: The chosen weights whose input factors start at 1 or −1, at random, so that their
            particles differ from the start. None by default.
        inputs: A few rows of inputs, of which only the shape matters. Needed only for weights of three
            and more axes that are not those of a convolution, such as those of an attention layer.

    Returns:
        The network with the new weights.

    Example:
        >>> import partialbayes as pb
        >>> network = pb.networks.rank_one(pb.mlp([4, 50, 50, 1]), "layers/*/kernel")
        >>> prior = pb.priors.normal(scale=pb.learned(0.1))
        >>> pb.partial_bnn(network, "factors/**", pb.gaussian(), prior).split.dim
        205
    """
    if not 0.0 <= spread < math.inf:
        raise ValueError(
            f"spread is a standard deviation, so finite and at least 0, not {spread!r}; 0 starts with "
            "the network as it is."
        )
    plan = _plan(network, pattern, inputs)
    signed = () if signs is None else _chosen(list(plan), signs, "signs")

    def init(key: PRNGKey) -> PyTree:
        if spread == 0.0 and not signed:
            factors = {
                path: {
                    "input": jnp.zeros(site.input_shape, site.dtype),
                    "output": jnp.zeros(site.output_shape, site.dtype),
                }
                for path, site in plan.items()
            }
            return {"factors": factors, "network": network.init(key)}
        key_network, key_factors = jax.random.split(key)
        keys = jax.random.split(key_factors, (len(plan), 3))
        factors = {}
        for (path, site), (key_input, key_output, key_sign) in zip(plan.items(), keys, strict=True):
            ones = 1.0 + spread * jax.random.normal(key_input, site.input_shape, site.dtype)
            if path in signed:
                ones = ones * jax.random.rademacher(key_sign, site.input_shape, site.dtype)
            output = spread * jax.random.normal(key_output, site.output_shape, site.dtype)
            factors[path] = {"input": ones - 1.0, "output": output}
        return {"factors": factors, "network": network.init(key_network)}

    def compute(product: _Product, other: Array, weight: Array, factor: dict[str, Array]) -> Array:
        scaled = other * product.along_input(1.0 + factor["input"]).astype(other.dtype)
        result = product.multiply(scaled, weight)
        return result * product.along_output(1.0 + factor["output"]).astype(result.dtype)

    return network._replace(init=init, apply=_with_factors(network, plan, compute), recipe=None)


@serializable_builder("networks.low_rank")
def low_rank(network: Network, pattern: Pattern, rank: int, *, inputs: PyTree = None) -> Network:
    """Add a product of two thin matrices, as new weights, to chosen kernels: W + A B / √(n k).

    The new weights are at ``factors/<path>/input`` (A) and ``factors/<path>/output`` (B), those of the
    network at ``network/<path>``. A starts from the standard normal law and B from zero, so the network
    starts unchanged. If both are drawn from a standard normal prior, A B / √(n k) is as large as a
    kernel that starts with variance 1/n; with a prior of scale s it is s² times that, and s times if
    only B is random.

    Args:
        network: Any network; its code does not change.
        pattern: The weights that get the product, by one or several globs over their paths. Each must
            enter one matrix product or convolution, and nothing else.
        rank: Number k of columns of A and rows of B.
        inputs: A few rows of inputs, of which only the shape matters; see `rank_one`.

    Returns:
        The network with the new weights.

    Example:
        >>> import partialbayes as pb
        >>> network = pb.networks.low_rank(pb.mlp([4, 50, 50, 1]), "layers/1/kernel", rank=2)
        >>> pb.partial_bnn(network, "factors/**/output", pb.gaussian()).split.dim
        100
    """
    require_positive_int("rank", rank, "for example rank=4.")
    plan = _plan(network, pattern, inputs)

    def init(key: PRNGKey) -> PyTree:
        key_network, key_factors = jax.random.split(key)
        keys = jax.random.split(key_factors, len(plan))
        factors = {
            path: {
                "input": jax.random.normal(key_one, (*site.kernel_shape, rank), site.dtype),
                "output": jnp.zeros((rank, *site.output_shape), site.dtype),
            }
            for (path, site), key_one in zip(plan.items(), keys, strict=True)
        }
        return {"factors": factors, "network": network.init(key_network)}

    def compute(product: _Product, other: Array, weight: Array, factor: dict[str, Array]) -> Array:
        first, second = factor["input"], factor["output"]
        scale = 1.0 / math.sqrt(first.size)  # n k: A has n rows and k columns
        result = product.multiply(other, weight)
        narrow = product.through(other, first.astype(other.dtype), (scale * second).astype(other.dtype))
        return result + narrow.astype(result.dtype)

    return network._replace(init=init, apply=_with_factors(network, plan, compute), recipe=None)


def product_weights(network: Network, inputs: PyTree) -> list[str]:
    """List the paths of the weights of two and more axes that can have factors, by trying each."""
    params = jax.eval_shape(network.init, jax.random.key(0))
    found = []
    for path, leaf in named_leaves(params):
        if len(leaf.shape) > 1:
            with suppress(ValueError):
                _plan(network, path, inputs)
                found.append(path)
    return found


class _Site(NamedTuple):
    """A chosen weight: its shape, and which of its axes are summed over, kept, or slid along."""

    shape: tuple[int, ...]
    dtype: Any
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    @property
    def input_shape(self) -> tuple[int, ...]:
        return tuple(self.shape[axis] for axis in self.inputs)

    @property
    def output_shape(self) -> tuple[int, ...]:
        return tuple(self.shape[axis] for axis in self.outputs)

    @property
    def kernel_shape(self) -> tuple[int, ...]:
        """Return all axes but those of the outputs, in order."""
        return tuple(size for axis, size in enumerate(self.shape) if axis not in self.outputs)


class _Chosen(NamedTuple):
    """A chosen weight before its product: its value, and the axis of the weight of each of its axes."""

    path: str
    value: Array
    axes: tuple[int, ...]


class _Product(NamedTuple):
    """A product that involves a weight, in terms of the axes of the weight.

    Attributes:
        inputs: The weight's axes that are summed over, in order.
        outputs: The weight's axes that the result has, in order.
        multiply: ``(other, weight) -> result``.
        along_input: Maps a factor with the axes ``inputs`` to one for the other operand.
        along_output: Maps a factor with the axes ``outputs`` to one for the result.
        through: ``(other, a, b) -> `` the product with the weight A B, through the narrow middle.
    """

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    multiply: Callable[[Array, Array], Array]
    along_input: Callable[[Array], Array]
    along_output: Callable[[Array], Array]
    through: Callable[[Array, Array, Array], Array]


Compute = Callable[[_Product, Array, Array, dict[str, Array]], Array]


def _plan(network: Network, pattern: Pattern, inputs: PyTree) -> dict[str, _Site]:
    """Return the chosen weights by path, each with the axes of its factors."""
    require_instance("network", network, Network, "wrap yours by from_nnx, from_equinox or from_params.")
    params = jax.eval_shape(network.init, jax.random.key(0))
    leaves = dict(named_leaves(params))
    plan = {}
    for path in _chosen(list(leaves), pattern, "pattern"):
        leaf = leaves[path]
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            raise ValueError(f"pattern: {path!r} holds {leaf.dtype} numbers, so it can have no factors.")
        if len(leaf.shape) == 0:
            raise ValueError(
                f"pattern: {path!r} is a single number, which takes part in no product; leave it out."
            )
        plan[path] = _Site(leaf.shape, leaf.dtype, *_usual_axes(len(leaf.shape), network.output_axis))
    if inputs is None:
        return plan
    found: dict[str, _Product] = {}

    def note(product: _Product, other: Array, weight: Array, path: Any) -> Array:
        found[path] = product
        return product.multiply(other, weight)

    jax.eval_shape(
        lambda params, inputs: _run(network, params, inputs, {path: path for path in plan}, note),
        params,
        inputs,
    )
    return {
        path: site._replace(inputs=found[path].inputs, outputs=found[path].outputs)
        for path, site in plan.items()
    }


def _usual_axes(ndim: int, output_axis: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the axes of inputs and outputs in dense and convolution layers."""
    if ndim == 1:
        return (0,), ()
    output = output_axis % ndim
    return (output - 1 if output == ndim - 1 else output + 1,), (output,)


def _with_factors(
    network: Network, plan: dict[str, _Site], compute: Compute
) -> Callable[[PyTree, PyTree], PyTree]:
    def checked(product: _Product, other: Array, weight: Array, given: Any) -> Array:
        path, factor = given
        site = plan[path]
        if (product.inputs, product.outputs) != (site.inputs, site.outputs):
            raise ValueError(
                f"pattern: the product of {path!r}, of shape {site.shape}, sums over its axes "
                f"{product.inputs} and keeps {product.outputs}, where a dense or convolution layer has "
                f"{site.inputs} and {site.outputs}; pass inputs=, a few rows, to find that out first."
            )
        return compute(product, other, weight, factor)

    def apply(params: PyTree, inputs: PyTree) -> PyTree:
        factors = {path: (path, factor) for path, factor in params["factors"].items()}
        return _run(network, params["network"], inputs, factors, checked)

    return apply


def _run(
    network: Network,
    params: PyTree,
    inputs: PyTree,
    factors: dict[str, Any],
    compute: Callable[[_Product, Array, Array, Any], Array],
) -> PyTree:
    """Run the network, with the products of the weights that have factors computed by ``compute``."""
    jaxpr, shape = jax.make_jaxpr(network.apply, return_shape=True)(params, inputs)
    entered: set[str] = set()

    def rule(equation: Any, arguments: list[Any]) -> list[Any] | None:
        chosen = [argument for argument in arguments if isinstance(argument, _Chosen)]
        if not chosen or is_jit(equation):
            return None  # unchanged, or interpret the operations inside
        path, name = chosen[0].path, equation.primitive.name
        if name in _PASSED_ON and len(chosen) == len(arguments) == 1:
            return [_passed_on(equation, chosen[0])]
        if len(chosen) > 1:
            raise _refusal(path, f"enters {name!r} together with {chosen[1].path!r}")
        product = _PRODUCTS[name](equation, arguments) if name in _PRODUCTS else None
        if product is None:
            raise _refusal(path, f"enters {name!r}")
        if path in entered:
            raise _refusal(path, "enters more than one product")
        entered.add(path)
        (other,) = (argument for argument in arguments if not isinstance(argument, _Chosen))
        return [compute(product, other, chosen[0].value, factors[path])]

    leaves = [
        _Chosen(path, leaf, tuple(range(jnp.ndim(leaf)))) if path in factors else leaf
        for path, leaf in named_leaves(params)
    ]
    results = interpret(jaxpr, [*leaves, *jax.tree.leaves(inputs)], rule)
    for result in results:
        if isinstance(result, _Chosen):
            raise _refusal(result.path, "is returned as it is")
    for path in factors:
        if path not in entered:
            raise _refusal(path, "enters no product")
    return jax.tree.unflatten(jax.tree.structure(shape), results)


_PASSED_ON = ("convert_element_type", "copy", "transpose")


def _passed_on(equation: Any, weight: _Chosen) -> _Chosen:
    (value,) = evaluate(equation, [weight.value])
    axes = weight.axes
    if equation.primitive.name == "transpose":
        axes = tuple(axes[axis] for axis in equation.params["permutation"])
    return _Chosen(weight.path, value, axes)


def _dot_general(equation: Any, arguments: list[Any]) -> _Product | None:
    """Describe a matrix product; None if weight and activations are multiplied block by block."""
    side = next(index for index, argument in enumerate(arguments) if isinstance(argument, _Chosen))
    other, weight = arguments[1 - side], arguments[side]
    contracted, batched = equation.params["dimension_numbers"]
    if batched[side]:
        return None
    summed, other_summed = contracted[side], contracted[1 - side]
    free = [axis for axis in range(weight.value.ndim) if axis not in summed]
    num_other = jnp.ndim(other) - len(other_summed)
    first = num_other if side == 1 else 0
    # Where each axis of the weight is found: in the other operand, or in the result.
    in_other = {weight.axes[axis]: place for axis, place in zip(summed, other_summed, strict=True)}
    in_result = {weight.axes[axis]: first + place for place, axis in enumerate(free)}
    inputs, outputs = tuple(sorted(in_other)), tuple(sorted(in_result))
    ndim, num_result = jnp.ndim(other), num_other + len(free)

    def multiply(other: Array, weight: Array) -> Array:
        (result,) = evaluate(equation, [other, weight] if side == 1 else [weight, other])
        return result

    def through(other: Array, a: Array, b: Array) -> Array:
        places = tuple(in_other[axis] for axis in inputs)
        narrow = jax.lax.dot_general(other, a, ((places, tuple(range(len(inputs)))), ((), ())))
        wide = jax.lax.dot_general(narrow, b, (((num_other,), (0,)), ((), ())))
        kept = [place for place in range(num_result) if place not in in_result.values()]
        order = [*kept, *(in_result[axis] for axis in outputs)]
        return jnp.transpose(wide, np.argsort(order).tolist())

    return _Product(
        inputs,
        outputs,
        multiply,
        lambda factor: _along(factor, [in_other[axis] for axis in inputs], ndim),
        lambda factor: _along(factor, [in_result[axis] for axis in outputs], num_result),
        through,
    )


def _convolution(equation: Any, arguments: list[Any]) -> _Product | None:
    """Describe a convolution with the weight as its kernel; None if the weight is convolved."""
    other, weight = arguments
    if isinstance(other, _Chosen) or equation.params["batch_group_count"] != 1:
        return None
    lhs, rhs, out = equation.params["dimension_numbers"]
    groups = equation.params["feature_group_count"]
    ndim = jnp.ndim(other)

    def multiply(other: Array, weight: Array) -> Array:
        (result,) = evaluate(equation, [other, weight])
        return result

    def through(other: Array, a: Array, b: Array) -> Array:
        if groups != 1:
            raise _refusal(weight.path, f"enters a convolution of {groups} groups")
        # A has the axes of the weight with the new one, of the narrow middle, in the last place.
        kernel_axes = [axis for axis in sorted(weight.axes) if axis != weight.axes[rhs[0]]]
        kernel_axes.append(weight.axes[rhs[0]])
        kernel = jnp.transpose(a, [kernel_axes.index(axis) for axis in weight.axes])
        narrow = multiply(other, kernel)
        wide = jax.lax.dot_general(narrow, b, (((out[1],), (0,)), ((), ())))
        return jnp.moveaxis(wide, -1, out[1])

    return _Product(
        (weight.axes[rhs[1]],),
        (weight.axes[rhs[0]],),
        multiply,
        lambda factor: _along(jnp.tile(factor, groups), [lhs[1]], ndim),
        lambda factor: _along(factor, [out[1]], ndim),
        through,
    )


_PRODUCTS = {"dot_general": _dot_general, "conv_general_dilated": _convolution}


def _along(factor: Array, places: Sequence[int], ndim: int) -> Array:
    """Place the axes of a factor at given positions of an array of ``ndim`` axes."""
    shape = [1] * ndim
    for place, size in zip(places, factor.shape, strict=True):
        shape[place] = size
    return jnp.transpose(factor, np.argsort(places).tolist()).reshape(shape)


def _chosen(names: list[str], pattern: Pattern, argument: str) -> tuple[str, ...]:
    patterns = [pattern] if isinstance(pattern, str) else list(pattern)
    for one in patterns:
        if not isinstance(one, str):
            raise TypeError(f"{argument} must be a glob over paths, or several, not {one!r}.")
        require_match(one, names, argument)
    return tuple(name for name in names if any(matches(name, one) for one in patterns))


def _refusal(path: str, what: str) -> ValueError:
    return ValueError(
        f"pattern: {path!r} {what}; factors are for weights that enter one matrix product or "
        "convolution directly. Leave it out of the pattern, or choose it itself as random."
    )

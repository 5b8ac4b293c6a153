"""A multilayer perceptron: x ↦ W_L a(… a(W_1 x + b_1) …) + b_L."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from partialbayes._utils.checks import require_non_negative, require_positive_int
from partialbayes._utils.recipes import serializable_builder
from partialbayes.types import Network, PRNGKey


@serializable_builder("networks.mlp")
def mlp(
    sizes: Sequence[int], activation: Callable[[Array], Array] = jax.nn.gelu, initial_bias: float = 0.0
) -> Network:
    """Build a multilayer perceptron with dense layers of the given sizes.

    Its weights have the paths ``layers/0/kernel``, ``layers/0/bias``, ``layers/1/kernel``, …

    Args:
        sizes: Widths of the input, of each hidden layer, and of the output.
        activation: Activation function, applied after every layer but the last.
        initial_bias: Standard deviation of the initial biases of hidden layers. With 0, all units of the
            first layer change slope at the origin. With the standard deviation of the inputs (1 if they
            are standardized) they do so all over the data, which matters for one or two inputs.

    Returns:
        The network.

    Example:
        >>> import partialbayes as pb
        >>> network = pb.mlp([2, 100, 20, 5, 1])
    """
    if isinstance(sizes, str) or not hasattr(sizes, "__len__") or len(sizes) < 2:
        raise ValueError(
            f"sizes must name at least an input and an output width, such as [2, 50, 1], not {sizes!r}."
        )
    for size in sizes:
        require_positive_int("every entry of sizes", size, "for example mlp([2, 50, 1]).")
    _require_activation(activation)
    require_non_negative("initial_bias, a standard deviation,", initial_bias)
    initial_kernel = jax.nn.initializers.lecun_normal()

    def dense(key: PRNGKey, fan_in: int, fan_out: int, spread: float) -> PyTree:
        if spread == 0.0:
            return {"kernel": initial_kernel(key, (fan_in, fan_out)), "bias": jnp.zeros(fan_out)}
        key_kernel, key_bias = jax.random.split(key)
        bias = spread * jax.random.normal(key_bias, (fan_out,))
        return {"kernel": initial_kernel(key_kernel, (fan_in, fan_out)), "bias": bias}

    def init(key: PRNGKey) -> PyTree:
        keys = jax.random.split(key, len(sizes) - 1)
        spreads = [initial_bias] * (len(sizes) - 2) + [0.0]
        layers = zip(keys, sizes[:-1], sizes[1:], spreads, strict=True)
        return {"layers": [dense(*layer) for layer in layers]}

    def apply(params: PyTree, inputs: Float[Array, "example features"]) -> Array:
        if inputs.ndim != 2 or inputs.shape[1] != sizes[0]:
            raise ValueError(
                f"inputs have shape {inputs.shape}, but this network takes (examples, {sizes[0]}); "
                "reshape the inputs or change the first entry of sizes."
            )
        hidden = inputs
        for index, layer in enumerate(params["layers"]):
            hidden = hidden if index == 0 else activation(hidden)
            hidden = hidden @ layer["kernel"] + jnp.expand_dims(layer["bias"], 0)
        return hidden

    return Network(init, apply, ordered=True)


def _require_activation(activation: Callable[[Array], Array]) -> None:
    """Require a function from an array to one of the same shape."""
    wanted = "activation must be a function from an array to one of the same shape, such as jax.nn.gelu"
    if not callable(activation):
        raise ValueError(f"{wanted}, not {activation!r}.")
    hidden = jax.ShapeDtypeStruct((2, 3), jnp.result_type(float))  # type: ignore[no-untyped-call]
    try:
        shape = getattr(jax.eval_shape(activation, hidden), "shape", None)
    except Exception as error:  # any error means a wrong signature
        raise ValueError(f"{wanted}; {activation!r} raises {type(error).__name__}.") from error
    if shape != hidden.shape:
        raise ValueError(f"{wanted}; {activation!r} gives shape {shape} for {hidden.shape}.")

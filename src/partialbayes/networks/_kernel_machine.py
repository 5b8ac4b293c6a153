"""A kernel machine beside a network, and a switch that chooses one of the two.

    z = x / √(1 + (x/3)²)
    f(x) = b(z) C + Σ_i exp(−½ |s ⊙ (z − z_i)|²) v_i

The basis b(z) holds 1, the columns, and a row of bumps over the range of each column.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from partialbayes._utils.checks import require_positive_int
from partialbayes._utils.recipes import serializable_builder
from partialbayes.types import Network, PRNGKey

_REACH = 3.0
_PLACES = np.linspace(-2.4, 2.4, 9)  # of the bumps
_WIDTH = 0.6  # of a bump: its standard deviation


@serializable_builder("networks.with_kernel_machine")
def with_kernel_machine(
    network: Network, num_columns: int, num_centers: int, num_outputs: int
) -> Network:
    """Add a kernel machine to a network, and a weight that switches from one to the other.

    The new weights are ``kernel/coefficients`` C, ``kernel/centers`` z_i, ``kernel/scales`` s,
    ``kernel/weights`` v_i and ``kernel/switch``: 0 for the network, 1 for the kernel machine. Training
    does not change them. The estimators compute them in closed form, so that some groups of an ensemble
    are networks and others kernel machines.

    Args:
        network: A network for rows of numbers, whose weights are a dictionary.
        num_columns: Number of columns of the inputs.
        num_centers: Number of centers.
        num_outputs: Number of outputs of the network.

    Returns:
        The network with both.

    Example:
        >>> import jax, partialbayes as pb
        >>> both = pb.networks.with_kernel_machine(pb.mlp([2, 8, 1]), 2, 16, 1)
        >>> sorted(both.init(jax.random.key(0))["kernel"])
        ['centers', 'coefficients', 'scales', 'switch', 'weights']
    """
    require_positive_int("num_columns", num_columns, "for example 4.")
    require_positive_int("num_centers", num_centers, "for example 64.")
    require_positive_int("num_outputs", num_outputs, "for example 1.")
    shapes = {
        "centers": (num_centers, num_columns),
        "coefficients": (1 + (1 + len(_PLACES)) * num_columns, num_outputs),
        "scales": (num_columns,),
        "switch": (),
        "weights": (num_centers, num_outputs),
    }

    def init(key: PRNGKey) -> PyTree:
        kind = jnp.result_type(float)
        return {
            **network.init(key),
            "kernel": {name: jnp.zeros(shape, kind) for name, shape in shapes.items()},
        }

    def apply(params: PyTree, inputs: Float[Array, "example features"]) -> Array:
        kernel = jax.lax.stop_gradient(params["kernel"])
        rest = {name: leaf for name, leaf in params.items() if name != "kernel"}

        def by_kernel(inputs: Array) -> Array:
            state, scales = draw_in(inputs), kernel["scales"][None]
            near = _similarity(state * scales, kernel["centers"] * scales)
            outputs: Array = basis(state, jnp) @ kernel["coefficients"] + near @ kernel["weights"]
            return outputs

        def by_network(inputs: Array) -> Array:
            outputs: Array = network.apply(rest, inputs)
            return outputs

        # Members of an ensemble that are computed one after another compute one of the two.
        return jax.lax.cond(kernel["switch"] > 0.5, by_kernel, by_network, inputs)

    return Network(init, apply)


def draw_in(columns: Any) -> Any:
    """Compute z = x / √(1 + (x/3)²), which draws distant values toward the rest."""
    return columns / (1.0 + (columns / _REACH) ** 2) ** 0.5


def basis(columns: Any, numpy: Any) -> Any:
    """Return 1, the columns, and the bumps of each column, computed by ``numpy``, NumPy or JAX's."""
    rows, count = columns.shape
    places = numpy.asarray(_PLACES, columns.dtype)[None, None]
    bumps = numpy.exp(-0.5 * ((columns[:, :, None] - places) / _WIDTH) ** 2)
    ones = numpy.ones((rows, 1), columns.dtype)
    return numpy.concatenate([ones, columns, bumps.reshape(rows, count * len(_PLACES))], axis=1)


def _similarity(rows: Array, centers: Array) -> Float[Array, "row center"]:
    square = jnp.square(rows).sum(axis=1)[:, None] + jnp.square(centers).sum(axis=1)[None]
    return jnp.exp(-0.5 * jnp.maximum(square - 2.0 * rows @ centers.T, 0.0))

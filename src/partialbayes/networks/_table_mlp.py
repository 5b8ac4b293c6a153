"""A perceptron for the columns of a table, with factors of rank one in every layer.

    z = x / √(1 + (x/3)²)                       columns far out are drawn in smoothly
    u = [z, A cos(2π w z + b), gate · l(z)]     periodic and piecewise-linear features of columns
    h ↦ a(s ⊙ ((r ⊙ h) W) + c),   outputs = h V + d

l has a feature for every bin between two edges of a column, which rises from −½ to ½ within the bin.

Members of a cloud that share the kernels W (and A) and have r, s, c, V, d of their own are nearly as
different as whole networks, and (r ⊙ h) W of all of them is one matrix product.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from partialbayes._utils.checks import require_positive, require_positive_int
from partialbayes._utils.recipes import serializable_builder
from partialbayes.types import Network, PRNGKey

_SEED = 27  # of the frequencies, which are no weights: every network of one shape has the same
_REACH = 3.0
# Of cos(2π t) in powers of t², for t in [-1/2, 1/2].
_COSINE = (0.99999999, -19.7392045, 64.93911746, -85.45013953, 60.16763095, -25.96759925, 6.52865816)


@serializable_builder("networks.table_mlp")
def table_mlp(
    sizes: Sequence[int],
    numeric: Sequence[int] = (),
    num_bins: int = 0,
    num_frequencies: int = 16,
    num_features: int = 3,
    bandwidth: float = 0.1,
    initial_outputs: Sequence[float] | None = None,
) -> Network:
    """Build a perceptron for standardized columns, whose rank-one factors make members of one network.

    Make ``("layers/*/*_factor", "layers/*/bias", "head/*")`` random; the members then share
    ``layers/*/kernel`` and ``embedding/*``.

    Args:
        sizes: Number of columns, width of each hidden layer, number of outputs.
        numeric: The columns that get periodic and piecewise-linear features in addition.
        num_bins: Number of piecewise-linear features of each of these columns; 0 for none. Training
            changes neither their edges, ``embedding/edges``, nor their switch, ``embedding/gate`` (0 or
            1). Edges are evenly spaced in [-3, 3] at first; set them to quantiles of z.
        num_frequencies: Number of cosines of each of these columns, with fixed frequencies.
        num_features: Number of features to which trained weights map the cosines of a column.
        bandwidth: Standard deviation of the frequencies, in periods per unit of the column.
        initial_outputs: Outputs at the start of training; zeros by default.

    Returns:
        The network.

    Example:
        >>> import partialbayes as pb
        >>> network = pb.networks.table_mlp([2, 32, 32, 1], numeric=[0])
        >>> members = ("layers/*/*_factor", "layers/*/bias", "head/*")
        >>> model = pb.partial_bnn(network, members, pb.gaussian())
        >>> [leaf.path for leaf in model.split.leaves if "kernel" in leaf.path]
        ['embedding/kernel', 'head/kernel', 'layers/0/kernel', 'layers/1/kernel']
    """
    if len(sizes) < 3:
        raise ValueError(f"sizes must name columns, hidden widths and outputs, not {sizes!r}.")
    for size in sizes:
        require_positive_int("every entry of sizes", size, "for example table_mlp([4, 64, 64, 1]).")
    require_positive_int("num_frequencies", num_frequencies, "for example 16.")
    require_positive_int("num_features", num_features, "for example 3.")
    require_positive("bandwidth", bandwidth)
    columns, *hidden, num_outputs = (int(size) for size in sizes)
    chosen = np.asarray(numeric, dtype=int)
    if chosen.size and not (chosen.min() >= 0 and chosen.max() < columns):
        raise ValueError(f"numeric names columns outside 0 to {columns - 1}: {list(chosen)}.")
    outputs_at_start = np.zeros(num_outputs) if initial_outputs is None else np.asarray(initial_outputs)
    random = np.random.default_rng(_SEED)
    shape = (len(chosen), num_frequencies)
    frequencies = (bandwidth * random.standard_normal(shape)).astype(np.float32)
    phases = random.uniform(-0.5, 0.5, shape).astype(np.float32)
    if isinstance(num_bins, bool) or num_bins < 0:
        raise ValueError(f"num_bins must be a whole number of at least 0, not {num_bins!r}.")
    num_bins = int(num_bins) if len(chosen) else 0
    widths = [columns + (num_features + num_bins) * len(chosen), *hidden]

    shapes: list[tuple[int, ...]] = [(*shape, num_features), (widths[-1], num_outputs)]
    for fan_in, fan_out in pairwise(widths):
        shapes += [(fan_in, fan_out), (fan_in,), (fan_out,)]
    ends = np.cumsum([int(np.prod(part)) for part in shapes])

    def init(key: PRNGKey) -> PyTree:
        # One draw for all weights, because each draw compiles its own program.
        drawn = jnp.split(jax.random.uniform(key, (int(ends[-1]),), minval=-1.0, maxval=1.0), ends[:-1])
        waves, head, *rest = (part.reshape(shape) for part, shape in zip(drawn, shapes, strict=True))
        layers = []
        for index, (fan_in, fan_out) in enumerate(pairwise(widths)):
            kernel, signs, bias = rest[3 * index : 3 * index + 3]
            layers.append(
                {
                    "kernel": kernel * (3.0 / fan_in) ** 0.5,
                    "input_factor": jnp.where(signs > 0, 1.0, -1.0) if index == 0 else jnp.ones(fan_in),
                    "output_factor": jnp.ones(fan_out),
                    "bias": bias * fan_in**-0.5,
                }
            )
        bias = jnp.asarray(outputs_at_start, jnp.result_type(float))
        params: dict[str, PyTree] = {
            "layers": layers,
            "head": {"kernel": head * widths[-1] ** -0.5, "bias": bias},
        }
        if len(chosen):
            bias = jnp.zeros(len(chosen) * num_features)
            params["embedding"] = {"kernel": waves * num_frequencies**-0.5, "bias": bias}
        if num_bins:
            edges = jnp.linspace(-_REACH, _REACH, num_bins + 1)
            params["embedding"]["edges"] = jnp.tile(edges[None], (len(chosen), 1))
            params["embedding"]["gate"] = jnp.ones(())
        return params

    def embed(embedding: PyTree, inputs: Array) -> Array:
        numeric = inputs[:, chosen]
        turns = numeric[:, :, None] * jnp.asarray(frequencies)[None] + jnp.asarray(phases)[None]
        waves = _cosine_of_turns(turns)
        features = jnp.einsum("rcw,cwf->rcf", waves, embedding["kernel"])
        return features.reshape(inputs.shape[0], -1) + embedding["bias"][None]

    def bins(embedding: PyTree, inputs: Array) -> Array:
        edges, gate = jax.lax.stop_gradient((embedding["edges"], embedding["gate"]))
        low, width = edges[:, :-1], jnp.diff(edges, axis=1)
        rise = (inputs[:, chosen, None] - low[None]) / jnp.where(width > 0, width, 1.0)[None]
        place = np.arange(num_bins)
        # The outermost bins extend beyond their edges.
        bounds = (np.where(place == 0, -np.inf, 0.0), np.where(place == num_bins - 1, np.inf, 1.0))
        clipped = jnp.clip(rise, *(jnp.asarray(bound, inputs.dtype)[None, None] for bound in bounds))
        features = jnp.where((width > 0)[None], clipped - 0.5, 0.0)
        return gate * features.reshape(inputs.shape[0], len(chosen) * num_bins)

    def apply(params: PyTree, inputs: Float[Array, "example features"]) -> Array:
        if inputs.ndim != 2 or inputs.shape[1] != columns:
            raise ValueError(
                f"inputs have shape {inputs.shape}, but this network takes (examples, {columns}); "
                "reshape the inputs or change the first entry of sizes."
            )
        state = inputs * jax.lax.rsqrt(1.0 + jnp.square(inputs / _REACH))
        if len(chosen):
            views = [embed(params["embedding"], state), state]
            if num_bins:
                views.append(bins(params["embedding"], state))
            state = jnp.concatenate(views, axis=1)
        for layer in params["layers"]:
            state = (state * layer["input_factor"][None]) @ layer["kernel"]
            state = jax.nn.gelu(state * layer["output_factor"][None] + layer["bias"][None])
        return state @ params["head"]["kernel"] + params["head"]["bias"][None]

    return Network(init, apply)


def _cosine_of_turns(turns: Array) -> Array:
    """Compute cos(2π t) to 1e-6 by a polynomial, at a twentieth of the time of the cosine on a CPU."""
    square = jnp.square(turns - jnp.round(turns))
    value = jnp.full_like(square, _COSINE[-1])
    for coefficient in _COSINE[-2::-1]:
        value = value * square + coefficient
    return value

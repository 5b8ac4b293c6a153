"""A prior for ψ, the deterministic weights of the network.

    ψ_i ~ N(0, s² / fan-in) for the weights of kernels, N(0, s²) for biases and other vectors.

Its gradient −ψ_i / variance_i is added to that of the data before the optimizer, so any optimizer
finds a maximum of the posterior of ψ. Noise and scales of priors, which are also in ψ, do not change.
"""

from __future__ import annotations

from typing import Any, TypeVar

import jax
import optax
from jaxtyping import Array, Float

from partialbayes._utils.checks import require_instance, require_positive
from partialbayes.types import Model, Psi

Tree = TypeVar("Tree")


def weight_prior(
    model: Model, scale: float | Float[Array, ""] = 1.0
) -> optax.GradientTransformationExtraArgs:
    """Add the gradient of a normal prior of ψ, for ``optax.chain`` in front of an optimizer.

    Unlike weight decay it has a fixed weight against all N rows of the data, for any learning rate.

    Args:
        model: The model to be trained.
        scale: The standard deviation s of a bias, and of a kernel's weight times √fan-in. With 1 a
            layer keeps the size of its inputs.

    Returns:
        The Optax transformation.

    Example:
        >>> import optax, partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 20, 1]), "layers/1/*", pb.gaussian())
        >>> optimizer = optax.chain(pb.algorithms.weight_prior(model, 1.0), optax.adam(0.01))
        >>> algorithm = pb.ohsmc(model, num_particles=100, optimizer=optimizer)
    """
    require_instance("model", model, Model, "for example partial_bnn(network, stochastic, likelihood).")
    require_positive("scale", scale)
    fan_ins = {leaf.path: float(leaf.fan_in) for leaf in model.split.leaves}

    def with_prior(gradient: Any, psi: Any) -> Any:
        if not isinstance(psi, Psi):
            return gradient
        network = {
            path: gradient.network[path] + value * (fan_ins[path] / scale**2)
            for path, value in psi.network.items()
        }
        return gradient._replace(network=network)

    def update(updates: Tree, state: Any, params: Any = None, **_: Any) -> tuple[Tree, Any]:
        if params is None:
            raise ValueError("weight_prior needs the parameters: call update(gradient, state, params).")
        # A method may train φ together with ψ; the prior applies only to ψ.
        changed: Tree = jax.tree.map(
            with_prior, updates, params, is_leaf=lambda node: isinstance(node, Psi)
        )
        return changed, state

    return optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)

"""Members that share ψ: each has its own φ and its own rows.

    ℓ = (1/J) Σ_j mean over batch_j of −log p(y | x, φ_j; ψ)

is minimized, the mean of the members' losses and not the loss of their mean: ψ follows the average
gradient, each φ_j its own. The batch is cut into J parts, so a step costs as much as one network.
The posterior has averaged weights, θ̄ ← a θ̄ + (1 − a) θ, for both ψ and φ.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from partialbayes._utils.checks import require_positive_int
from partialbayes.algorithms._common import default_optimizer
from partialbayes.types import Algorithm, Batch, Info, Model, Particles, Posterior, PRNGKey, Psi, Scalar
from partialbayes.weights import uniform_log_weights


class Members(NamedTuple):
    """A φ for each member, and ψ, in the order of `Params`, which the optimizer sees."""

    values: Float[Array, "particle dim"]
    psi: Psi


class SharedEnsembleState(NamedTuple):
    """The members, their running average, its number of steps, and the optimizer."""

    members: Members
    average: Members
    steps: Scalar
    optimizer: optax.OptState


def shared_ensemble(
    model: Model,
    *,
    num_particles: int = 4,
    optimizer: optax.GradientTransformation | None = None,
    averaging: float = 0.99,
) -> Algorithm:
    """Train J points of φ with one ψ, each on its own part of every batch.

    Every member starts from its own initial weights, so the network should draw them at random.
    With `table_mlp` and its factors and head as φ, this is an ensemble for little more than the cost
    of one network. The prior of φ is not used; let the optimizer decay the weights.

    Args:
        model: The model to train.
        num_particles: Number J of members; a batch must have at least as many rows.
        optimizer: Optax transformation for both ψ and φ; Adam at 0.01 by default.
        averaging: The factor a of the running average of the weights; 0 for no average.

    Returns:
        The algorithm, to pass to `fit`.

    Raises:
        ValueError: In `fit`: a batch has fewer rows than there are members.

    Example:
        >>> import partialbayes as pb
        >>> network = pb.networks.table_mlp([2, 32, 32, 1])
        >>> random = ("layers/*/*_factor", "layers/*/bias", "head/*")
        >>> model = pb.partial_bnn(network, random, pb.gaussian(pb.learned(1.0)))
        >>> algorithm = pb.algorithms.shared_ensemble(model, num_particles=8)
    """
    require_positive_int("num_particles", num_particles, "for example num_particles=4.")
    if not 0.0 <= averaging < 1.0:
        raise ValueError(f"averaging must be at least 0 and below 1, not {averaging!r}.")
    optimizer = default_optimizer(optimizer)

    def init(key: PRNGKey) -> SharedEnsembleState:
        params = jax.vmap(model.init)(jax.random.split(key, num_particles))
        psi = jax.tree.map(lambda leaf: leaf[0], params.psi)
        members = Members(params.phi, psi)
        steps = jnp.zeros((), jnp.result_type(float))
        return SharedEnsembleState(members, members, steps, optimizer.init(members))

    def step(key: PRNGKey, state: SharedEnsembleState, batch: Batch) -> tuple[SharedEnsembleState, Info]:
        parts = _divide(batch, num_particles)

        def loss(members: Members) -> Scalar:
            def one(phi: Array, part: Batch) -> Scalar:
                total = model.log_likelihood(phi, members.psi, part).sum()
                return -total / jnp.maximum(part.mask.sum(), 1)

            return jax.vmap(one)(members.values, parts).mean()

        value, gradient = jax.value_and_grad(loss)(state.members)
        # The mean over members is divided by J, but each φ enters only one term.
        gradient = gradient._replace(values=num_particles * gradient.values)
        updates, optimizer_state = optimizer.update(gradient, state.optimizer, state.members)
        members: Members = optax.apply_updates(state.members, updates)
        # Early averages are over few steps; otherwise the start would influence them for long.
        kept = jnp.minimum(averaging, (1.0 + state.steps) / (10.0 + state.steps))
        average = jax.tree.map(
            lambda old, new: old + (1.0 - kept).astype(old.dtype) * (new - old), state.average, members
        )
        after = SharedEnsembleState(members, average, state.steps + 1.0, optimizer_state)
        return after, {"loss": value}

    def posterior(state: SharedEnsembleState) -> Posterior:
        values, psi = state.average
        return Posterior(psi, Particles(values, uniform_log_weights(num_particles)))

    def restart(state: SharedEnsembleState, posterior: Posterior) -> SharedEnsembleState:
        members = Members(posterior.particles.values, posterior.psi)
        return state._replace(members=members, average=members)

    return Algorithm(model, init, step, posterior, restart=restart)


def _divide(batch: Batch, parts: int) -> Batch:
    """Divide the rows of a batch into parts, on a leading axis; remaining rows are left out."""
    rows = batch.mask.shape[0]
    each = rows // parts
    if each == 0:
        raise ValueError(
            f"a batch has {rows} rows, fewer than the {parts} members; pass a larger batch_size."
        )

    def cut(leaf: Array) -> Array:
        return leaf[: each * parts].reshape(parts, each, *leaf.shape[1:])

    inputs, targets, mask = jax.tree.map(cut, (batch.inputs, batch.targets, batch.mask))
    return Batch(inputs, targets, mask, jnp.broadcast_to(batch.scale, (parts,)))

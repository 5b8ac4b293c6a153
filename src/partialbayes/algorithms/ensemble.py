"""An ensemble: K independent runs of any training method, in one vectorised program.

    p(y | x) = (1/K) Σ_k Σ_j w_kj p(y | x, φ_kj; ψ_k)

Every member has its own start and its own randomness, and sees the same batches.
"""

from __future__ import annotations

import math
from typing import Any

import jax

from partialbayes.checks import require_count
from partialbayes.types import Algorithm, Batch, Info, Particles, Posterior, PRNGKey


def ensemble(algorithm: Algorithm, num_members: int) -> Algorithm:
    """Train K copies of a method at once and predict by their mixture.

    Members differ by their keys: initial weights, particles, noise. A method without noise of its
    own (`map_estimate`) therefore needs a network whose initial weights depend on the key; from one
    fixed, pretrained network all its members would be the same. A deep ensemble is
    ``ensemble(map_estimate(model), 5)``.

    Args:
        algorithm: Any training method.
        num_members: K, how many runs.

    Returns:
        A method whose posterior has a leading member axis on every leaf. What it reports is the
        mean over members.

    Raises:
        ValueError: ``num_members`` is not a whole number of at least 1.

    Example:
        >>> import partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 20, 1]), "layers/0/*", pb.gaussian())
        >>> algorithm = pb.ensemble(pb.map_estimate(model), 5)
    """
    require_count("num_members", num_members, "for example num_members=5.")

    def init(key: PRNGKey) -> Any:
        return jax.vmap(algorithm.init)(jax.random.split(key, num_members))

    def step(key: PRNGKey, state: Any, batch: Batch) -> tuple[Any, Info]:
        keys = jax.random.split(key, num_members)
        state, info = jax.vmap(algorithm.step, in_axes=(0, 0, None))(keys, state, batch)
        return state, jax.tree.map(lambda values: values.mean(axis=0), info)

    def posterior(state: Any) -> Posterior:
        return _mixture(jax.vmap(algorithm.posterior)(state), num_members)

    # A second stage, if there is one, goes through the members of a posterior by itself.
    return algorithm._replace(init=init, step=step, posterior=posterior)


def _mixture(members: Posterior, num_members: int) -> Posterior:
    """Posteriors along a leading axis as one, each with a share 1/K of the weight."""
    if members.particles.log_weights.ndim == 3:
        # The members are ensembles themselves: one member axis instead of two.
        members = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), members)
    psi, (values, log_weights) = members
    return Posterior(psi, Particles(values, log_weights - math.log(num_members)))

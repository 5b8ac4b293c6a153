"""Methods made of methods: ensembles, and a second stage after a first.

An ensemble is K independent runs of any method, in one vectorized program:

    p(y | x) = (1/K) Σ_k Σ_j w_kj p(y | x, φ_kj; ψ_k)

Every member has its own start and its own randomness, and sees the same batches. Two stages are any
trainer for ψ, then any sampler of φ given all the data at the ψ̂ it found:

    ψ̂ ← first stage,    φ_1..J ~ p(φ | y_1:N; ψ̂) by the second

MAP-HMC is ``two_stage(map_estimate(model), hmc())``.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from partialbayes._utils.checks import require_positive_int
from partialbayes.types import (
    Algorithm,
    Batch,
    Info,
    Model,
    Particles,
    Posterior,
    PRNGKey,
    Report,
    Sampler,
)


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
    require_positive_int("num_members", num_members, "for example num_members=5.")

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


def two_stage(first: Algorithm, sampler: Sampler) -> Algorithm:
    """Train by ``first``, then sample φ again at the ψ it found.

    `fit` calls the sampler once, after training, with the best posterior and all the training
    data; what it reports is the last of ``Fit.reports``. The history is that of the first stage.

    Args:
        first: The trainer. If it has a second stage already, the new one comes after it.
        sampler: Such as ``hmc()``, ``nuts()`` or ``laplace()``.

    Example:
        >>> import partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 20, 1]), "layers/0/*", pb.gaussian())
        >>> map_hmc = pb.two_stage(pb.map_estimate(model), pb.samplers.hmc())
    """

    def finish(key: PRNGKey, posterior: Posterior, batch: Batch) -> tuple[Posterior, tuple[Report, ...]]:
        key_before, key_sampler = jax.random.split(key)
        before: tuple[Report, ...] = ()
        if first.finish is not None:
            posterior, before = first.finish(key_before, posterior, batch)
        posterior, report = over_members(sampler, key_sampler, first.model, posterior, batch)
        return posterior, (*before, report)

    return first._replace(finish=finish)


def over_members(
    sampler: Sampler, key: PRNGKey, model: Model, posterior: Posterior, batch: Batch
) -> tuple[Posterior, Report]:
    """Apply a sampler to each member of an ensemble, or to a posterior that is none.

    The members keep the shares of the mixture they had. They go one after another: each has
    chains enough of its own to fill the machine.
    """
    if not posterior.is_ensemble:
        return sampler(key, model, posterior, batch)
    shares = jax.nn.logsumexp(posterior.particles.log_weights, axis=1)

    def one(member: tuple[PRNGKey, Posterior, jax.Array]) -> tuple[Posterior, Report]:
        key_member, (psi, particles), share = member
        alone = Particles(particles.values, particles.log_weights - share)
        sampled, report = sampler(key_member, model, Posterior(psi, alone), batch)
        values, log_weights = sampled.particles
        return Posterior(sampled.psi, Particles(values, log_weights + share)), report

    keys = jax.random.split(key, jnp.shape(shares)[0])
    return jax.lax.map(one, (keys, posterior, shares))

"""Combine algorithms: ensembles, and second stages.

An ensemble is K independent runs of an algorithm in one vectorized program:

    p(y | x) = (1/K) Σ_k Σ_j w_kj p(y | x, φ_kj; ψ_k)

Members have their own initial weights and random numbers, and the same batches. Two stages are a trainer
for ψ, then a sampler of φ given all the data at the trained ψ̂:

    ψ̂ ← first stage,    φ_1..J ~ p(φ | y_1:N; ψ̂) by the second

MAP-HMC is ``two_stage(map_estimate(model), hmc())``.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from partialbayes._utils.checks import require_positive_int
from partialbayes.model._partial_bnn import of_density
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
    """Train K copies of an algorithm at once and predict by their mixture.

    Members differ by their keys: initial weights, particles and noise. An algorithm without noise, such
    as `map_estimate`, needs a network that draws new initial weights for each key; from one pretrained
    network all members would be equal. A deep ensemble is ``ensemble(map_estimate(model), 5)``.

    Args:
        algorithm: Any training algorithm.
        num_members: Number K of members.

    Returns:
        An algorithm whose posterior has a leading member axis on every leaf. Reported values are means
        over members.

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
        return mixture(jax.vmap(algorithm.posterior)(state), num_members)

    restart_member = algorithm.restart

    def restart(state: Any, posterior: Posterior) -> Any:
        assert restart_member is not None
        if not posterior.is_ensemble:  # of one run: all members continue from it
            return jax.vmap(restart_member, in_axes=(0, None))(state, posterior)
        own = jax.eval_shape(jax.vmap(algorithm.posterior), state).particles.log_weights
        return jax.vmap(restart_member)(state, _split_members(posterior, num_members, own.ndim == 3))

    # A second stage handles the members of a posterior (`over_members`).
    return algorithm._replace(
        init=init, step=step, posterior=posterior, restart=None if restart_member is None else restart
    )


def _split_members(posterior: Posterior, num_members: int, nested: bool) -> Posterior:
    """Split the posterior of an ensemble into those of its members, the inverse of `mixture`."""
    count = posterior.num_members
    if count % num_members or (count != num_members and not nested):
        raise ValueError(
            f"posterior has {count} members, and the ensemble {num_members}; continue with as many."
        )
    if count != num_members:
        posterior = jax.tree.map(lambda leaf: leaf.reshape(num_members, -1, *leaf.shape[1:]), posterior)
    psi, (values, log_weights) = posterior
    total = jax.nn.logsumexp(log_weights, axis=tuple(range(1, log_weights.ndim)), keepdims=True)
    return Posterior(psi, Particles(values, log_weights - total))


def mixture(members: Posterior, num_members: int) -> Posterior:
    """Combine posteriors along a leading axis into one, each with weight 1/K."""
    psi, (values, log_weights) = _one_axis(members)
    return Posterior(psi, Particles(values, log_weights - math.log(num_members)))


def _one_axis(members: Posterior) -> Posterior:
    """Merge two member axes into one, if the members are ensembles."""
    if members.particles.log_weights.ndim < 3:
        return members
    flat: Posterior = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), members)
    return flat


def two_stage(first: Algorithm | Model, sampler: Sampler) -> Algorithm:
    """Train by one algorithm, then sample φ again at the trained ψ.

    After training, `fit` calls the sampler once with the best posterior and all training data. Its
    report is the last of ``Fit.reports``. The history is that of the first stage.

    Args:
        first: The trainer; if it has a second stage, the new one comes after it. Or the model of a
            pretrained network, which is used without training; one epoch is enough.
        sampler: A sampler such as ``hmc()``, ``nuts()`` or ``laplace()``.

    Returns:
        The algorithm with a second stage, to pass to `fit`.

    Raises:
        ValueError: ``first`` is a model whose network is not pretrained.

    Example:
        >>> import partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 20, 1]), "layers/0/*", pb.gaussian())
        >>> map_hmc = pb.two_stage(pb.map_estimate(model), pb.samplers.hmc())
    """
    if isinstance(first, Model):
        first = _keep_constant(first)
    trainer = first

    def finish(key: PRNGKey, posterior: Posterior, batch: Batch) -> tuple[Posterior, tuple[Report, ...]]:
        key_before, key_sampler = jax.random.split(key)
        before: tuple[Report, ...] = ()
        if trainer.finish is not None:
            posterior, before = trainer.finish(key_before, posterior, batch)
        posterior, report = over_members(sampler, key_sampler, trainer.model, posterior, batch)
        return posterior, (*before, report)

    return trainer._replace(finish=finish)


def at_weights(model: Model) -> Posterior:
    """Return the posterior of one particle at the weights of a pretrained network."""
    if not model.pretrained:
        raise ValueError(
            "model has a network that is not pretrained; train it first, or mark its weights as "
            "trained, for example from_params(weights, apply, pretrained=True)."
        )
    phi, psi = model.init(jax.random.key(0))
    return Posterior(psi, Particles(phi[None, :], jnp.zeros(1, phi.dtype)))


def _keep_constant(model: Model) -> Algorithm:
    """Build a trainer that keeps a pretrained network constant and reports its loss."""
    at_weights(model)

    def step(key: PRNGKey, state: Posterior, batch: Batch) -> tuple[Posterior, Info]:
        log_likelihood = model.log_likelihood(state.particles.values[0], state.psi, batch).sum()
        return state, {"loss": -log_likelihood / batch.mask.sum()}

    return Algorithm(model, lambda key: at_weights(model), step, lambda state: state)


def over_members(
    sampler: Sampler, key: PRNGKey, model: Model, posterior: Posterior, batch: Batch
) -> tuple[Posterior, Report]:
    """Apply a sampler to a posterior, or to each member of an ensemble.

    Members keep their weights in the mixture. They run one after another, because the chains of one fill
    the machine.
    """
    model = of_density(model)
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
    sampled, report = jax.lax.map(one, (keys, posterior, shares))
    return _one_axis(sampled), report

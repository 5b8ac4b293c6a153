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
        return mixture(jax.vmap(algorithm.posterior)(state), num_members)

    restart_member = algorithm.restart

    def restart(state: Any, posterior: Posterior) -> Any:
        assert restart_member is not None
        if not posterior.is_ensemble:  # of one run: all members go on from it
            return jax.vmap(restart_member, in_axes=(0, None))(state, posterior)
        own = jax.eval_shape(jax.vmap(algorithm.posterior), state).particles.log_weights
        return jax.vmap(restart_member)(state, _by_member(posterior, num_members, own.ndim == 3))

    # A second stage, if there is one, goes through the members of a posterior by itself.
    return algorithm._replace(
        init=init,
        step=step,
        posterior=posterior,
        restart=None if restart_member is None else restart,
    )


def _by_member(posterior: Posterior, num_members: int, nested: bool) -> Posterior:
    """The posterior of each member along a leading axis: `_mixture`, taken back.

    Args:
        posterior: Of the ensemble, with one member axis.
        num_members: K.
        nested: Whether the members are ensembles themselves.
    """
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
    """Posteriors along a leading axis as one, each with a share 1/K of the weight."""
    psi, (values, log_weights) = _one_axis(members)
    return Posterior(psi, Particles(values, log_weights - math.log(num_members)))


def _one_axis(members: Posterior) -> Posterior:
    """One member axis instead of two, where the members are ensembles themselves."""
    if members.particles.log_weights.ndim < 3:
        return members
    flat: Posterior = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), members)
    return flat


def two_stage(first: Algorithm | Model, sampler: Sampler) -> Algorithm:
    """Train by ``first``, then sample φ again at the ψ it found.

    `fit` calls the sampler once, after training, with the best posterior and all the training
    data; what it reports is the last of ``Fit.reports``. The history is that of the first stage.

    Args:
        first: The trainer. If it has a second stage already, the new one comes after it. Or the model
            of a pretrained network, which is taken as it is: nothing is trained, one epoch will do.
        sampler: Such as ``hmc()``, ``nuts()`` or ``laplace()``.

    Raises:
        ValueError: ``first`` is a model whose network is not pretrained.

    Example:
        >>> import partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 20, 1]), "layers/0/*", pb.gaussian())
        >>> map_hmc = pb.two_stage(pb.map_estimate(model), pb.samplers.hmc())
    """
    if isinstance(first, Model):
        first = _as_it_is(first)
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
    """The network as it is: a posterior of one particle, at its weights."""
    if not model.pretrained:
        raise ValueError(
            "the network of this model is not pretrained, so its weights are no posterior; say that it "
            "is, for example from_params(weights, apply, pretrained=True), or train it first."
        )
    phi, psi = model.init(jax.random.key(0))
    return Posterior(psi, Particles(phi[None, :], jnp.zeros(1, phi.dtype)))


def _as_it_is(model: Model) -> Algorithm:
    """A trainer that leaves a pretrained network alone, and reports its loss."""
    at_weights(model)

    def step(key: PRNGKey, state: Posterior, batch: Batch) -> tuple[Posterior, Info]:
        log_likelihood = model.log_likelihood(state.particles.values[0], state.psi, batch).sum()
        return state, {"loss": -log_likelihood / batch.mask.sum()}

    return Algorithm(model, lambda key: at_weights(model), step, lambda state: state)


def over_members(
    sampler: Sampler, key: PRNGKey, model: Model, posterior: Posterior, batch: Batch
) -> tuple[Posterior, Report]:
    """Apply a sampler to each member of an ensemble, or to a posterior that is none.

    The members keep the shares of the mixture they had. They go one after another: each has
    chains enough of its own to fill the machine.
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

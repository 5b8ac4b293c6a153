"""Two stages: any trainer for ψ, then any sampler of φ given all the data at the ψ̂ it found.

    ψ̂ ← first stage,    φ_1..J ~ p(φ | y_1:N; ψ̂) by the second

MAP-HMC is ``then(map_estimate(model), hmc())``.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from partialbayes.batches import checked
from partialbayes.types import (
    Algorithm,
    Batch,
    Model,
    Particles,
    Posterior,
    PRNGKey,
    Report,
    Sampler,
)


def then(first: Algorithm, sampler: Sampler) -> Algorithm:
    """Train by ``first``, then sample φ again at the ψ it found.

    `fit` calls the sampler once, after training, with the best posterior and all the training
    data; what it reports is in ``Fit.report``. The history is that of the first stage.

    Args:
        first: The trainer. If it has a second stage already, the new one comes after it.
        sampler: Such as ``hmc()``, ``nuts()`` or ``laplace()``.

    Example:
        >>> import partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 20, 1]), "layers/0/*", pb.gaussian())
        >>> map_hmc = pb.then(pb.map_estimate(model), pb.samplers.hmc())
    """

    def finish(key: PRNGKey, posterior: Posterior, batch: Batch) -> tuple[Posterior, Report]:
        key_before, key_sampler = jax.random.split(key)
        before: Report = {}
        if first.finish is not None:
            posterior, before = first.finish(key_before, posterior, batch)
        posterior, report = over_members(sampler, key_sampler, first.model, posterior, batch)
        return posterior, before | report

    return first._replace(finish=finish)


def second_stage(
    sampler: Sampler, model: Model, posterior: Posterior, data: Any, *, key: PRNGKey | int = 0
) -> tuple[Posterior, Report]:
    """Run a sampler on a posterior at hand, so as not to train again for each sampler.

    Args:
        sampler: Such as ``hmc()``, ``nuts()`` or ``laplace()``.
        model: The model that was trained.
        posterior: From `fit`; its ψ is kept.
        data: The training data, a pair ``(inputs, targets)``.
        key: A ``jax.random.key`` or a whole number to make one from.

    Returns:
        The new posterior and the sampler's report.

    Raises:
        ValueError: The data do not fit the network or the likelihood.

    Example:
        >>> import jax.numpy as jnp, partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 5, 1]), "layers/0/*", pb.gaussian())
        >>> x = jnp.linspace(-1.0, 1.0, 8)[:, None]
        >>> trained = pb.fit(pb.map_estimate(model), (x, x), epochs=2, progress=False)
        >>> sampler = pb.samplers.laplace(num_particles=10)
        >>> posterior, report = pb.algorithms.second_stage(sampler, model, trained.posterior, (x, x))
        >>> posterior.particles.values.shape
        (10, 10)
    """
    key = jax.random.key(key) if isinstance(key, int) else key
    return _second_stage(sampler, model, key, posterior, checked(model, data, "data"))


@partial(jax.jit, static_argnames=("sampler", "model"))
def _second_stage(
    sampler: Sampler, model: Model, key: PRNGKey, posterior: Posterior, batch: Batch
) -> tuple[Posterior, Report]:
    return over_members(sampler, key, model, posterior, batch)


def over_members(
    sampler: Sampler, key: PRNGKey, model: Model, posterior: Posterior, batch: Batch
) -> tuple[Posterior, Report]:
    """Apply a sampler to each member of an ensemble, or to a posterior that is none.

    The members keep the shares of the mixture they had. They go one after another: each has
    chains enough of its own to fill the machine.
    """
    if posterior.particles.log_weights.ndim == 1:
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

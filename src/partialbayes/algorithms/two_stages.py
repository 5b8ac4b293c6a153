"""Two stages: any trainer for ψ, then any sampler of φ given all the data at the ψ̂ it found.

    ψ̂ ← first stage,    φ_1..J ~ p(φ | y_1:N; ψ̂) by the second

MAP-HMC is ``then(map_estimate(model), hmc())``. A trainer can be a second stage too: SWAG from the
best point of MAP is ``then(map_estimate(model), continued(swag(model, warm_up=0), num_steps=200))``.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Int

from partialbayes.batches import checked, num_batches, permutation, take
from partialbayes.checks import require_count
from partialbayes.parallel.hosts import brought_home
from partialbayes.parallel.meshes import checked_mesh
from partialbayes.sharding import arranged, on, placed, rows_placed
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


def continued(algorithm: Algorithm, *, num_steps: int, batch_size: int | None = None) -> Sampler:
    """Another trainer as second stage: from the posterior found, so many steps on minibatches.

    Its last posterior is the result; ψ goes on being trained.

    Args:
        algorithm: A trainer that can start from a posterior: `swag`, `map_estimate`, `ohsmc`.
        num_steps: How many steps.
        batch_size: M, rows per step; all of them by default.

    Raises:
        ValueError: The trainer cannot start from a posterior.

    Example:
        >>> import partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 20, 1]), "layers/0/*", pb.gaussian())
        >>> averaging = pb.algorithms.swag(model, warm_up=0)
        >>> stage = pb.algorithms.continued(averaging, num_steps=200, batch_size=20)
        >>> swag = pb.then(pb.map_estimate(model), stage)
    """
    require_count("num_steps", num_steps, "for example num_steps=200.")
    restart = algorithm.restart
    if restart is None:
        raise ValueError(
            "algorithm cannot start from a posterior; use swag, map_estimate or ohsmc as second stage."
        )

    def sample(
        key: PRNGKey, model: Model, posterior: Posterior, batch: Batch
    ) -> tuple[Posterior, Report]:
        rows = batch.mask.shape[0]
        batches = num_batches(rows, batch_size)
        key_init, key_order, key_steps = jax.random.split(key, 3)
        state = restart(algorithm.init(key_init), posterior)

        def body(step: Int[Array, ""], carry: tuple[Any, Array]) -> tuple[Any, Array]:
            state, order = carry
            epoch, index = step // batches, step % batches
            key_epoch = jax.random.fold_in(key_order, epoch)
            order = jax.lax.cond(index == 0, lambda: permutation(key_epoch, batch.mask), lambda: order)
            part = take(batch, order, index, batches)
            state, _ = algorithm.step(jax.random.fold_in(key_steps, step), state, part)
            return state, order

        start = (state, jnp.arange(rows, dtype=jnp.int32))
        state, _ = jax.lax.fori_loop(jnp.int32(0), jnp.int32(num_steps), body, start)
        return algorithm.posterior(state), {}

    return sample


def second_stage(
    sampler: Sampler,
    model: Model,
    posterior: Posterior,
    data: Any,
    *,
    key: PRNGKey | int = 0,
    mesh: Mesh | None = None,
) -> tuple[Posterior, Report]:
    """Run a sampler on a posterior at hand, so as not to train again for each sampler.

    Args:
        sampler: Such as ``hmc()``, ``nuts()`` or ``laplace()``.
        model: The model that was trained.
        posterior: From `fit`; its ψ is kept.
        data: The training data, a pair ``(inputs, targets)``.
        key: A ``jax.random.key`` or a whole number to make one from.
        mesh: Devices to divide the work over, as in `fit`; the rows over ``data`` where it divides them.

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
    mesh = checked_mesh(mesh)
    batch = rows_placed(mesh, checked(model, data, "data"))
    with on(mesh):
        found = _second_stage(sampler, model, key, placed(mesh, posterior), batch)
    posterior, report = brought_home(found)
    return posterior, report


@partial(jax.jit, static_argnames=("sampler", "model"))
def _second_stage(
    sampler: Sampler, model: Model, key: PRNGKey, posterior: Posterior, batch: Batch
) -> tuple[Posterior, Report]:
    return arranged(over_members(sampler, key, model, posterior, batch))


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

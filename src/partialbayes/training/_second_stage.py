"""Second stages: run a sampler on a posterior, train on from one, tell whether a tempering stalled.

A trainer can be a second stage too: SWAG from the best point of MAP is
``two_stage(map_estimate(model), continue_training(swag(model, num_warmup=0), num_steps=200))``.
"""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int

from partialbayes._engine.epochs import num_batches, permutation, take
from partialbayes._utils.checks import as_key, require_positive_int
from partialbayes.algorithms._combinators import over_members
from partialbayes.errors import ShortfallWarning, StalledError
from partialbayes.model._batch import as_batch
from partialbayes.parallel._hosts import gather_to_host
from partialbayes.parallel._mesh import as_mesh
from partialbayes.parallel._sharding import constrain, put_on_mesh, shard_rows, use_mesh
from partialbayes.types import (
    Algorithm,
    Batch,
    Model,
    Posterior,
    PRNGKey,
    Report,
    Sampler,
    Seed,
    TemperingReport,
)


def continue_training(algorithm: Algorithm, *, num_steps: int, batch_size: int | None = None) -> Sampler:
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
        >>> averaging = pb.algorithms.swag(model, num_warmup=0)
        >>> stage = pb.training.continue_training(averaging, num_steps=200, batch_size=20)
        >>> swag = pb.two_stage(pb.map_estimate(model), stage)
    """
    require_positive_int("num_steps", num_steps, "for example num_steps=200.")
    restart = algorithm.restart
    if restart is None:
        raise ValueError(
            "algorithm cannot start from a posterior (its `restart` is None); use one that can, such as "
            "swag."
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
        return algorithm.posterior(state), None

    return sample


def second_stage(
    sampler: Sampler,
    model: Model,
    posterior: Posterior,
    data: Any,
    *,
    key: Seed = 0,
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
        >>> posterior, report = pb.training.second_stage(sampler, model, trained.posterior, (x, x))
        >>> posterior.particles.values.shape
        (10, 10)
    """
    key = as_key(key)
    mesh = as_mesh(mesh)
    batch = shard_rows(mesh, as_batch(model, data, "data"))
    with use_mesh(mesh):
        found = _second_stage(sampler, model, key, put_on_mesh(mesh, posterior), batch)
    posterior, report = gather_to_host(found)
    return posterior, report


@partial(jax.jit, static_argnames=("sampler", "model"))
def _second_stage(
    sampler: Sampler, model: Model, key: PRNGKey, posterior: Posterior, batch: Batch
) -> tuple[Posterior, Report]:
    return constrain(over_members(sampler, key, model, posterior, batch))


_LARGEST_SHORTFALL = 1.0  # twice what a normal posterior has between its mode and a typical draw


def raise_if_stalled(report: Report, fit: Any = None) -> None:
    """Raise where a tempered sampler (of any member) stopped short, warn where its moves lagged."""
    if not isinstance(report, TemperingReport):
        return
    steps = report.temperatures.shape[-1]
    paths, ess, acceptance = (
        np.asarray(values).reshape(-1, steps)
        for values in (report.temperatures, report.ess, report.acceptance)
    )
    for run in np.flatnonzero(~np.asarray(report.arrived).reshape(-1)):
        taken = int(np.isfinite(paths[run]).sum())
        remedy = _remedy(ess[run, :taken], acceptance[run, :taken], steps)
        raise StalledError(paths[run, :taken], remedy, fit)
    shortfall = float(np.max(np.asarray(report.shortfall)))
    if shortfall > _LARGEST_SHORTFALL:
        message = (
            f"tempering has not reached the posterior, and its evidence is too low: a particle of the "
            f"stage before has a log-density higher by {shortfall:.3g} for each random weight than the "
            "new ones on average, where a normal posterior has at most about 0.5. Use more particles, "
            "several times as many as there are random weights, or longer moves, such as "
            "kernel=adapted_hamiltonian(32, 12)."
        )
        warnings.warn(message, ShortfallWarning, stacklevel=3)  # the line that called fit or refine


def _remedy(
    ess: Float[np.ndarray, " step"], acceptance: Float[np.ndarray, " step"], max_steps: int
) -> str:
    if not np.isfinite(ess).all():
        return (
            "the log-likelihood became NaN or infinite there. Check the data and ψ, or use a prior "
            "whose draws give finite log-likelihoods."
        )
    if acceptance[:-1].size and np.nanmedian(acceptance[:-1]) < 0.01:
        return (
            "hardly any proposal is accepted. Use a kernel with smaller steps or one that adapts "
            "itself (adapted_metropolis, adapted_hamiltonian)."
        )
    return (
        f"raise max_steps above {max_steps}, lower target_ess, or use more particles. If the steps "
        "have become tiny, the likelihood is far from the prior: give it more noise or the prior "
        "more scale."
    )

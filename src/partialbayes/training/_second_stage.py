"""Second stages: run a sampler on a posterior, continue training from one, and judge the reports.

A trainer can be a second stage too: SWAG from the best point of MAP is
``two_stage(map_estimate(model), continue_training(swag(model, num_warmup=0), num_steps=200))``.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int

from partialbayes._engine.compiled import step_on
from partialbayes._engine.epochs import num_batches
from partialbayes._engine.interrupts import uninterrupted
from partialbayes._engine.sources import Shuffled
from partialbayes._engine.streams import Stream, salt, stream_key
from partialbayes._utils.checks import as_key, require_positive_int
from partialbayes._utils.warn import warn
from partialbayes.algorithms._combinators import over_members
from partialbayes.errors import MixingWarning, ShortfallWarning, StalledError
from partialbayes.model._batch import as_batch
from partialbayes.parallel._hosts import gather_to_host
from partialbayes.parallel._mesh import as_mesh
from partialbayes.parallel._sharding import constrain, put_on_mesh, shard_rows, use_mesh
from partialbayes.prediction._predict import as_posterior
from partialbayes.results import ChainReport, Fit, ImportanceReport, LaplaceReport, TemperingReport
from partialbayes.types import Algorithm, Batch, Model, Posterior, PRNGKey, Report, Sampler, Seed


def continue_training(algorithm: Algorithm, *, num_steps: int, batch_size: int | None = None) -> Sampler:
    """Use a trainer as second stage: ``num_steps`` steps on minibatches from the posterior found.

    Its last posterior is the result; ψ is trained further.

    Args:
        algorithm: A trainer that can start from a posterior: `swag`, `map_estimate`, `ohsmc`.
        num_steps: Number of steps.
        batch_size: M, rows per step; all rows by default.

    Returns:
        The sampler, to pass to `two_stage` or `second_stage`.

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
            "swag()."
        )

    def sample(
        key: PRNGKey, model: Model, posterior: Posterior, batch: Batch
    ) -> tuple[Posterior, Report]:
        draw = Shuffled(num_batches(batch.mask.shape[0], batch_size))
        state = restart(algorithm.init(stream_key(key, Stream.INIT)), posterior)

        def body(step: Int[Array, ""], carry: tuple[Any, Any]) -> tuple[Any, Any]:
            state, order, _ = step_on(algorithm, draw, key, batch, *carry, step)
            return state, order

        first, last = jnp.int32(0), jnp.int32(num_steps)
        state, _ = jax.lax.fori_loop(first, last, body, (state, draw.order(batch)))
        return algorithm.posterior(state), None

    return sample


def second_stage(
    sampler: Sampler,
    model: Model,
    posterior: Posterior | Fit,
    data: Any,
    *,
    key: Seed = 0,
    mesh: Mesh | None = None,
) -> tuple[Posterior, Report]:
    """Run a sampler on a given posterior, without training again.

    Args:
        sampler: The sampler, such as ``hmc()``, ``nuts()`` or ``laplace()``.
        model: The model that was trained.
        posterior: What `fit` returned, or the posterior in it; its ψ is kept.
        data: The training data, a pair ``(inputs, targets)``.
        key: A ``jax.random.key``, or an integer to make one from.
        mesh: Devices to divide the work over; the rows are divided over the axis ``data`` if its size
            divides their number.

    Returns:
        The new posterior and the sampler's report.

    Raises:
        StalledError: A tempered sampler did not reach the posterior.
        ValueError: The data do not fit the network or the likelihood.

    Example:
        >>> import jax.numpy as jnp, partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 5, 1]), "layers/0/*", pb.gaussian())
        >>> x = jnp.linspace(-1.0, 1.0, 8)[:, None]
        >>> trained = pb.fit(pb.map_estimate(model), (x, x), epochs=2)
        >>> sampler = pb.samplers.laplace(num_particles=10)
        >>> posterior, report = pb.training.second_stage(sampler, model, trained.posterior, (x, x))
        >>> posterior.particles.values.shape
        (10, 10)
    """
    start = as_posterior(posterior)
    key = salt(as_key(key))
    mesh = as_mesh(mesh)
    batch = shard_rows(mesh, as_batch(model, data, "data"))
    with uninterrupted(), use_mesh(mesh):
        found = jax.block_until_ready(  # type: ignore[no-untyped-call]
            _second_stage(sampler, model, key, put_on_mesh(mesh, start), batch)
        )
    sampled, report = gather_to_host(found)
    judge(report)
    return sampled, report


@partial(jax.jit, static_argnames=("sampler", "model"))
def _second_stage(
    sampler: Sampler, model: Model, key: PRNGKey, posterior: Posterior, batch: Batch
) -> tuple[Posterior, Report]:
    return constrain(over_members(sampler, key, model, posterior, batch))


_LARGEST_SHORTFALL = 1.0  # twice what a normal posterior has between its mode and a typical draw


def judge(report: Report, fit: Any = None) -> None:
    """Warn if the draws of a sampler are not from the posterior; raise an error if a path stalled.

    Args:
        report: The sampler's report, of one run or of every member of an ensemble.
        fit: The `Fit` of the previous stage, if there was one, for the error to carry.
    """
    if isinstance(report, TemperingReport):
        _judge_path(report, fit)
    elif isinstance(report, ChainReport):
        _warn(_complaints_of_chains(report))
    elif isinstance(report, ImportanceReport):
        _warn(_complaints_of_weights(report))
    elif isinstance(report, LaplaceReport):
        _warn(_complaints_of_moves(report))


def _warn(complaints: list[str]) -> None:
    if complaints:
        warn(" ".join(complaints), MixingWarning)


_LARGEST_R_HAT = 1.1
_FEWEST_DRAWS = 20  # smallest effective sample size
_MOST_DIVERGENCES = 0.01  # of the kept draws
_SMALLEST_ACCEPTANCE = 0.1
_LONG_ENOUGH = 50  # draws of a chain for R-hat and effective sample size to be meaningful


def _complaints_of_moves(report: LaplaceReport) -> list[str]:
    """List what is wrong with the moves that correct a Laplace approximation."""
    acceptance = float(np.min(np.asarray(report.acceptance)))
    if acceptance >= _SMALLEST_ACCEPTANCE:
        return []
    return [
        f"the last move of laplace(num_moves=...) accepted {100 * acceptance:.3g} % of its proposals: "
        "the draws are those of the normal approximation. Use a narrower prior, more moves, or nuts()."
    ]


def _complaints_of_chains(report: ChainReport) -> list[str]:
    """List what is wrong with the worst of the chains, and what to do."""
    acceptance = np.asarray(report.acceptance)
    each = int(np.max(np.asarray(report.num_draws)))
    num_draws = each * acceptance.shape[-1]
    divergent = float(np.max(np.asarray(report.divergences))) / num_draws
    found = []
    if divergent > _MOST_DIVERGENCES:
        found.append(
            f"{100 * divergent:.3g} % of the trajectories diverged: use a smaller step_size, or "
            "step_size=adapted()."
        )
    if not acceptance.min() >= _SMALLEST_ACCEPTANCE:
        found.append(
            f"a chain accepted {100 * acceptance.min():.3g} % of its proposals, so that its draws are "
            "copies of a few: use a smaller step_size, or step_size=adapted()."
        )
    if each < _LONG_ENOUGH:
        return found
    r_hat = np.asarray(report.r_hat)
    # A coordinate that never moved has no R-hat; the acceptance shows it.
    worst = np.nanmax(r_hat) if np.isfinite(r_hat).any() else 1.0
    if worst > _LARGEST_R_HAT:
        found.append(
            f"the chains disagree (R-hat {worst:.3g} of the worst weight, where 1 is right): use a "
            "longer num_warmup and more num_draws, or nuts()."
        )
    ess = np.asarray(report.ess)
    fewest = np.nanmin(ess) if np.isfinite(ess).any() else np.inf
    if fewest < _FEWEST_DRAWS:
        found.append(
            f"the effective sample size of the worst weight is {fewest:.3g}: use more num_draws, longer "
            "trajectories, or nuts()."
        )
    return found


def _complaints_of_weights(report: ImportanceReport) -> list[str]:
    ess = float(np.min(np.asarray(report.ess)))
    if ess >= _FEWEST_DRAWS:
        return []
    return [
        f"the effective sample size of the draws from the prior is {ess:.3g}: use more num_particles, "
        "or tempered_smc(), which goes from the prior to the posterior in steps."
    ]


def _judge_path(report: TemperingReport, fit: Any) -> None:
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
            "tempering has not reached the posterior, and its evidence is too low: the log-density of a "
            f"particle of the previous stage is higher than the mean of the new ones by {shortfall:.3g} "
            "per random weight; in a normal posterior it is at most about 0.5. Use several times as "
            "many particles as random weights, or longer moves, such as "
            "kernel=adapted_hamiltonian(64, 24)."
        )
        warn(message, ShortfallWarning)


def _remedy(
    ess: Float[np.ndarray, " step"], acceptance: Float[np.ndarray, " step"], max_steps: int
) -> str:
    if not np.isfinite(ess).all():
        return (
            "the log-likelihood became NaN or infinite. Check the data and ψ, or use a prior "
            "whose draws give finite log-likelihoods."
        )
    if acceptance[:-1].size and np.nanmedian(acceptance[:-1]) < 0.01:
        return (
            "hardly any proposal is accepted. Use a kernel with smaller steps or one that adapts "
            "itself (adapted_metropolis, adapted_hamiltonian)."
        )
    return (
        f"raise max_steps above {max_steps}, lower target_ess, or use more particles. If the steps "
        "have become tiny, the likelihood is far from the prior: use a larger noise or a wider prior."
    )

"""Sequential Monte Carlo by tempering on p(φ | y_1:N; ψ̂).

The targets are π(φ) p(y_1:N | φ; ψ̂)^λ, from the prior at λ = 0 to the posterior at λ = 1. Each step is
as long as the ESS allows, or follows given temperatures. Unlike a chain, the method also estimates the
evidence, and starts from the prior rather than from the result of the first stage.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from partialbayes._utils.checks import require_positive_int
from partialbayes.annealing import as_exponents, bridge, posterior_family, prestage, tempering
from partialbayes.feynman_kac._feynman_kac import (
    Adaptive,
    keep_chains,
    relative_variance,
    resample_move,
    run_adaptive,
    run_path,
)
from partialbayes.kernels import adapted_hamiltonian
from partialbayes.kernels._halves import enough_particles
from partialbayes.kernels._requirements import require_invariant, require_suitable
from partialbayes.resampling import stratified
from partialbayes.results import TemperingReport
from partialbayes.types import Batch, Kernel, Model, Posterior, PRNGKey, Report, Sampler

_DEFAULT_KERNEL = adapted_hamiltonian()


def tempered_smc(
    *,
    num_particles: int | None = None,
    kernel: Kernel | None = None,
    target_ess: float = 0.5,
    waste_free: int | None = None,
    temperatures: Sequence[float] | Float[np.ndarray, " step"] | None = None,
    max_steps: int = 100,
) -> Sampler:
    """Sample φ by tempered SMC, with the evidence.

    The report is a `TemperingReport`. If its last temperature is not 1, the path stalled: the evidence
    is NaN, and `fit` and `refine` raise a `StalledError`. Its ``shortfall`` is at most about 1/2 for a
    normal posterior. If it is above 1, the moves did not follow the targets, and `fit` and `refine` warn
    (`ShortfallWarning`).

    Args:
        num_particles: J. By default twenty per random weight, at least 1000 and at most 10,000. With
            this number the evidence is right to its reported error.
        kernel: A kernel that leaves each target invariant; `adapted_hamiltonian` by default.
        target_ess: Fraction of J to which the ESS may fall at each step, in (0, 1).
        waste_free: Length of the chains of which every state is kept; it must divide J. By default only
            the last state of each move is kept.
        temperatures: A fixed path, ending at 1. With a kernel that does not adapt itself the evidence is
            then unbiased.
        max_steps: The most steps of an adaptive path.

    Returns:
        The sampler, to pass to `two_stage` or `second_stage`.

    Raises:
        ValueError: The kernel does not leave its target invariant.

    Example:
        >>> import partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 20, 1]), "layers/1/*", pb.gaussian())
        >>> algorithm = pb.two_stage(pb.sgsmc(model), pb.samplers.tempered_smc(num_particles=500))
    """
    if num_particles is not None:
        require_positive_int("num_particles", num_particles, "for example num_particles=1000.")
    require_positive_int("max_steps", max_steps, "for example max_steps=100.")
    if not 0.0 < target_ess < 1.0:
        raise ValueError(
            f"target_ess must be between 0 and 1, a fraction of num_particles, not {target_ess!r}; "
            "for example target_ess=0.5."
        )
    move = _DEFAULT_KERNEL if kernel is None else kernel
    require_invariant(move)
    mutation = resample_move(move, stratified) if waste_free is None else keep_chains(move, waste_free)
    if num_particles is not None:
        mutation.num_founders(num_particles)  # raises an error if waste_free does not fit
    schedule = None if temperatures is None else tempering(temperatures)

    def sampler(
        key: PRNGKey, model: Model, posterior: Posterior, batch: Batch
    ) -> tuple[Posterior, Report]:
        require_suitable(move, model)
        count = num_particles
        if count is None:
            count = enough_particles(model.split.dim, multiple=waste_free or 1)
        key_run, key_last = jax.random.split(key)
        family = prestage(posterior_family(model, posterior.psi, batch))
        memory = move.init(posterior.particles)
        if schedule is None:
            run = run_adaptive(
                key_run, family, mutation, count, memory, target_ess=target_ess, max_steps=max_steps
            )
        else:
            table = as_exponents(schedule, family.num_rows)
            cloud, record = run_path(key_run, family, table, mutation, count, memory)
            run = Adaptive(
                cloud, record, jnp.asarray(table[1:, 0]), jnp.asarray(table.shape[0] - 1, jnp.int32)
            )

        # One more move at the posterior: equal weights, and no copies left.
        reached = run.temperatures[run.num_steps - 1] == 1.0
        everything = jnp.ones(family.num_rows, run.temperatures.dtype)
        variance = relative_variance(run.cloud, mutation)
        target = bridge(family, everything, everything)
        cloud, acceptance = mutation.step(key_last, run.cloud, target)
        known = jax.vmap(target.log_density)(posterior.particles.values).max()
        typical = jnp.exp(cloud.particles.log_weights) @ jax.vmap(target.log_density)(
            cloud.particles.values
        )

        def unless_stalled(value: Array) -> Array:
            return jnp.where(reached, value, jnp.nan)

        moves = jnp.append(run.record.acceptance[1:], jnp.nan).at[run.num_steps - 1].set(acceptance)
        report = TemperingReport(
            log_evidence=unless_stalled(run.cloud.log_evidence),
            standard_error=unless_stalled(jnp.sqrt(jnp.maximum(variance, 0.0))),
            temperatures=run.temperatures,
            ess=run.record.ess,
            acceptance=moves,
            shortfall=unless_stalled((known - typical) / model.split.dim),
        )
        return Posterior(posterior.psi, cloud.particles), report

    return sampler

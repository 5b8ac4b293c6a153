"""Sequential Monte Carlo on all the data (Algorithm 1 of the paper), or on minibatches (Algorithm 2).

Every iteration starts with draws from the prior, and adds the data block by block:

    for t = 1 … T:  resample, move leaving p(φ | y_{1:t−1}; ψ) invariant, reweight by p(y_t | φ; ψ)
    ascend          ψ ← optimizer(ψ, Σ_j w_j ∇_ψ log p(φ_j, y_1:N; ψ))

The last line is Fisher's identity for ∇_ψ log p(y_1:N; ψ), on the final weighted particles. SGSMC
does the same on a new minibatch S of M rows at each iteration:

    sample      w_j, φ_j for p(φ | y_S; ψ), by sequential Monte Carlo from the prior
    ascend      ψ ← optimizer(ψ, (N/M) Σ_j w_j ∇_ψ log p(φ_j, y_S; ψ))

The kernel sees a growing prefix of the batch through the exponents of `partialbayes.annealing`,
zeros and ones. Rows not yet added are not evaluated, and masked rows have no effect.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import PyTree

from partialbayes._utils.checks import require_positive_int
from partialbayes.algorithms._common import ascend, default_optimizer, start_cloud
from partialbayes.annealing import AnnealingSchedule, as_exponents, geometric_blocks, posterior_family
from partialbayes.feynman_kac._feynman_kac import relative_variance, resample_move, run_path
from partialbayes.feynman_kac._gradients import one_pass, sampled_pass
from partialbayes.kernels import adapted_hamiltonian
from partialbayes.kernels._halves import enough_particles
from partialbayes.kernels._requirements import require_invariant, require_suitable
from partialbayes.resampling import stratified, when_ess_below
from partialbayes.types import Algorithm, Batch, Info, Kernel, Model, Posterior, PRNGKey, Psi, Resampler


class SmcState(NamedTuple):
    """ψ with its optimizer, the kernel's memory, and the last sample with its own ψ."""

    psi: Psi
    optimizer: optax.OptState
    kernel: PyTree
    sampled: Posterior


def smc(
    model: Model,
    *,
    num_particles: int | None = None,
    schedule: AnnealingSchedule | None = None,
    kernel: Kernel | None = None,
    resample: Resampler | None = None,
    optimizer: optax.GradientTransformation | None = None,
    gradient_particles: int | None = None,
) -> Algorithm:
    """Train ψ by the gradient of the log-evidence, with a new sample of the posterior at every step.

    The method needs all the data at each step (``fit(..., batch_size=None)``), and `fit` refuses
    batches; use `sgsmc` for those. The posterior it returns is the last sample together with the ψ it
    was drawn for.

    Args:
        model: The model to train.
        num_particles: Number J of samples of φ; by default twenty per random weight, at least 1000 and
            at most 10,000.
        schedule: The order in which data are added: `blocks`, `geometric_blocks` or `tempering`. It is
            used without changes, so with a kernel that does not adapt itself the evidence is unbiased.
            By default the blocks double, and each is added by as many powers as keep half of the
            effective sample size.
        kernel: Kernel that moves the particles before each step and leaves their current target
            invariant; `adapted_hamiltonian` by default.
        resample: Resampling scheme; by default stratified when the ESS falls below 0.7 J.
        optimizer: Optax transformation for ψ; Adam at 0.01 by default.
        gradient_particles: Number K of particles, drawn by weight, for the gradient of ψ; all by
            default. The gradient stays unbiased, and the backward pass costs K instead of J.

    Returns:
        The algorithm, to pass to `fit`.

    Raises:
        ValueError: The kernel does not leave its target invariant, as `random_walk` and `forgetting` do
            not.

    Example:
        >>> import partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 20, 1]), "layers/1/*", pb.gaussian())
        >>> algorithm = pb.smc(model, num_particles=100, schedule=pb.annealing.blocks(10))
    """
    num_particles = enough_particles(model.split.dim) if num_particles is None else num_particles
    require_positive_int("num_particles", num_particles, "for example num_particles=1000.")
    # A given path is used without changes, so that the evidence along it is unbiased.
    target_ess = 0.5 if schedule is None else None
    schedule = geometric_blocks() if schedule is None else schedule
    kernel = adapted_hamiltonian() if kernel is None else kernel
    require_invariant(kernel)
    require_suitable(kernel, model)
    if gradient_particles is not None:
        require_positive_int("gradient_particles", gradient_particles, "or None for all of them.")
    optimizer = default_optimizer(optimizer)
    mutation = resample_move(kernel, when_ess_below(0.7, stratified) if resample is None else resample)

    def init(key: PRNGKey) -> SmcState:
        psi, particles = start_cloud(model, key, num_particles)
        memory = kernel.init(particles)
        return SmcState(psi, optimizer.init(psi), memory, Posterior(psi, particles))

    def step(key: PRNGKey, state: SmcState, batch: Batch) -> tuple[SmcState, Info]:
        psi = state.psi
        exponents = as_exponents(schedule, batch.mask.shape[0])
        family = posterior_family(model, psi, batch)
        key_run, key_gradient = jax.random.split(key)
        cloud, record = run_path(
            key_run, family, exponents, mutation, num_particles, state.kernel, target_ess=target_ess
        )
        # ∇ log p(batch; ψ) as a whole is scaled by N/M, its prior part too.
        unscaled, values = batch._replace(scale=jnp.ones_like(batch.scale)), cloud.particles.values
        if gradient_particles is None:
            _, gradient = one_pass(model, values, psi, unscaled)
        else:
            _, gradient = sampled_pass(key_gradient, gradient_particles, model, values, psi, unscaled)
        ascent = jax.tree.map(
            lambda leaf: batch.scale * leaf, gradient(jnp.exp(cloud.particles.log_weights))
        )
        new_psi, optimizer_state = ascend(optimizer, ascent, state.optimizer, psi)
        # The first step only weights, without a move.
        acceptance = record.acceptance[1:] if record.acceptance.shape[0] > 1 else record.acceptance
        info = {
            "loss": -cloud.log_evidence / batch.mask.sum(),
            "ess": record.ess[-1],
            "min_ess": record.ess.min(),
            "log_evidence_increment": cloud.log_evidence,
            "log_evidence_variance": relative_variance(cloud, mutation),
            "acceptance": acceptance.mean(),
            "min_acceptance": acceptance.min(),
            "ancestors": record.ancestors[-1],
        }
        sampled = Posterior(psi, cloud.particles)
        return SmcState(new_psi, optimizer_state, cloud.kernel, sampled), info

    def posterior(state: SmcState) -> Posterior:
        return state.sampled

    return Algorithm(model, init, step, posterior, wants="all rows")


def sgsmc(
    model: Model,
    *,
    num_particles: int | None = None,
    schedule: AnnealingSchedule | None = None,
    kernel: Kernel | None = None,
    resample: Resampler | None = None,
    optimizer: optax.GradientTransformation | None = None,
    gradient_particles: int | None = None,
) -> Algorithm:
    """Train ψ on minibatches, each with its own sequential Monte Carlo from the prior.

    The final particles are a sample given the *last minibatch* only, wider than the posterior of all the
    data. Follow it by `refine`, which samples that posterior at the ψ found here.

    Args:
        model: The model to train.
        num_particles: Number J of samples of φ; by default twenty per random weight, at least 1000 and
            at most 10,000.
        schedule: The order in which the rows of a minibatch are added; see `smc`. Algorithm 2 of the
            paper uses ``blocks(1)``.
        kernel: Kernel that moves the particles before each step and leaves their current target
            invariant; `adapted_hamiltonian` by default.
        resample: Resampling scheme; by default stratified when the ESS falls below 0.7 J.
        optimizer: Optax transformation for ψ; Adam at 0.01 by default.
        gradient_particles: Number K of particles, drawn by weight, for the gradient of ψ; all by
            default.

    Returns:
        The algorithm, to pass to `fit`.

    Example:
        >>> import partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 20, 1]), "layers/1/*", pb.gaussian())
        >>> algorithm = pb.sgsmc(model, num_particles=100)
    """
    # The scale N/M is in the batch, so the step is that of `smc`.
    whole = smc(
        model,
        num_particles=num_particles,
        schedule=schedule,
        kernel=kernel,
        resample=resample,
        optimizer=optimizer,
        gradient_particles=gradient_particles,
    )
    return whole._replace(wants=None)

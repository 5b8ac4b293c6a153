"""Open-horizon sequential Monte Carlo (Algorithm 3 of the paper), and a variant without weights.

Particles persist from batch to batch. If the kernel does not use the batch, a step is:

    resample    φ ← resampled φ, w ← 1/J, if ``resample`` decides so
    move        φ_j ~ h(· | φ_j)
    reweight    w_j ∝ w_j p(batch | φ_j; ψ)
    ascend      ψ ← optimizer(ψ, (N/M) Σ_j w_j ∇_ψ log p(batch | φ_j; ψ))

Some kernels (`transport`, `affine_langevin`) update the particles with the batch. Weighting them with it
again would count it twice. The particles then stay equally weighted, nothing is resampled, and one
forward and one backward pass at the particles *before* the move give all gradients:

    ascend      ψ ← optimizer(ψ, (N/M) Σ_j v_j ∇_ψ log p(batch | φ_j; ψ)),  v_j ∝ p(batch | φ_j; ψ)^α
    move        φ_j ← kernel(φ_j, ∇_φ log p(batch | φ_j; ψ)), with the gradient of the same pass

The exponent α replaces what the cloud has forgotten of this batch since the last epoch. Let r be the
kernel's rate times M/N. A batch enters with weight r N/M and fades by 1 − r per step. With shuffled
batches, its weight in the cloud just before its next visit is, on average,

    (r N/M) Σ_{k≥1} E[(1 − r)^{k K + a − b − 1}] = (1 − (1 − r)^K) / (r K),    K = N/M,

where a and b are its positions in two epochs. In the posterior its weight is 1. α is the difference:
e⁻¹ for `transport` and small batches, 0 if the batch holds all rows. Without α, ψ would learn as if the
batch were half unseen, and the noise would be too large by about d/N. At the particles after the move it
would learn as if the batch counted one and a half times, and the noise would be too small. α is lowered
if the effective number of the weights v would fall below J/2.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

from partialbayes._utils.checks import require_instance, require_positive_int
from partialbayes.algorithms._common import ascend, default_optimizer, start_cloud
from partialbayes.annealing import stride_by_ess
from partialbayes.feynman_kac._gradients import Weigh, joint_gradient, one_pass, sampled_pass
from partialbayes.kernels import transport
from partialbayes.kernels._requirements import require_suitable, warn_of_few_particles
from partialbayes.resampling import stratified
from partialbayes.types import (
    Algorithm,
    Batch,
    Info,
    Kernel,
    Model,
    Moved,
    Particles,
    Phi,
    Posterior,
    PRNGKey,
    Psi,
    Resampler,
    Scalar,
    Target,
)
from partialbayes.weights import effective_sample_size, reweight, uniform_log_weights

_LARGEST_FULL = 300  # random weights whose full covariance is tracked by default
_LEAST_ESS = 0.5


class OhsmcState(NamedTuple):
    """ψ with its optimizer, and the particles with their kernel's memory."""

    psi: Psi
    optimizer: optax.OptState
    particles: Particles
    kernel: PyTree


def ohsmc(
    model: Model,
    *,
    num_particles: int | None = None,
    kernel: Kernel | None = None,
    resample: Resampler = stratified,
    optimizer: optax.GradientTransformation | None = None,
    gradient_particles: int | None = None,
) -> Algorithm:
    """Train ψ and sample φ together, batch by batch.

    Args:
        model: The model to train.
        num_particles: J, the number of samples of φ. Defaults to four per random weight, and at least
            100. With more than 300 random weights it defaults to 200, and their correlations are not
            tracked. For a kernel that does not use the batch it defaults to 1000.
        kernel: The kernel that moves the particles. Defaults to `transport`; the paper uses
            ``random_walk(0.01)``.
        resample: The resampler, for kernels that do not use the batch. Defaults to `stratified` at every
            step; see `when_ess_below`.
        optimizer: An Optax transformation for ψ. Defaults to Adam with learning rate 0.01.
        gradient_particles: K, the number of particles, drawn by weight, to estimate the gradient of ψ
            from. Defaults to all of them. The gradient stays unbiased, and its backward pass costs K
            particles instead of J. A kernel that uses the batch needs all of them.

    Returns:
        The algorithm, to pass to `fit`.

    Raises:
        ValueError: ``num_particles`` or ``gradient_particles`` is not a positive integer, the kernel
            does not support this prior, or it uses the batch and ``gradient_particles`` is given.

    Warns:
        FewParticlesWarning: The kernel needs more particles for this number of random weights.

    Example:
        >>> import partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 20, 1]), "layers/0/*", pb.gaussian())
        >>> algorithm = pb.ohsmc(model)
        >>> as_in_the_paper = pb.ohsmc(model, num_particles=1000, kernel=pb.kernels.random_walk(0.01))
    """
    require_instance("model", model, Model, "for example partial_bnn(network, stochastic, likelihood).")
    kernel = transport() if kernel is None else kernel
    require_suitable(kernel, model)
    if num_particles is None:
        num_particles = _default_number(kernel, model.split.dim)
    require_positive_int("num_particles", num_particles, "for example num_particles=1000.")
    warn_of_few_particles(kernel, num_particles, model.split.dim)
    if gradient_particles is not None:
        require_positive_int("gradient_particles", gradient_particles, "or None for all of them.")
        if kernel.batch_rate:
            raise ValueError(
                "gradient_particles must be None with a kernel that uses the batch, because it needs "
                "the backward pass for every particle. Use fewer num_particles, or a kernel such as "
                "random_walk."
            )
    optimizer = default_optimizer(optimizer)

    def init(key: PRNGKey) -> OhsmcState:
        psi, particles = start_cloud(model, key, num_particles)
        return OhsmcState(psi, optimizer.init(psi), particles, kernel.init(particles))

    def weighted_step(key: PRNGKey, state: OhsmcState, batch: Batch) -> tuple[OhsmcState, Info]:
        key_resample, key_move, key_gradient = jax.random.split(key, 3)
        psi = state.psi
        resampled, ancestors = resample(key_resample, state.particles)
        moved = kernel.step(key_move, resampled, batch_target(model, psi, batch), state.kernel)
        require_instance("what the kernel's step returns", moved, Moved, "see types.Kernel.")
        if gradient_particles is None:
            log_likelihoods, gradient = one_pass(model, moved.values, psi, batch)
        else:
            log_likelihoods, gradient = sampled_pass(
                key_gradient, gradient_particles, model, moved.values, psi, batch
            )
        particles, increment = reweight(
            Particles(moved.values, resampled.log_weights), log_likelihoods + moved.log_correction
        )
        ascent = gradient(jnp.exp(particles.log_weights))
        new_psi, optimizer_state = ascend(optimizer, ascent, state.optimizer, psi)
        info = {
            "loss": -increment / batch.mask.sum(),
            "ess": effective_sample_size(particles.log_weights),
            "log_evidence_increment": increment,
            "acceptance": moved.acceptance,
            "ancestors": count_distinct(ancestors),
        }
        return OhsmcState(new_psi, optimizer_state, particles, moved.state), info

    def unweighted_step(key: PRNGKey, state: OhsmcState, batch: Batch) -> tuple[OhsmcState, Info]:
        psi, particles = state.psi, state.particles
        ascent = joint_gradient(
            model, particles.values, psi, batch, unlearned(kernel.batch_rate, 1.0 / batch.scale)
        )
        target = batch_target(model, psi, batch)._replace(slopes=ascent.slopes)
        moved = kernel.step(key, particles, target, state.kernel)
        new_psi, optimizer_state = ascend(optimizer, ascent.psi, state.optimizer, psi)
        info = {
            "loss": -ascent.log_likelihoods.mean() / batch.mask.sum(),
            "acceptance": moved.acceptance,
        }
        particles = particles._replace(values=moved.values)
        return OhsmcState(new_psi, optimizer_state, particles, moved.state), info

    def posterior(state: OhsmcState) -> Posterior:
        return Posterior(state.psi, state.particles)

    def restart(state: OhsmcState, posterior: Posterior) -> OhsmcState:
        particles = posterior.particles
        if kernel.batch_rate:
            particles = equally_weighted(particles)
        return state._replace(psi=posterior.psi, particles=particles, kernel=kernel.init(particles))

    step = unweighted_step if kernel.batch_rate else weighted_step
    wants: Literal["batches"] | None = "batches" if kernel.needs_batches else None
    return Algorithm(model, init, step, posterior, restart=restart, wants=wants)


def _default_number(kernel: Kernel, dim: int) -> int:
    """Return the default number of particles."""
    if not kernel.batch_rate:
        return 1000
    return max(100, 4 * dim) if dim <= _LARGEST_FULL else 200


def unlearned(batch_rate: float, fraction: Scalar) -> Weigh:
    """Weight particles by p(batch | φ)^α to replace what is forgotten; see the module docstring."""

    def weigh(log_likelihoods: Float[Array, " particle"]) -> Float[Array, " particle"]:
        num_particles = log_likelihoods.shape[0]
        rate = (batch_rate * fraction).astype(log_likelihoods.dtype)
        kept = -jnp.expm1(jnp.log1p(-rate) / fraction) / batch_rate
        potentials = (1.0 - kept) * log_likelihoods
        share = stride_by_ess(_LEAST_ESS, 20)(uniform_log_weights(num_particles), potentials)
        # No weight is zero, because gradients in φ are divided by it.
        return jnp.maximum(jax.nn.softmax(share * potentials), 1e-6 / num_particles)

    return weigh


def equally_weighted(particles: Particles) -> Particles:
    """Resample deterministically to equal weights; equally weighted particles do not change."""
    num_particles = particles.log_weights.shape[0]
    places = (jnp.arange(num_particles) + 0.5) / num_particles
    ancestors = jnp.searchsorted(jnp.cumsum(jnp.exp(particles.log_weights)), places)
    ancestors = jnp.clip(ancestors, 0, num_particles - 1)
    return Particles(particles.values[ancestors], uniform_log_weights(num_particles))


def batch_target(model: Model, psi: Psi, batch: Batch) -> Target:
    """Return the target of a kernel for one batch, with density π(φ) p(batch | φ)^{N/M}."""

    def log_potential(phi: Phi) -> Scalar:
        return model.log_likelihood(phi, psi, batch).sum()

    def log_density(phi: Phi) -> Scalar:
        return model.log_prior(phi, psi) + batch.scale * log_potential(phi)

    prior, fraction = model.prior_moments(psi), 1.0 / batch.scale
    return Target(log_density, log_potential, prior, fraction, batch.forgotten)


def count_distinct(ancestors: jax.Array) -> Scalar:
    """Count the distinct ancestors, as a float."""
    seen = jnp.zeros(ancestors.shape, bool).at[ancestors].set(True)
    return seen.sum().astype(jnp.result_type(float))

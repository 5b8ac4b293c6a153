"""Open-horizon sequential Monte Carlo (Algorithm 3 of the paper), and the same without weights.

Particles persist from batch to batch. With a kernel that does not use the batch, on each batch:

    resample    φ ← resampled φ, w ← 1/J, where asked for
    move        φ_j ~ h(· | φ_j)
    reweight    w_j ∝ w_j p(batch | φ_j; ψ)
    ascend      ψ ← optimizer(ψ, (N/M) Σ_j w_j ∇_ψ log p(batch | φ_j; ψ))

A kernel that takes the batch in by itself (`transport`, `affine_langevin`) has used it; to weight by it
again would count it twice. The particles stay equally weighted, nothing is resampled, and one forward
and one backward pass at the particles φ *before* the move give all gradients:

    ascend      ψ ← optimizer(ψ, (N/M) Σ_j v_j ∇_ψ log p(batch | φ_j; ψ)),  v_j ∝ p(batch | φ_j; ψ)^α
    move        φ_j ← the kernel's, by the ∇_φ log p(batch | φ_j; ψ) of the same pass

The exponent α makes up for what the cloud has forgotten of this batch since it last saw it. Let r be the
kernel's rate times M/N: a batch enters with weight r N/M and fades by 1 − r per step. Over epochs of
shuffled batches its weight in the cloud just before it comes again is, on average,

    (r N/M) Σ_{k≥1} E[(1 − r)^{k K + a − b − 1}] = (1 − (1 − r)^K) / (r K),    K = N/M,

a and b its places in two epochs, where the posterior has 1. α is the rest: e⁻¹ for `transport` and small
batches, 0 for a batch of all the rows. Without it ψ would learn as if the batch were half unseen (too
large a noise, by some d/N), and at the particles after the move as if it were there one and a half times
(too small a noise). α is lowered where the weights v would fall below half of their effective number.
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

_LARGEST_FULL = 300  # random weights whose covariance is followed by default
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
    """Train ψ and sample φ together, one pass over the data at a time.

    Args:
        model: What to train.
        num_particles: J, the number of samples of φ. By default four for every random weight, and 100
            at least; 200 where there are more than 300 weights, whose correlations are then not
            followed; 1000 for a kernel that does not use the batch.
        kernel: How particles move. `transport` by default; the paper's is `random_walk` (0.01).
        resample: For kernels that do not use the batch, `stratified` at every step by default; see
            `when_ess_below`.
        optimizer: Any Optax transformation, for ψ; Adam at 0.01 by default.
        gradient_particles: K, how many particles, drawn by weight, the gradient of ψ comes from;
            all of them by default. The gradient stays unbiased and its backward pass costs K
            particles instead of J. A kernel that uses the batch needs that pass for all of them.

    Raises:
        ValueError: ``num_particles`` or ``gradient_particles`` is not a whole number of at least
            1, the kernel needs a prior that this one is not (normal, or with a variance), or it uses
            the batch and ``gradient_particles`` is given.

    Warns:
        FewParticlesWarning: The kernel needs more particles for so many random weights.

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
                "gradient_particles must be None with a kernel that uses the batch: it needs the "
                "backward pass for every particle, and the gradient of ψ comes with it. Use fewer "
                "num_particles, or a kernel such as random_walk."
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
    """J where the user names none."""
    if not kernel.batch_rate:
        return 1000
    return max(100, 4 * dim) if dim <= _LARGEST_FULL else 200


def unlearned(batch_rate: float, fraction: Scalar) -> Weigh:
    """Weights p(batch | φ)^α that stand in for what is forgotten of a batch; see the module's text."""

    def weigh(log_likelihoods: Float[Array, " particle"]) -> Float[Array, " particle"]:
        num_particles = log_likelihoods.shape[0]
        rate = (batch_rate * fraction).astype(log_likelihoods.dtype)
        kept = -jnp.expm1(jnp.log1p(-rate) / fraction) / batch_rate
        potentials = (1.0 - kept) * log_likelihoods
        share = stride_by_ess(_LEAST_ESS, 20)(uniform_log_weights(num_particles), potentials)
        # No weight is zero, for the gradients in φ are divided by it.
        return jnp.maximum(jax.nn.softmax(share * potentials), 1e-6 / num_particles)

    return weigh


def equally_weighted(particles: Particles) -> Particles:
    """Copies by weight; particles of equal weight stay as they are."""
    num_particles = particles.log_weights.shape[0]
    places = (jnp.arange(num_particles) + 0.5) / num_particles
    ancestors = jnp.searchsorted(jnp.cumsum(jnp.exp(particles.log_weights)), places)
    ancestors = jnp.clip(ancestors, 0, num_particles - 1)
    return Particles(particles.values[ancestors], uniform_log_weights(num_particles))


def batch_target(model: Model, psi: Psi, batch: Batch) -> Target:
    """What a move may look at when only this batch is at hand.

    The density is the estimate π(φ) p(batch | φ)^{N/M} of the full posterior.
    """

    def log_potential(phi: Phi) -> Scalar:
        return model.log_likelihood(phi, psi, batch).sum()

    def log_density(phi: Phi) -> Scalar:
        return model.log_prior(phi, psi) + batch.scale * log_potential(phi)

    prior, fraction = model.prior_moments(psi), 1.0 / batch.scale
    return Target(log_density, log_potential, prior, fraction, batch.forgotten)


def count_distinct(ancestors: jax.Array) -> Scalar:
    """How many different particles the new ones descend from, as a float for the record."""
    seen = jnp.zeros(ancestors.shape, bool).at[ancestors].set(True)
    return seen.sum().astype(jnp.result_type(float))

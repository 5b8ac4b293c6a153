"""Open-horizon sequential Monte Carlo (Algorithm 3 of the paper).

Particles persist from batch to batch. On each batch:

    resample    φ ← resampled φ, w ← 1/J, where asked for
    move        φ_j ~ h(· | φ_j)
    reweight    w_j ∝ w_j p(batch | φ_j; ψ)
    ascend      ψ ← optimizer(ψ, (N/M) Σ_j w_j ∇_ψ log p(batch | φ_j; ψ))
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import PyTree

from partialbayes._utils.checks import require_positive_int
from partialbayes.algorithms._common import ascend, default_optimizer, start_cloud
from partialbayes.feynman_kac._gradients import one_pass, sampled_pass
from partialbayes.kernels import random_walk
from partialbayes.kernels._requirements import require_suitable
from partialbayes.resampling import stratified
from partialbayes.types import (
    Algorithm,
    Batch,
    Info,
    Kernel,
    Model,
    Particles,
    Phi,
    Posterior,
    PRNGKey,
    Psi,
    Resampler,
    Scalar,
    Target,
)
from partialbayes.weights import effective_sample_size, reweight


class OhsmcState(NamedTuple):
    """ψ with its optimizer, and the particles with their kernel's memory."""

    psi: Psi
    optimizer: optax.OptState
    particles: Particles
    kernel: PyTree


def ohsmc(
    model: Model,
    *,
    num_particles: int = 1000,
    kernel: Kernel | None = None,
    resample: Resampler = stratified,
    optimizer: optax.GradientTransformation | None = None,
    gradient_particles: int | None = None,
) -> Algorithm:
    """Train ψ and sample φ together, one pass over the data at a time.

    Args:
        model: What to train.
        num_particles: J, the number of samples of φ.
        kernel: How particles move before each batch; `random_walk` of variance 0.01 by default.
        resample: `stratified` at every step by default; see `when_ess_below`.
        optimizer: Any Optax transformation, for ψ; Adam at 0.01 by default.
        gradient_particles: K, how many particles, drawn by weight, the gradient of ψ comes from;
            all of them by default. The gradient stays unbiased and its backward pass costs K
            particles instead of J.

    Raises:
        ValueError: ``num_particles`` or ``gradient_particles`` is not a whole number of at least
            1, or the kernel needs a prior that this one is not (normal, or with a variance).

    Example:
        >>> import partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 20, 1]), "layers/0/*", pb.gaussian())
        >>> algorithm = pb.ohsmc(model, num_particles=100, kernel=pb.kernels.ornstein_uhlenbeck(0.1))
    """
    require_positive_int("num_particles", num_particles, "for example num_particles=1000.")
    kernel = random_walk(0.01) if kernel is None else kernel
    require_suitable(kernel, model)
    if gradient_particles is not None:
        require_positive_int("gradient_particles", gradient_particles, "or None for all of them.")
    optimizer = default_optimizer(optimizer)

    def init(key: PRNGKey) -> OhsmcState:
        psi, particles = start_cloud(model, key, num_particles)
        return OhsmcState(psi, optimizer.init(psi), particles, kernel.init(model.split.dim))

    def step(key: PRNGKey, state: OhsmcState, batch: Batch) -> tuple[OhsmcState, Info]:
        key_resample, key_move, key_gradient = jax.random.split(key, 3)
        psi = state.psi
        resampled, ancestors = resample(key_resample, state.particles)
        moved = kernel.step(key_move, resampled, batch_target(model, psi, batch), state.kernel)
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

    def posterior(state: OhsmcState) -> Posterior:
        return Posterior(state.psi, state.particles)

    def restart(state: OhsmcState, posterior: Posterior) -> OhsmcState:
        return state._replace(psi=posterior.psi, particles=posterior.particles)

    return Algorithm(model, init, step, posterior, restart=restart)


def batch_target(model: Model, psi: Psi, batch: Batch) -> Target:
    """What a move may look at when only this batch is at hand.

    The density is the estimate π(φ) p(batch | φ)^{N/M} of the full posterior.
    """

    def log_potential(phi: Phi) -> Scalar:
        return model.log_likelihood(phi, psi, batch).sum()

    def log_density(phi: Phi) -> Scalar:
        return model.log_prior(phi, psi) + batch.scale * log_potential(phi)

    return Target(log_density, log_potential, model.prior_moments(psi), 1.0 / batch.scale)


def count_distinct(ancestors: jax.Array) -> Scalar:
    """How many different particles the new ones descend from, as a float for the record."""
    seen = jnp.zeros(ancestors.shape, bool).at[ancestors].set(True)
    return seen.sum().astype(jnp.result_type(float))

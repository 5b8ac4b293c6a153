"""OHSMC with a backward kernel, whose weights correct the bias of a random walk (Del Moral 2006).

A random walk K = N(φ, v I) leaves no target invariant. An SMC sampler on targets γ_0, γ_1, … with any
kernel K and backward kernel L is valid if the weights are multiplied by γ_n(φ') L(φ', φ) / (γ_{n−1}(φ)
K(φ, φ')). With L = K, a random walk, this leaves

    resample    φ, log γ_{n−1}(φ) ← copies, w ← 1/J, if due
    move        φ'_j ~ N(φ_j, v I)
    reweight    w_j ∝ w_j γ_n(φ'_j) / γ_{n−1}(φ_j)
    ascend      ψ ← optimizer(ψ, (N/M) Σ_j w_j ∇_ψ log p(batch_n | φ'_j; ψ))

The targets are γ_0 = π and γ_n(φ) = π(φ; ψ_n) p(batch_n | φ; ψ_n)^{β_n N/M}, with β_n rising to one over
the warm-up. The weights are thus those of the posterior estimated from this batch. With all data in one
batch and fixed ψ (``optax.set_to_zero()``) the product of the evidence increments is an unbiased
estimate of the evidence; while ψ is trained it is not.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from partialbayes._utils.checks import require_positive, require_positive_int
from partialbayes.algorithms._common import ascend, default_optimizer, posterior_of, start_cloud
from partialbayes.algorithms._ohsmc import count_distinct
from partialbayes.feynman_kac._gradients import one_pass
from partialbayes.feynman_kac._random import antithetic
from partialbayes.resampling import stratified, when_ess_below
from partialbayes.types import Algorithm, Batch, Info, Model, Particles, PRNGKey, Psi, Resampler
from partialbayes.weights import effective_sample_size, reweight


class BackwardOhsmcState(NamedTuple):
    """ψ with its optimizer, the particles with their log γ_{n−1}, and the number of steps."""

    psi: Psi
    optimizer: optax.OptState
    particles: Particles
    log_targets: Float[Array, " particle"]
    steps: Int[Array, ""]


def backward_ohsmc(
    model: Model,
    *,
    variance: float | Float[Array, ""] = 0.01,
    num_particles: int = 1000,
    num_warmup: int = 10,
    resample: Resampler | None = None,
    optimizer: optax.GradientTransformation | None = None,
) -> Algorithm:
    """Train ψ by OHSMC with a random walk whose bias a backward kernel corrects.

    With all data in one batch the particles follow the posterior as ψ moves. With small batches they
    follow its noisy estimate from each batch; `ohsmc` with the `transport` kernel is then the better
    choice.

    Args:
        model: The model to train.
        variance: Variance of the random walk. Best near the posterior variance over the number of
            stochastic weights, because larger moves make the weights uneven.
        num_particles: Number J of samples of φ.
        num_warmup: Number of steps over which the power of the likelihood rises from 0 to N/M.
        resample: Resampling scheme that copies particles (not `optimal_transport`);
            ``when_ess_below(0.5)`` by default.
        optimizer: Optax transformation for ψ; Adam at 0.01 by default.

    Returns:
        The algorithm, to pass to `fit`.

    Example:
        >>> import partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 20, 1]), "layers/0/*", pb.gaussian())
        >>> algorithm = pb.algorithms.backward_ohsmc(model, variance=0.01, num_particles=100)
    """
    require_positive("variance", variance)
    require_positive_int("num_particles", num_particles, "for example num_particles=1000.")
    require_positive_int("num_warmup", num_warmup, "1 starts with the whole likelihood at once.")
    resample = when_ess_below(0.5, stratified) if resample is None else resample
    optimizer = default_optimizer(optimizer)

    def log_priors(values: Float[Array, "particle dim"], psi: Psi) -> Float[Array, " particle"]:
        return jax.vmap(lambda phi: model.log_prior(phi, psi))(values)

    def init(key: PRNGKey) -> BackwardOhsmcState:
        psi, particles = start_cloud(model, key, num_particles)
        log_targets = log_priors(particles.values, psi)
        steps = jnp.zeros((), jnp.int32)
        return BackwardOhsmcState(psi, optimizer.init(psi), particles, log_targets, steps)

    def step(key: PRNGKey, state: BackwardOhsmcState, batch: Batch) -> tuple[BackwardOhsmcState, Info]:
        key_resample, key_move = jax.random.split(key)
        psi = state.psi
        resampled, ancestors = resample(key_resample, state.particles)
        noise = antithetic(key_move, resampled.values.shape, resampled.values.dtype)
        values = resampled.values + jnp.sqrt(jnp.asarray(variance, noise.dtype)) * noise
        log_likelihoods, gradient = one_pass(model, values, psi, batch)
        steps = state.steps + 1
        power = batch.scale * jnp.minimum(steps / num_warmup, 1.0).astype(batch.scale.dtype)
        log_targets = log_priors(values, psi) + power * log_likelihoods
        particles, increment = reweight(
            Particles(values, resampled.log_weights), log_targets - state.log_targets[ancestors]
        )
        ascent = gradient(jnp.exp(particles.log_weights))
        new_psi, optimizer_state = ascend(optimizer, ascent, state.optimizer, psi)
        log_mean_likelihood = jax.nn.logsumexp(particles.log_weights + log_likelihoods)
        info = {
            "loss": -log_mean_likelihood / batch.mask.sum(),
            "ess": effective_sample_size(particles.log_weights),
            "log_evidence_increment": increment,
            "acceptance": jnp.ones((), increment.dtype),
            "ancestors": count_distinct(ancestors),
        }
        return BackwardOhsmcState(new_psi, optimizer_state, particles, log_targets, steps), info

    return Algorithm(model, init, step, posterior_of)

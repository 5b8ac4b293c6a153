"""Poisson-debiased OHSMC: unbiased likelihood estimates from batches, for a handful of rows.

For one φ, with P ~ Poisson(λ) and independent batches S_1, …, S_P of M rows,

    E[ (e^λ / c) ∏_{i ≤ P} ((N/M) log p(y_{S_i} | φ; ψ) + log c) / λ ] = ∏_n p(y_n | φ; ψ).

Each step draws particles from the prior and weights each by such an estimate, with its own P and
batches. The weighted particles then target the posterior given all data, and the mean weight is an
unbiased estimate of the evidence. ψ ascends by Fisher's identity on a batch.

Every factor must be positive, so c must exceed the largest p(y_S | φ)^{−N/M} over batches and particles,
while the weights vary like e^{2 log c}. Beyond a handful of rows no c satisfies both: the method shows
that the bias of OHSMC can be removed, not how to train.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from partialbayes._utils.checks import require_positive, require_positive_int
from partialbayes.algorithms._common import ascend, default_optimizer, posterior_of, start_cloud
from partialbayes.feynman_kac._gradients import one_pass
from partialbayes.types import Algorithm, Batch, Info, Model, Particles, Phi, PRNGKey, Psi, Scalar
from partialbayes.weights import effective_sample_size, reweight, uniform_log_weights


class PoissonOhsmcState(NamedTuple):
    """ψ with its optimizer, and the latest particles."""

    psi: Psi
    optimizer: optax.OptState
    particles: Particles


def poisson_ohsmc(
    model: Model,
    *,
    log_c: float | Float[Array, ""],
    intensity: float | Float[Array, ""],
    subset_size: int = 1,
    num_particles: int = 1000,
    optimizer: optax.GradientTransformation | None = None,
) -> Algorithm:
    """Train ψ with unbiased random weights of the particles, for a handful of rows.

    Call `fit` without ``batch_size``: each particle draws its small batches from all the data. With a
    batch size, that batch to the power N/M replaces all the data.

    Args:
        model: The model to train.
        log_c: Logarithm of the constant c that keeps the factors positive.
        intensity: Mean number λ of batches per particle; best near log c plus the log-likelihood of all
            the data.
        subset_size: Number M of rows of a batch.
        num_particles: Number J of samples of φ.
        optimizer: Optax transformation for ψ; Adam at 0.01 by default.

    Returns:
        The algorithm, to pass to `fit`.

    Raises:
        TrainingDivergedError: In `fit`: ``log_c`` is too small; the message names the amount.

    Example:
        >>> import partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 2, 1]), "layers/0/*", pb.gaussian())
        >>> algorithm = pb.algorithms.poisson_ohsmc(model, log_c=20.0, intensity=15.0, num_particles=100)
    """
    require_positive("log_c", log_c)
    require_positive("intensity", intensity)
    require_positive_int("subset_size", subset_size, "for example subset_size=1.")
    require_positive_int("num_particles", num_particles, "for example num_particles=1000.")
    optimizer = default_optimizer(optimizer)

    def init(key: PRNGKey) -> PoissonOhsmcState:
        psi, particles = start_cloud(model, key, num_particles)
        return PoissonOhsmcState(psi, optimizer.init(psi), particles)

    def step(key: PRNGKey, state: PoissonOhsmcState, batch: Batch) -> tuple[PoissonOhsmcState, Info]:
        key_prior, key_weights, key_subset = jax.random.split(key, 3)
        psi = state.psi
        values = model.sample_prior(key_prior, psi, num_particles)
        estimates = poisson_estimates(
            key_weights, model, values, psi, batch, log_c, intensity, subset_size
        )
        particles, increment = reweight(
            Particles(values, uniform_log_weights(num_particles)), estimates.log_likelihoods
        )
        _, gradient = one_pass(model, values, psi, random_subset(key_subset, batch, subset_size))
        ascent = gradient(jnp.exp(particles.log_weights))
        new_psi, optimizer_state = ascend(optimizer, ascent, state.optimizer, psi)
        num_data = batch.scale * batch.mask.sum()
        info = {
            "loss": -increment / num_data,
            "ess": effective_sample_size(particles.log_weights),
            "log_evidence_increment": increment,
            "acceptance": jnp.ones((), increment.dtype),
            "ancestors": jnp.asarray(num_particles, increment.dtype),
            "smallest_factor": estimates.smallest_factor,
        }
        return PoissonOhsmcState(new_psi, optimizer_state, particles), info

    return Algorithm(model, init, step, posterior_of)


class PoissonEstimates(NamedTuple):
    """Log-likelihood estimates of each particle; NaN where a factor was not positive.

    Attributes:
        log_likelihoods: Logarithms of unbiased estimates of p(y_1:N | φ_j; ψ).
        smallest_factor: The smallest (N/M) log p(y_S | φ_j; ψ) + log c that was drawn.
    """

    log_likelihoods: Float[Array, " particle"]
    smallest_factor: Scalar


def poisson_estimates(
    key: PRNGKey,
    model: Model,
    values: Float[Array, "particle dim"],
    psi: Psi,
    batch: Batch,
    log_c: float | Float[Array, ""],
    intensity: float | Float[Array, ""],
    subset_size: int,
) -> PoissonEstimates:
    """Estimate the likelihood of every particle by the equation of this module."""
    num_particles = values.shape[0]
    key_counts, key_subsets = jax.random.split(key)
    counts = jax.random.poisson(key_counts, intensity, (num_particles,))
    log_c = jnp.asarray(log_c, values.dtype)
    log_intensity = jnp.log(jnp.asarray(intensity, values.dtype))

    def factor(key: PRNGKey, phi: Phi) -> Scalar:
        subset = random_subset(key, batch, subset_size)
        return subset.scale * model.log_likelihood(phi, psi, subset).sum() + log_c

    def multiply(
        index: Int[Array, ""], total: tuple[Float[Array, " particle"], Scalar]
    ) -> tuple[Float[Array, " particle"], Scalar]:
        logarithms, smallest = total
        keys = jax.random.split(jax.random.fold_in(key_subsets, index), num_particles)
        factors = jax.vmap(factor)(keys, values)
        due: Bool[Array, " particle"] = index < counts
        terms = jnp.where(due, jnp.log(factors) - log_intensity, 0.0)
        return logarithms + terms, jnp.minimum(smallest, jnp.where(due, factors, jnp.inf).min())

    # Without factors the product is one.
    start = (jnp.full(num_particles, jnp.exp(log_intensity) - log_c, values.dtype), log_c)
    return PoissonEstimates(*jax.lax.fori_loop(0, counts.max(), multiply, start))


def random_subset(key: PRNGKey, batch: Batch, size: int) -> Batch:
    """Draw rows of a batch without replacement among unmasked ones, and scale them up."""
    rows = batch.mask.shape[0]
    if size > rows:
        raise ValueError(f"subset_size is {size}, but there are only {rows} rows; use at most {rows}.")
    order = jnp.argsort(jnp.where(batch.mask, jax.random.uniform(key, (rows,)), jnp.inf))
    chosen = order[:size]
    inputs, targets = jax.tree.map(lambda leaf: leaf[chosen], (batch.inputs, batch.targets))
    counting = batch.mask.sum()
    scale = batch.scale * counting / jnp.minimum(counting, size)
    return Batch(inputs, targets, batch.mask[chosen], scale.astype(batch.scale.dtype))

"""Particles that follow their own gradients, with one ψ: samples at temperature one, members at zero.

With U_j = (N/M) log p(batch | φ_j; ψ) + log π(φ_j; ψ), on each batch

    ψ   ← optimizer(ψ, (1/J) Σ_j ∇_ψ U_j)                                     Fisher's identity
    φ_j ← φ_j + h D ∇_φ U_j / T + noise of covariance 2 h D                   temperature T > 0
    φ_j ← optimizer(φ_j, ∇_φ U_j)                                             an ensemble

with all gradients from one backward pass. D makes h a number without units, relative to the width of
the posterior, so that nothing has to be tuned. With more particles than dimensions, J > d + 1, D is the
covariance C of the cloud, which includes T, and

    h (d + 1)/J (φ_j − mean)

is added, which corrects for the fact that C depends on the particles it moves (affine invariant
Langevin dynamics). With fewer particles D is diagonal, the inverse of the prior's precision plus the
Fisher information, times T. The information is the mean over steps of the squared gradient at targets
drawn from the model itself, for one of the particles.

A step of plain Langevin dynamics makes a Gaussian law too wide by a fraction of h. Here the variance at
fixed ψ is right: with D the covariance the noise has h (2 − h) C, and with D diagonal it is
√(2 h D) (ξ + ξ') / 2, where ξ' is the ξ of the previous step (the scheme of Leimkuhler and Matthews),
which is right for every Gaussian, as long as it is stable.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from partialbayes._utils.checks import require_positive, require_positive_int
from partialbayes.algorithms._common import (
    as_rate,
    ascend,
    default_optimizer,
    posterior_of,
    restart_at,
    start_cloud,
)
from partialbayes.feynman_kac._gradients import Ascent, joint_gradient, own_gradients
from partialbayes.model._batch import overwrite_masked_rows
from partialbayes.types import Algorithm, Batch, Info, Model, Particles, PRNGKey, Psi, Scalar
from partialbayes.weights import uniform_log_weights

MEMORY = 100  # steps over which the information is averaged
POWER_ITERATIONS = 8


class ParticleGradientState(NamedTuple):
    """ψ with its optimizer, the cloud, the noise of the last step, and the Fisher information."""

    psi: Psi
    optimizer: optax.OptState
    particles: Particles
    noise: Float[Array, "particle dim"]
    information: Float[Array, " dim"]
    steps: Int[Array, ""]


def particle_gradient_descent(
    model: Model,
    *,
    num_particles: int = 100,
    step_size: Any = None,
    preconditioner: Literal["auto", "covariance", "diagonal", "none"] = "auto",
    temperature: float | Float[Array, ""] = 1.0,
    rows_per_particle: int | None = None,
    start: Literal["prior", "network"] = "prior",
    optimizer: optax.GradientTransformation | None = None,
) -> Algorithm:
    """Train ψ by the mean gradient of particles that follow Langevin dynamics in φ.

    The particles are samples of the posterior of φ at the current ψ, for a φ of any length. For
    particles without noise see `particle_ensemble`.

    Args:
        model: The model to train.
        num_particles: Number J of samples of φ.
        step_size: The step size h, a number or an Optax schedule. By default M / (10 N), and at most 1/d
            if the preconditioner is diagonal, which is stable for every Gaussian posterior; ten epochs
            are then one relaxation time. A cloud far from the posterior takes shorter steps. Without a
            preconditioner the default is 0.1 / N, in the units of φ.
        preconditioner: ``"covariance"`` of the cloud, which needs J > d + 1; ``"diagonal"``;
            ``"auto"`` for the first if there are enough particles and all see the same rows, else the
            second; or ``"none"``.
        temperature: The temperature T; the target is the posterior to the power 1/T.
        rows_per_particle: Number of rows of the batch that each particle sees, drawn separately; by
            default all particles see all rows. The noise of separate rows widens the cloud by about 5 %
            in variance at the default step size; a batch that all particles share moves its mean.
        start: ``"prior"`` to start from draws from the prior, or ``"network"`` from initial weights of
            the network, with a key per particle; those of a pretrained network are all equal.
        optimizer: Optax transformation for ψ; Adam at 0.01 by default.

    Returns:
        The algorithm, to pass to `fit`.

    Raises:
        ValueError: ``preconditioner`` is the covariance of too few particles.

    Example:
        >>> import partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 20, 1]), "layers/0/*", pb.gaussian())
        >>> algorithm = pb.algorithms.particle_gradient_descent(model, num_particles=50)
    """
    dim = model.split.dim
    _require_common(num_particles, rows_per_particle, start)
    if isinstance(temperature, int | float) and temperature == 0.0:
        raise ValueError(
            "temperature must be positive: without noise the particles are not samples of a posterior "
            "but an ensemble; use particle_ensemble."
        )
    require_positive("temperature", temperature)
    chosen = _choose(preconditioner, num_particles, dim, rows_per_particle is None)
    step_size = _step_size(step_size, dim, chosen)
    optimizer = default_optimizer(optimizer)

    def init(key: PRNGKey) -> ParticleGradientState:
        key_cloud, key_noise = jax.random.split(key)
        psi, particles = start_particles(model, key_cloud, num_particles, start)
        noise = jax.random.normal(key_noise, particles.values.shape, particles.values.dtype)
        unknown = jnp.zeros(dim, particles.values.dtype)
        steps = jnp.zeros((), jnp.int32)
        return ParticleGradientState(psi, optimizer.init(psi), particles, noise, unknown, steps)

    def step(
        key: PRNGKey, state: ParticleGradientState, batch: Batch
    ) -> tuple[ParticleGradientState, Info]:
        key_rows, key_noise, key_information = jax.random.split(key, 3)
        psi, values = state.psi, state.particles.values
        ascent, share = gradients(model, key_rows, values, psi, batch, rows_per_particle)
        noise = jax.random.normal(key_noise, values.shape, values.dtype)
        rate = step_size(state.steps, share, batch)
        information = state.information
        if chosen == "covariance":
            moved = _by_covariance(values, ascent.slopes.log_density, noise, rate, temperature)
        else:
            scale, gradient = jnp.ones_like(information), ascent.slopes.log_density
            if chosen == "diagonal":
                new = fisher_information(model, key_information, values, psi, batch)
                information += (new - information) / jnp.minimum(state.steps + 1, MEMORY)
                prior = 1.0 / model.prior_moments(psi).variance  # zero where there is none
                scale = 1.0 / jnp.maximum(information + prior, 1e-30)
                gradient = _shortened(gradient, scale, share)
            both = jnp.sqrt(2.0 * rate * temperature * scale)[None, :] * (noise + state.noise) / 2.0
            moved = values + (rate * scale)[None, :] * gradient + both
        new_psi, optimizer_state = ascend(optimizer, ascent.psi, state.optimizer, psi)
        particles = state.particles._replace(values=moved)
        num_data = batch.scale * batch.mask.sum()
        return (
            ParticleGradientState(
                new_psi, optimizer_state, particles, noise, information, state.steps + 1
            ),
            {"loss": -ascent.log_densities.mean() / num_data},
        )

    return Algorithm(model, init, step, posterior_of, restart=restart_at)


class ParticleEnsembleState(NamedTuple):
    """ψ and the members, each with its optimizer."""

    psi: Psi
    optimizer: optax.OptState
    particles: Particles
    particle_optimizer: optax.OptState


def particle_ensemble(
    model: Model,
    *,
    num_particles: int = 32,
    rows_per_particle: int | None = None,
    start: Literal["prior", "network"] = "network",
    optimizer: optax.GradientTransformation | None = None,
    particle_optimizer: optax.GradientTransformation | None = None,
) -> Algorithm:
    """Train an ensemble whose members share ψ, and each φ by its own gradient.

    The mean of the members' losses is minimized, not the loss of their mean. There is no noise, so
    members are not samples of the posterior: they differ by their starts and their batches. On a
    `rank_one` network, with factors, biases and head in φ, this is one network that predicts like many.

    Args:
        model: The model to train.
        num_particles: Number J of members.
        rows_per_particle: Number of rows of the batch that each member sees, drawn separately; by
            default all members see all rows. Members with separate rows differ more.
        start: ``"network"`` to start from initial weights of the network, with a key per member, or
            ``"prior"`` from draws from the prior.
        optimizer: Optax transformation for ψ; Adam at 0.01 by default.
        particle_optimizer: Optax transformation for the members' φ; Adam at 0.01 by default.

    Returns:
        The algorithm, to pass to `fit`.

    Example:
        >>> import partialbayes as pb
        >>> network = pb.networks.rank_one(
        ...     pb.mlp([4, 50, 50, 1]), "layers/*/kernel", signs="layers/0/kernel"
        ... )
        >>> random = ["factors/**", "**/bias", "network/layers/2/kernel"]
        >>> model = pb.partial_bnn(network, random, pb.gaussian(pb.learned(0.1)))
        >>> algorithm = pb.algorithms.particle_ensemble(model, num_particles=32, rows_per_particle=16)
    """
    _require_common(num_particles, rows_per_particle, start)
    optimizer = default_optimizer(optimizer)
    particle_optimizer = default_optimizer(particle_optimizer)

    def init(key: PRNGKey) -> ParticleEnsembleState:
        psi, particles = start_particles(model, key, num_particles, start)
        own = particle_optimizer.init(particles.values)
        return ParticleEnsembleState(psi, optimizer.init(psi), particles, own)

    def step(
        key: PRNGKey, state: ParticleEnsembleState, batch: Batch
    ) -> tuple[ParticleEnsembleState, Info]:
        values = state.particles.values
        ascent, _ = gradients(model, key, values, state.psi, batch, rows_per_particle)
        psi, optimizer_state = ascend(optimizer, ascent.psi, state.optimizer, state.psi)
        moved, own = ascend(
            particle_optimizer, ascent.slopes.log_density, state.particle_optimizer, values
        )
        particles = state.particles._replace(values=moved)
        num_data = batch.scale * batch.mask.sum()
        return (
            ParticleEnsembleState(psi, optimizer_state, particles, own),
            {"loss": -ascent.log_densities.mean() / num_data},
        )

    return Algorithm(model, init, step, posterior_of, restart=restart_at)


def start_particles(
    model: Model, key: PRNGKey, num_particles: int, start: Literal["prior", "network"]
) -> tuple[Psi, Particles]:
    """Return an initial ψ, and a cloud drawn from the prior or from the network's initial weights."""
    if start == "prior":
        return start_cloud(model, key, num_particles)
    key_psi, key_phi = jax.random.split(key)
    psi = model.init(key_psi).psi
    values = jax.vmap(lambda key: model.init(key).phi)(jax.random.split(key_phi, num_particles))
    return psi, Particles(values, uniform_log_weights(num_particles))


def gradients(
    model: Model,
    key: PRNGKey,
    values: Float[Array, "particle dim"],
    psi: Psi,
    batch: Batch,
    rows_per_particle: int | None,
) -> tuple[Ascent, Scalar]:
    """Return the gradients of all particles, and the fraction of the data that each of them saw."""
    if rows_per_particle is None:
        return joint_gradient(model, values, psi, batch), 1.0 / batch.scale
    ascent = own_gradients(model, key, values, psi, batch, rows_per_particle)
    num_rows = batch.mask.sum()
    return ascent, jnp.minimum(rows_per_particle, num_rows) / (num_rows * batch.scale)


def _by_covariance(
    values: Float[Array, "particle dim"],
    gradient: Float[Array, "particle dim"],
    noise: Float[Array, "particle dim"],
    rate: Scalar,
    temperature: Any,
) -> Float[Array, "particle dim"]:
    """Take a step of affine invariant Langevin dynamics, shorter if the cloud is too wide."""
    num_particles, dim = values.shape
    anomalies = values - values.mean(axis=0, keepdims=True)
    covariance = anomalies.T @ anomalies / num_particles
    # The largest eigenvalue of P C: 1 at the posterior, large where the cloud is far wider than it. The
    # particles' gradients differ by −P (φ_j − φ_k), so P itself is not needed.
    steepness = -(gradient - gradient.mean(axis=0, keepdims=True)) / num_particles

    def iterate(_: Any, vector: Array) -> Array:
        image = steepness.T @ (anomalies @ vector)
        return image / jnp.maximum(jnp.linalg.norm(image), 1e-30)

    start = jnp.asarray(np.random.default_rng(0).normal(size=dim), values.dtype)
    vector = jax.lax.fori_loop(0, POWER_ITERATIONS, iterate, start / jnp.linalg.norm(start))
    largest = jnp.linalg.norm(steepness.T @ (anomalies @ vector)) / temperature
    rate = rate / jnp.maximum(1.0, largest / 2.0)
    # A tiny jitter, so that a cloud that has lost a direction still has a factor.
    jitter = 1e-6 * jnp.diag(covariance) + 1e-30
    factor = jnp.linalg.cholesky(covariance + jnp.diag(jitter))
    # The covariance of a settled cloud includes the temperature.
    drift = gradient @ covariance / temperature + (dim + 1) / num_particles * anomalies
    return values + rate * drift + jnp.sqrt(rate * (2.0 - rate)) * noise @ factor.T


def _shortened(
    gradient: Float[Array, "particle dim"], scale: Float[Array, " dim"], share: Scalar
) -> Float[Array, "particle dim"]:
    """Limit each gradient to ten times its usual length."""
    length = jnp.sqrt((scale[None, :] * gradient**2).sum(axis=1, keepdims=True))
    usual = jnp.sqrt(gradient.shape[1] / share)
    return gradient * jnp.minimum(1.0, 10.0 * usual / jnp.maximum(length, 1e-30))


def fisher_information(
    model: Model, key: PRNGKey, values: Float[Array, "particle dim"], psi: Psi, batch: Batch
) -> Float[Array, " dim"]:
    """Estimate the diagonal of the Fisher information of φ without bias, at one of the particles.

    The gradient of a batch whose targets are drawn from the model has mean zero, row by row, so the mean
    of its square is the information of the batch.
    """
    key_particle, key_targets = jax.random.split(key)
    phi = values[jax.random.randint(key_particle, (), 0, values.shape[0])]
    filled = overwrite_masked_rows(batch)
    drawn = model.likelihood.sample(key_targets, model.parameters(phi, psi, filled.inputs))
    drawn = jax.tree.map(lambda new, old: new.astype(old.dtype), drawn, filled.targets)
    imagined = jax.lax.stop_gradient(batch._replace(targets=drawn))
    gradient = jax.grad(lambda phi: model.log_likelihood(phi, psi, imagined).sum())(phi)
    return batch.scale * gradient**2


def _step_size(given: Any, dim: int, preconditioner: str) -> Callable[..., Scalar]:
    """Return ``(steps, fraction of the data in a gradient, batch) -> h``."""
    if given is not None or preconditioner == "none":
        rate = as_rate(given)
        return lambda steps, share, batch: rate(steps, batch)
    limit = 1.0 if preconditioner == "covariance" else 1.0 / min(dim, 1000)
    return lambda steps, share, batch: jnp.minimum(0.1 * share, limit)


def _choose(preconditioner: Any, num_particles: int, dim: int, batches_are_shared: bool) -> str:
    if preconditioner not in ("auto", "covariance", "diagonal", "none"):
        raise ValueError(
            f"preconditioner must be 'auto', 'covariance', 'diagonal' or 'none', not {preconditioner!r}."
        )
    enough = num_particles > dim + 1
    if preconditioner == "covariance" and not enough:
        raise ValueError(
            f"preconditioner='covariance' needs more than {dim + 1} particles for a φ of {dim} numbers, "
            f"not {num_particles}; use 'diagonal', or more particles."
        )
    if preconditioner == "auto":
        # The noise of separate batches hides how much too wide a cloud is.
        return "covariance" if enough and batches_are_shared else "diagonal"
    return str(preconditioner)


def _require_common(num_particles: Any, rows_per_particle: Any, start: Any) -> None:
    require_positive_int("num_particles", num_particles, "for example num_particles=100.")
    if rows_per_particle is not None:
        require_positive_int("rows_per_particle", rows_per_particle, "or None for all of the batch.")
    if start not in ("prior", "network"):
        raise ValueError(f"start must be 'prior' or 'network', not {start!r}.")

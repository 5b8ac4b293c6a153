"""Laplace approximation of p(φ | y_1:N; ψ̂): the Gaussian at its mode with its curvature.

    φ ~ N(φ*, P⁻¹),    P = H − ∇² log π(φ*),
    log Z ≈ log p(y | φ*) + log π(φ*) + ½ d log 2π − ½ log det P.

φ* is the mode found by L-BFGS from the best particle of the first stage, and H the curvature of
−log p(y | φ). By default H is the generalized Gauss–Newton matrix Jᵀ (−∇²_f log p) J, which is the exact
Hessian if the outputs f are linear in φ, and never negative if log p is concave in f. It may also be
the exact Hessian.

In a direction in which P is below the prior's own precision (one over its variance), or negative, the
prior's variance is used; the report counts these directions.

If the outputs are far from linear in φ (a hidden layer, few data), draws from this Gaussian lie outside
the curved region of the posterior, and predict worse than the mode. Use it on a last layer, or use a
sampler of chains. If the Gaussian is not far off, ``num_moves`` corrects the draws: HMC moves each of
them, in the coordinates in which the Gaussian is N(0, I).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

from partialbayes._utils.checks import require_positive_int
from partialbayes._utils.jaxprs import partially_evaluate
from partialbayes.results import LaplaceReport
from partialbayes.samplers._target import log_joint, prior_scale
from partialbayes.samplers._whitened import hamiltonian_moves
from partialbayes.types import (
    Batch,
    LogDensity,
    Model,
    Particles,
    Phi,
    Posterior,
    PRNGKey,
    Psi,
    Report,
    Sampler,
    Scalar,
)
from partialbayes.weights import uniform_log_weights

Product = Callable[[Phi], Phi]

_CHUNK = 128  # columns of the curvature at a time


def laplace(
    *,
    covariance: str = "full",
    curvature: str = "gauss-newton",
    num_particles: int = 1000,
    num_steps: int = 200,
    num_moves: int = 0,
) -> Sampler:
    """Draw φ from the Gaussian at the mode of its posterior.

    The report is a `LaplaceReport`; its ``gradient_norm`` is small if a mode was found.

    Args:
        covariance: "full", or "diagonal" to keep only the diagonal of the precision.
        curvature: "gauss-newton" or "hessian", of the negative log-likelihood.
        num_particles: Number of draws in the posterior.
        num_steps: Number of L-BFGS steps toward the mode, which stochastic training does not reach.
        num_moves: Number of HMC moves that take every draw from the Gaussian toward the posterior
            itself; 10 are enough if the outputs are linear in φ. With 0 the draws are the Gaussian's.

    Returns:
        The sampler, to pass to `two_stage` or `second_stage`.

    Example:
        >>> import jax.numpy as jnp, partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 5, 1]), "layers/1/*", pb.gaussian())
        >>> x = jnp.linspace(-1.0, 1.0, 8)[:, None]
        >>> last_layer = pb.two_stage(pb.map_estimate(model), pb.samplers.laplace(num_particles=50))
        >>> trained = pb.fit(last_layer, (x, x), epochs=2)
        >>> bool(jnp.isfinite(trained.report.log_evidence))
        True
    """
    products = {"gauss-newton": gauss_newton, "hessian": exact_hessian}
    if curvature not in products:
        raise ValueError(f"curvature must be 'gauss-newton' or 'hessian', not {curvature!r}.")
    if covariance not in ("full", "diagonal"):
        raise ValueError(f"covariance must be 'full' or 'diagonal', not {covariance!r}.")
    require_positive_int("num_particles", num_particles, "for example num_particles=1000.")
    require_positive_int("num_steps", num_steps, "for example num_steps=200.")
    if num_moves:
        require_positive_int("num_moves", num_moves, "for example num_moves=10, or 0 for none.")

    def sampler(
        key: PRNGKey, model: Model, posterior: Posterior, batch: Batch
    ) -> tuple[Posterior, Report]:
        psi = posterior.psi
        log_density = log_joint(model, psi, batch)
        mode = find_mode(log_density, posterior.particles.values, num_steps)
        height, gradient = jax.value_and_grad(log_density)(mode)

        likelihood_product = products[curvature](model, psi, batch, mode)
        prior_product = _hessian_product(lambda phi: -model.log_prior(phi, psi), mode)
        # In units of the prior's standard deviations the prior's own precision is one.
        scale = prior_scale(model, psi)

        def product(vector: Phi) -> Phi:
            return scale * (likelihood_product(scale * vector) + prior_product(scale * vector))

        key_noise, key_moves = jax.random.split(key) if num_moves else (key, key)
        noise = jax.random.normal(key_noise, (num_particles, mode.shape[0]), mode.dtype)
        if covariance == "full":
            precision = _columns(product, mode)
            eigenvalues, directions = jnp.linalg.eigh(0.5 * (precision + precision.T))
        else:
            eigenvalues, directions = _diagonal(product, mode), None
        kept = jnp.maximum(eigenvalues, 1.0)

        def from_noise(noise: Float[Array, "*draw dim"]) -> Float[Array, "*draw dim"]:
            offsets = noise / jnp.sqrt(kept)
            offsets = offsets if directions is None else offsets @ directions.T
            return mode + scale * offsets

        if num_moves:
            noise, acceptance = hamiltonian_moves(
                key_moves, lambda one: log_density(from_noise(one)), noise, num_moves
            )
        else:
            acceptance = jnp.ones((), mode.dtype)
        particles = Particles(jax.vmap(from_noise)(noise), uniform_log_weights(num_particles))
        log_determinant = jnp.sum(jnp.log(kept)) - 2.0 * jnp.sum(jnp.log(scale))
        dim = mode.shape[0]
        report = LaplaceReport(
            log_evidence=height + 0.5 * dim * jnp.log(2.0 * jnp.pi) - 0.5 * log_determinant,
            # Rounding may put a direction without any information from the data just below one.
            clipped=jnp.sum(eigenvalues < 1.0 - 1e-3),
            gradient_norm=jnp.linalg.norm(scale * gradient),
            acceptance=acceptance,
        )
        return Posterior(psi, particles), report

    return sampler


def find_mode(
    log_density: LogDensity, starts: Float[Array, "particle dim"], num_steps: int
) -> Float[Array, " dim"]:
    """Run L-BFGS from the best of the starts, and return the best point it evaluated."""
    heights = jax.vmap(log_density)(starts)
    start = starts[jnp.argmax(jnp.where(jnp.isnan(heights), -jnp.inf, heights))]

    def loss(phi: Phi) -> Scalar:
        return -log_density(phi)

    solver = optax.lbfgs()
    value_and_gradient = optax.value_and_grad_from_state(loss)

    def step(_: Array, carry: tuple[Phi, optax.OptState, Phi, Scalar]) -> tuple[object, ...]:
        phi, state, best, lowest = carry
        value, gradient = value_and_gradient(phi, state=state)
        better = value < lowest
        best, lowest = jnp.where(better, phi, best), jnp.where(better, value, lowest)
        updates, state = solver.update(gradient, state, phi, value=value, grad=gradient, value_fn=loss)
        return optax.apply_updates(phi, updates), state, best, lowest

    carry = (start, solver.init(start), start, loss(start))
    last, _, best, lowest = jax.lax.fori_loop(0, num_steps, step, carry)
    return jnp.where(loss(last) < lowest, last, best)


def gauss_newton(model: Model, psi: Psi, batch: Batch, phi: Phi) -> Product:
    """Return v ↦ Jᵀ (−∇²_f log p) J v, for the outputs f and the likelihood's parameters in φ."""

    def inner(phi: Phi) -> tuple[PyTree, PyTree]:
        return model.outputs(phi, psi, batch.inputs), model.split.latents(phi)

    def loss(point: tuple[PyTree, PyTree]) -> Scalar:
        outputs, latents = point
        parameters = model.likelihood.parameters(outputs, psi.likelihood, latents)
        log_densities = model.likelihood.log_density(parameters, batch.targets)
        return -jnp.where(batch.mask, log_densities, 0.0).sum()

    point, push = jax.linearize(partially_evaluate(inner, phi), phi)
    pull = jax.linear_transpose(push, phi)
    inner_product = _hessian_product(loss, point)
    return lambda vector: pull(inner_product(push(vector)))[0]


def exact_hessian(model: Model, psi: Psi, batch: Batch, phi: Phi) -> Product:
    """Return v ↦ (−∇²_φ log p) v."""
    return _hessian_product(
        partially_evaluate(lambda phi: -model.log_likelihood(phi, psi, batch).sum(), phi), phi
    )


def _hessian_product(function: Callable[[Any], Scalar], point: Any) -> Callable[[Any], Any]:
    return lambda vector: jax.jvp(jax.grad(function), (point,), (vector,))[1]


def _columns(product: Product, phi: Phi) -> Float[Array, "dim dim"]:
    basis = jnp.eye(phi.shape[0], dtype=phi.dtype)
    return jax.lax.map(product, basis, batch_size=_CHUNK)


def _diagonal(product: Product, phi: Phi) -> Float[Array, " dim"]:
    def entry(place: Array) -> Scalar:
        unit = jnp.zeros_like(phi).at[place].set(1.0)
        return product(unit)[place]

    return jax.lax.map(entry, jnp.arange(phi.shape[0]), batch_size=_CHUNK)

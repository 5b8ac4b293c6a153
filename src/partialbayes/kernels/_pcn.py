"""Preconditioned Crank–Nicolson (pCN): a proposal that leaves a normal prior N(m, s²) invariant.

Propose m + sqrt(1 − v) (φ − m) + sqrt(v) s ε; accept by the ratio of p / π, the target without the
prior. Unlike that of a random walk, its acceptance does not fall with the dimension of φ.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree

from partialbayes._utils.checks import require_positive, require_positive_int
from partialbayes.kernels._from_mcmc import advance
from partialbayes.types import (
    Kernel,
    LogDensity,
    Moments,
    Moved,
    ParticleKernel,
    Particles,
    Phi,
    PRNGKey,
    Scalar,
    Target,
)


class _State(NamedTuple):
    position: Phi
    log_ratio: Scalar  # log p / π, without constants


class _Acceptance(NamedTuple):
    acceptance_rate: Scalar


def pcn(variance: float | Float[Array, ""], num_steps: int = 1) -> Kernel:
    """Move particles by preconditioned Crank–Nicolson, which leaves the target invariant.

    The prior must be normal.

    Args:
        variance: Fraction of the prior's variance that a proposal renews, in (0, 1]; 1 proposes
            independent draws from the prior.
        num_steps: Number of steps per move.

    Returns:
        The kernel.

    Raises:
        ValueError: In the method that uses the kernel: the prior is not normal.

    Example:
        >>> import partialbayes as pb
        >>> kernel = pb.kernels.pcn(0.1, num_steps=10)
    """
    require_positive("variance", variance)
    if not isinstance(variance, jax.core.Tracer) and np.any(np.asarray(variance) > 1.0):
        raise ValueError(
            f"variance of pcn must be at most 1, not {variance!r}: it is the share of the prior's "
            "variance that a proposal renews; for example pcn(0.1)."
        )
    require_positive_int("num_steps", num_steps, "how often each particle moves.")

    def step(key: PRNGKey, particles: Particles, target: Target, state: PyTree) -> Moved:
        kernel = _crank_nicolson(target.prior, variance)
        values, acceptance = advance(key, particles.values, kernel, target.log_density, num_steps)
        return Moved(values, jnp.zeros_like(particles.log_weights), acceptance, state)

    return Kernel(step, needs_normal_prior=True)


def _crank_nicolson(prior: Moments, variance: float | Float[Array, ""]) -> ParticleKernel:
    def init(phi: Phi, log_density: LogDensity) -> _State:
        log_prior = -0.5 * jnp.sum(jnp.square(phi - prior.mean) / prior.variance)
        return _State(phi, log_density(phi) - log_prior)

    def step(key: PRNGKey, state: _State, log_density: LogDensity) -> tuple[_State, Any]:
        key_propose, key_accept = jax.random.split(key)
        phi = state.position
        renewed = jnp.asarray(variance, phi.dtype)
        noise = jnp.sqrt(prior.variance) * jax.random.normal(key_propose, phi.shape, phi.dtype)
        kept = jnp.sqrt(1.0 - renewed) * (phi - prior.mean)
        proposal = init(prior.mean + kept + jnp.sqrt(renewed) * noise, log_density)
        log_probability = jnp.minimum(proposal.log_ratio - state.log_ratio, 0.0)
        # A proposal at which the density is NaN is rejected.
        probability = jnp.nan_to_num(jnp.exp(log_probability), nan=0.0)
        accept: Bool[Array, ""] = jax.random.bernoulli(key_accept, probability)
        state = jax.tree.map(lambda new, old: jnp.where(accept, new, old), proposal, state)
        return state, _Acceptance(probability)

    return ParticleKernel(init, step)

"""Langevin kernels: unadjusted, with a Metropolis correction (MALA), and guided by the batch.

All propose φ' = φ + (v/2) ∇ log p(φ) + N(0, v I). The unadjusted kernel keeps the proposal; MALA accepts
it by the ratio of densities and of proposals. The guided kernel uses the gradient
g = ∇ log p(batch | φ). Its particles should follow h = N(φ, v I), but are proposed from

    q = N(φ + (v/2) g, v I),

and their weights are corrected by log h − log q = (v/8) |g|² − ½ g·(φ' − φ). The weighted particles have
the law of a random walk of variance v, but lie where the batch will give them weight.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from partialbayes._utils.checks import require_positive
from partialbayes.feynman_kac._random import antithetic
from partialbayes.kernels._from_mcmc import from_mcmc
from partialbayes.types import Kernel, LogDensity, Moved, ParticleKernel, Particles, Phi, PRNGKey, Target


class _Position(NamedTuple):
    position: Phi


def unadjusted_langevin(
    variance: float | Float[Array, ""] | Float[Array, " dim"], num_steps: int = 1
) -> Kernel:
    """Move particles by Langevin steps along the target's gradient, without rejection.

    The kernel leaves the target invariant only in the limit of a small variance: on N(0, s²) it settles
    at the variance s² / (1 − v / (4 s²)).

    Args:
        variance: Variance v of the noise; one number, or one per weight. The drift is v/2 times the
            gradient.
        num_steps: Number of steps per move.

    Returns:
        The kernel, to pass to `ohsmc`.

    Example:
        >>> import partialbayes as pb
        >>> kernel = pb.kernels.unadjusted_langevin(1e-4, num_steps=5)
    """
    require_positive("variance", variance)

    def init(phi: Phi, log_density: LogDensity) -> _Position:
        return _Position(phi)

    def step(key: PRNGKey, state: _Position, log_density: LogDensity) -> tuple[_Position, tuple[()]]:
        phi = state.position
        spread = jnp.broadcast_to(jnp.asarray(variance, phi.dtype), phi.shape)
        noise = jax.random.normal(key, phi.shape, phi.dtype)
        drift = 0.5 * spread * jax.grad(log_density)(phi)
        return _Position(phi + drift + jnp.sqrt(spread) * noise), ()

    return from_mcmc(ParticleKernel(init, step), num_steps)._replace(keeps_target=False)


def guided_langevin(variance: float | Float[Array, ""] | Float[Array, " dim"]) -> Kernel:
    """Move particles by a random walk along the batch's gradient, with its importance correction.

    Args:
        variance: Variance (not standard deviation) of the random walk it represents; one number, or one
            per weight.

    Returns:
        The kernel, to pass to `ohsmc`.

    Example:
        >>> import partialbayes as pb
        >>> kernel = pb.kernels.guided_langevin(0.01)
    """
    require_positive("variance", variance)

    def step(key: PRNGKey, particles: Particles, target: Target, state: PyTree) -> Moved:
        values = particles.values
        spread = jnp.broadcast_to(jnp.asarray(variance, values.dtype), values.shape[1:])[None, :]
        slope = jax.vmap(jax.grad(target.log_potential))(values)
        noise = antithetic(key, values.shape, values.dtype)
        shift = 0.5 * spread * slope + jnp.sqrt(spread) * noise
        log_correction = jnp.sum(spread * jnp.square(slope) / 8.0 - 0.5 * slope * shift, axis=1)
        return Moved(values + shift, log_correction, jnp.ones((), values.dtype), state)

    return Kernel(step, keeps_target=False)


def mala(variance: float | Float[Array, ""], num_steps: int = 1) -> Kernel:
    """Move particles by Langevin steps with a Metropolis correction, which leave the target invariant.

    Args:
        variance: Variance v of the proposal's noise, one number. The drift is v/2 times the
            gradient.
        num_steps: Number of steps per move.

    Returns:
        The kernel.

    Example:
        >>> import partialbayes as pb
        >>> kernel = pb.kernels.mala(0.01, num_steps=5)
    """
    require_positive("variance", variance)

    def init(phi: Phi, log_density: LogDensity) -> Any:
        import blackjax

        return blackjax.mala.init(phi, log_density)

    def step(key: PRNGKey, state: Any, log_density: LogDensity) -> tuple[Any, Any]:
        import blackjax

        # BlackJAX's step size ε gives the drift ε ∇ and the noise variance 2ε.
        half = 0.5 * jnp.asarray(variance, state.position.dtype)
        return blackjax.mala.build_kernel()(key, state, log_density, half)

    return from_mcmc(ParticleKernel(init, step), num_steps)

"""Hamiltonian Monte Carlo on p(φ | y_1:N; ψ̂), by BlackJAX.

A draw refreshes the momentum, p ~ N(0, M), follows the Hamiltonian −log p(φ, y) + ½ pᵀ M⁻¹ p for a
number of leapfrog steps, and accepts the end point by Metropolis.

Trajectories of one length resonate: where many weights know little but their prior they turn at one
speed, and after a full period all are back where they started. A tuned step size seeks this out,
since such a draw is always accepted; it is therefore varied from draw to draw by up to 30 %.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax
from jaxtyping import Array, Float

from partialbayes._utils.checks import require_positive_int
from partialbayes.samplers._chains import Adapted, ChainLength, chain_sampler
from partialbayes.types import LogDensity, PRNGKey, Sampler


def hmc(
    *,
    step_size: float | Float[Array, ""] | Adapted = 0.01,
    num_leapfrog_steps: int = 100,
    num_chains: int = 4,
    num_warmup: int = 2000,
    num_draws: int = 1000,
    num_particles: int = 1000,
    jitter: float | Float[Array, ""] = 0.1,
) -> Sampler:
    """Sample φ by HMC; the defaults are the paper's settings, in four chains.

    The report holds ``r_hat`` and ``ess`` of each weight, ``acceptance`` and ``step_size`` of each
    chain, and ``divergences``, the number of kept draws whose energy error blew up.

    Args:
        step_size: Of the leapfrog integrator, with unit mass; or ``adapted()`` to tune it, and a
            diagonal mass matrix, during burn-in. Fewer leapfrog steps then do, say 10.
        num_leapfrog_steps: Leapfrog steps per draw.
        num_chains: Chains, all in one program.
        num_warmup: Draws of each chain to throw away.
        num_draws: Draws of each chain to keep.
        num_particles: How many of the kept draws, evenly spaced, make the posterior.
        jitter: Chains start at particles of the first stage plus noise of this many standard
            deviations of the prior; 0 for the particles themselves.

    Raises:
        ValueError: ``step_size`` is not positive, or a count not a whole number of at least 1.

    Example:
        >>> import jax.numpy as jnp, partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 5, 1]), "layers/0/*", pb.gaussian())
        >>> x = jnp.linspace(-1.0, 1.0, 8)[:, None]
        >>> sampler = pb.samplers.hmc(
        ...     num_leapfrog_steps=5, num_warmup=10, num_draws=10, num_particles=20
        ... )
        >>> map_hmc = pb.two_stage(pb.map_estimate(model), sampler)
        >>> trained = pb.fit(map_hmc, (x, x), epochs=2)
        >>> trained.posterior.particles.values.shape, trained.report.r_hat.shape
        ((20, 10), (10,))
    """
    require_positive_int("num_leapfrog_steps", num_leapfrog_steps, "for example num_leapfrog_steps=100.")
    length = ChainLength(num_chains, num_warmup, num_draws, num_particles)
    load_family = _varied_hmc if isinstance(step_size, Adapted) else _plain_hmc
    return chain_sampler(
        load_family, {"num_integration_steps": num_leapfrog_steps}, step_size, length, jitter
    )


def _plain_hmc() -> Any:
    import blackjax

    return blackjax.hmc


def _varied_hmc() -> Any:
    import blackjax

    def build_kernel(*integrator: Any) -> Any:
        kernel = blackjax.hmc.build_kernel(*integrator)

        def step(
            key: PRNGKey,
            state: Any,
            log_density: LogDensity,
            step_size: Any,
            *rest: Any,
            **more: Any,
        ) -> Any:
            key_factor, key_draw = jax.random.split(key)
            factor = jax.random.uniform(key_factor, minval=0.7, maxval=1.3)
            return kernel(key_draw, state, log_density, factor * step_size, *rest, **more)

        return step

    return SimpleNamespace(init=blackjax.hmc.init, build_kernel=build_kernel)

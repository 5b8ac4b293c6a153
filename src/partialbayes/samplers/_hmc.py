"""Hamiltonian Monte Carlo on p(φ | y_1:N; ψ̂), by BlackJAX.

A draw refreshes the momentum, p ~ N(0, M), follows the Hamiltonian −log p(φ, y) + ½ pᵀ M⁻¹ p for a
number of leapfrog steps, and accepts the end point by Metropolis.

Trajectories of one length resonate: weights about which the data contain little all turn at one speed,
and after a full period all are back where they started. Step-size adaptation favors such a period,
since the draw is always accepted. The adapted step size is therefore varied from draw to draw by up to
30 %.
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

    The report is a `ChainReport`.

    Args:
        step_size: The step size of the leapfrog integrator, with unit mass; or ``adapted()`` to tune it
            and a diagonal mass matrix during warm-up. Fewer leapfrog steps are then enough, such as 10.
        num_leapfrog_steps: Number of leapfrog steps per draw.
        num_chains: Number of chains, all in one program.
        num_warmup: Number of draws of each chain to discard.
        num_draws: Number of draws of each chain to keep.
        num_particles: Number of kept draws, evenly spaced, in the posterior.
        jitter: Noise, in standard deviations of the prior, that is added to the particles of the first
            stage at which chains start; 0 for none.

    Returns:
        The sampler, to pass to `two_stage` or `second_stage`.

    Example:
        >>> import jax.numpy as jnp, partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 5, 1]), "layers/0/*", pb.gaussian())
        >>> x = jnp.linspace(-1.0, 1.0, 8)[:, None]
        >>> short = pb.samplers.hmc(num_leapfrog_steps=5, num_warmup=10, num_draws=10, num_particles=20)
        >>> trained = pb.fit(pb.two_stage(pb.map_estimate(model), short), (x, x), epochs=2)
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
            key: PRNGKey, state: Any, log_density: LogDensity, step_size: Any, *rest: Any, **more: Any
        ) -> Any:
            key_factor, key_draw = jax.random.split(key)
            factor = jax.random.uniform(key_factor, minval=0.7, maxval=1.3)
            return kernel(key_draw, state, log_density, factor * step_size, *rest, **more)

        return step

    return SimpleNamespace(init=blackjax.hmc.init, build_kernel=build_kernel)

"""Microcanonical Langevin Monte Carlo on p(φ | y_1:N; ψ̂), by BlackJAX.

The gradient bends the path of a particle of constant speed, u' = −(I − u uᵀ) ∇U / (d − 1), φ' = u with
|u| = 1, so that the time it spends in a region is proportional to the posterior. Noise turns its
direction over a length L. No step is rejected, which makes it one of the cheapest samplers of many
weights. The error of a step is not corrected but kept small: warm-up finds the step size at which the
energy varies by a given small amount per weight, a diagonal mass, and L from the autocorrelation.

Chains that start at the members of a deep ensemble make a Bayesian deep ensemble:
``two_stage(ensemble(map_estimate(model), 8), mclmc(num_chains=1))``, with all weights in φ.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from partialbayes._utils.checks import require_positive, require_positive_int
from partialbayes.samplers._chains import (
    ChainLength,
    chain_report,
    evenly_spaced,
    require_length,
    starting_points,
)
from partialbayes.samplers._target import log_joint, prior_scale
from partialbayes.types import Batch, Model, Posterior, PRNGKey, Report, Sampler

# Fractions of the warm-up for the step size, for the mass (and a third as much again), and for L.
_SHARES = (0.4, 0.24, 0.28)


def mclmc(
    *,
    num_chains: int = 4,
    num_warmup: int = 5000,
    num_draws: int = 1000,
    steps_per_draw: int = 10,
    num_particles: int = 1000,
    energy_variance: float | Float[Array, ""] = 5e-4,
    jitter: float | Float[Array, ""] = 0.0,
) -> Sampler:
    """Sample φ, up to all the weights, by microcanonical Langevin dynamics tuned during warm-up.

    The report is a `ChainReport`. Its ``acceptance`` is the fraction of steps that did not fail, and
    ``divergences`` the number of kept draws with a failed step.

    Args:
        num_chains: Number of chains, all in one program.
        num_warmup: Number of steps of each chain to tune on and discard.
        num_draws: Number of draws of each chain to keep.
        steps_per_draw: Number of steps between draws, two gradients each.
        num_particles: Number of kept draws, evenly spaced, in the posterior.
        energy_variance: The variance of the energy to allow per weight and step. A smaller one gives
            smaller steps and a smaller bias.
        jitter: Noise, in standard deviations of the prior, that is added to the particles of the first
            stage at which chains start.

    Returns:
        The sampler, to pass to `two_stage` or `second_stage`.

    Raises:
        ValueError: At the first step: φ has a single weight.

    Example:
        >>> import partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 20, 1]), "**", pb.gaussian())
        >>> start = pb.ensemble(pb.map_estimate(model), 8)
        >>> bayesian_deep_ensemble = pb.two_stage(start, pb.samplers.mclmc(num_chains=1))
    """
    length = ChainLength(num_chains, num_warmup, num_draws, num_particles)
    require_length(length, jitter)
    require_positive_int("steps_per_draw", steps_per_draw, "for example steps_per_draw=10.")
    require_positive("energy_variance", energy_variance)
    if num_warmup < 100:
        raise ValueError(f"num_warmup must be at least 100 steps to tune on, not {num_warmup}.")

    def sampler(
        key: PRNGKey, model: Model, posterior: Posterior, batch: Batch
    ) -> tuple[Posterior, Report]:
        import blackjax
        from blackjax.adaptation.mclmc_adaptation import MCLMCAdaptationState

        dim = model.split.dim
        if dim < 2:
            raise ValueError("mclmc needs a φ of at least two weights; use nuts() for one.")
        key_start, key_burn_in, key_draws = jax.random.split(key, 3)
        scale = prior_scale(model, posterior.psi)
        log_density = log_joint(model, posterior.psi, batch)
        starts = starting_points(key_start, model, posterior, num_chains, jitter)
        kernel = blackjax.mclmc.build_kernel()
        first, second, third = _SHARES

        def tune(key: PRNGKey, start: Array) -> tuple[Any, Any]:
            key_momentum, key_tune = jax.random.split(key)
            state = blackjax.mclmc.init(start, log_density, key_momentum)
            root = jnp.sqrt(jnp.asarray(dim, start.dtype))
            state, tuned, _ = blackjax.mclmc_find_L_and_step_size(
                mclmc_kernel=kernel,
                num_steps=num_warmup,
                state=state,
                rng_key=key_tune,
                logdensity_fn=log_density,
                frac_tune1=first,
                frac_tune2=second,
                frac_tune3=third,
                desired_energy_var=energy_variance,
                params=MCLMCAdaptationState(root, 0.05 * root, scale**2),
            )
            return state, tuned

        states, tuned = jax.vmap(tune)(jax.random.split(key_burn_in, num_chains), starts)

        def step(carry: tuple[Any, Array], key: PRNGKey) -> tuple[tuple[Any, Array], None]:
            states, fine = carry
            keys = jax.random.split(key, num_chains)
            states, info = jax.vmap(
                lambda key, state, own: kernel(
                    key, state, log_density, own.inverse_mass_matrix, own.L, own.step_size
                )
            )(keys, states, tuned)
            return (states, fine + info.nonans), None

        def draw(states: Any, key: PRNGKey) -> tuple[Any, tuple[Array, Array, Array]]:
            none_yet = jnp.zeros(num_chains, jnp.int32)
            (states, fine), _ = jax.lax.scan(
                step, (states, none_yet), jax.random.split(key, steps_per_draw)
            )
            share = fine / steps_per_draw
            return states, (states.position, share, fine < steps_per_draw)

        _, (draws, fine, failed) = jax.lax.scan(draw, states, jax.random.split(key_draws, num_draws))
        chains = jnp.swapaxes(draws, 0, 1)
        report = chain_report(chains, fine, failed, tuned.step_size)
        return Posterior(posterior.psi, evenly_spaced(chains, num_particles)), report

    return sampler

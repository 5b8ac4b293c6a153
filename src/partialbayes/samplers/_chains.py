"""Run many Markov chains on p(φ | y_1:N; ψ̂) in one program, with R-hat and effective sample size.

The kernels are BlackJAX's. One scan over draws, mapped over chains inside, runs the chains side by
side, so several chains cost little more than one if a single chain does not fill the machine. The
layers before the stochastic ones run once, before the scan.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from partialbayes._utils.checks import require_positive, require_positive_int, require_probability
from partialbayes.results import ChainReport
from partialbayes.samplers._target import log_joint, prior_scale
from partialbayes.types import Batch, Model, Particles, Phi, Posterior, PRNGKey, Report, Sampler, Scalar
from partialbayes.weights import uniform_log_weights


class Adapted(NamedTuple):
    """A step size and a diagonal mass matrix to be tuned during warm-up."""

    target_acceptance: Any


def adapted(target_acceptance: float | Float[Array, ""] = 0.8) -> Adapted:
    """Request window adaptation: warm-up tunes the step size and a diagonal mass matrix.

    Args:
        target_acceptance: The mean acceptance probability to aim for, in (0, 1).

    Returns:
        The value to pass as ``step_size``.

    Example:
        >>> import partialbayes as pb
        >>> sampler = pb.samplers.hmc(step_size=pb.samplers.adapted(0.9), num_leapfrog_steps=10)
    """
    require_probability("target_acceptance", target_acceptance, "for example adapted(0.8).")
    return Adapted(target_acceptance)


class ChainLength(NamedTuple):
    """The number and length of the chains.

    Attributes:
        chains: Number of chains, run side by side.
        num_warmup: Number of draws of each chain that are discarded, and used for tuning if the step
            size is adapted.
        draws: Number of draws of each chain that are kept.
        particles: Number of kept draws, evenly spaced, in the posterior.
    """

    chains: int
    num_warmup: int
    draws: int
    particles: int


def chain_sampler(
    load_family: Callable[[], Any],
    parameters: dict[str, Any],
    step_size: float | Float[Array, ""] | Adapted,
    length: ChainLength,
    jitter: float | Float[Array, ""],
) -> Sampler:
    """Make a sampler that runs a kernel of BlackJAX's Hamiltonian family.

    Args:
        load_family: Returns the kernel, such as ``blackjax.nuts``. It is called late because importing
            BlackJAX starts XLA.
        parameters: The arguments of the kernel besides step size and mass.
        step_size: The step size of the leapfrog integrator, with unit mass; or `adapted`.
        length: The number and length of the chains.
        jitter: Spread of the starting points, in standard deviations of the prior.

    Returns:
        The sampler.
    """
    if not isinstance(step_size, Adapted):
        require_positive("step_size", step_size)
    require_length(length, jitter)

    def sampler(
        key: PRNGKey, model: Model, posterior: Posterior, batch: Batch
    ) -> tuple[Posterior, Report]:
        import blackjax

        family = load_family()
        key_start, key_burn_in, key_draws = jax.random.split(key, 3)
        log_density = log_joint(model, posterior.psi, batch)
        starts = starting_points(key_start, model, posterior, length.chains, jitter)

        if isinstance(step_size, Adapted):
            num_warmup = blackjax.window_adaptation(
                family,
                log_density,
                target_acceptance_rate=step_size.target_acceptance,
                adaptation_info_fn=lambda *_: None,
                **parameters,
            )
            keys = jax.random.split(key_burn_in, length.chains)
            (states, tuned), _ = jax.vmap(
                lambda key, start: num_warmup.run(key, start, length.num_warmup)
            )(keys, starts)
            steps, inverse_mass = tuned["step_size"], tuned["inverse_mass_matrix"]
        else:
            states = jax.vmap(lambda start: family.init(start, log_density))(starts)
            steps = jnp.full(length.chains, step_size, starts.dtype)
            inverse_mass = jnp.ones_like(starts)

        kernel = family.build_kernel()

        def draw(states: Any, key: PRNGKey) -> tuple[Any, tuple[Array, Array, Array]]:
            def one(key: PRNGKey, state: Any, step: Scalar, inverse_mass: Phi) -> Any:
                return kernel(key, state, log_density, step, inverse_mass, **parameters)

            keys = jax.random.split(key, length.chains)
            states, info = jax.vmap(one)(keys, states, steps, inverse_mass)
            return states, (states.position, info.acceptance_rate, info.is_divergent)

        if not isinstance(step_size, Adapted):
            states, _ = jax.lax.scan(
                lambda states, key: (draw(states, key)[0], None),
                states,
                jax.random.split(key_burn_in, length.num_warmup),
            )
        _, (draws, acceptance, divergent) = jax.lax.scan(
            draw, states, jax.random.split(key_draws, length.draws)
        )
        chains = jnp.swapaxes(draws, 0, 1)
        report = chain_report(chains, acceptance, divergent, steps)
        return Posterior(posterior.psi, evenly_spaced(chains, length.particles)), report

    return sampler


def require_length(length: ChainLength, jitter: Any) -> None:
    """Raise an error for empty chains, fewer draws than particles, or a negative jitter."""
    if not isinstance(jitter, jax.core.Tracer) and not 0.0 <= float(jitter) < math.inf:
        raise ValueError(f"jitter must be finite and not negative, not {jitter!r}.")
    names = ("num_chains", "num_warmup", "num_draws", "num_particles")
    for name, count in zip(names, length, strict=True):
        require_positive_int(name, count, "for example 1000 draws of 4 chains after a warm-up of 2000.")
    if length.particles > length.chains * length.draws:
        raise ValueError(
            f"num_particles is {length.particles}, but only {length.chains} chains × {length.draws} "
            f"draws are kept; ask for fewer particles or more draws."
        )


def starting_points(
    key: PRNGKey, model: Model, posterior: Posterior, num: int, jitter: Any
) -> Float[Array, "chain dim"]:
    """Draw particles by weight, and add noise so that chains from one particle differ."""
    key_choice, key_jitter = jax.random.split(key)
    values, log_weights = posterior.particles
    chosen = values[jax.random.categorical(key_choice, log_weights, shape=(num,))]
    spread = jitter * prior_scale(model, posterior.psi)
    return chosen + spread[None, :] * jax.random.normal(key_jitter, chosen.shape, chosen.dtype)


def evenly_spaced(chains: Float[Array, "chain draw dim"], num: int) -> Particles:
    """Return evenly spaced draws of all chains, equally weighted."""
    flat = chains.reshape(-1, chains.shape[-1])
    places = np.arange(num) * flat.shape[0] // num  # on the host, in 64 bits
    return Particles(flat[places], uniform_log_weights(num))


def chain_report(
    chains: Float[Array, "chain draw dim"],
    acceptance: Float[Array, "draw chain"],
    divergent: Bool[Array, "draw chain"],
    step_size: Float[Array, " chain"],
) -> ChainReport:
    """Compute split R-hat and effective sample size of each coordinate, and acceptance of each chain."""
    import blackjax.diagnostics as diagnostics

    num_chains, num_draws, dim = chains.shape
    # Each half counts as a chain, so that drift within a chain shows, and one chain is enough.
    half = num_draws // 2
    halves = chains[:, : 2 * half].reshape(2 * num_chains, half, dim)
    undefined = jnp.full(dim, jnp.nan, chains.dtype)
    return ChainReport(
        r_hat=diagnostics.potential_scale_reduction(halves).reshape(dim) if half > 1 else undefined,
        ess=diagnostics.effective_sample_size(chains).reshape(dim) if num_draws > 3 else undefined,
        acceptance=acceptance.mean(axis=0),
        divergences=divergent.sum(),
        step_size=step_size,
        num_draws=jnp.asarray(num_draws, jnp.int32),
    )

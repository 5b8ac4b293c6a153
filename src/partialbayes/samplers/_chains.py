"""Many Markov chains on p(φ | y_1:N; ψ̂) in one program, with R-hat and effective sample size.

The kernels are BlackJAX's. Chains run side by side (one scan over draws, mapped over chains
inside), so several cost little more than one where a single chain does not fill the machine; the
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
    """A step size, and a diagonal mass matrix, to be found during burn-in."""

    target_acceptance: Any


def adapted(target_acceptance: float | Float[Array, ""] = 0.8) -> Adapted:
    """Ask for window adaptation: burn-in tunes the step size and a diagonal mass matrix.

    Args:
        target_acceptance: The mean acceptance probability to aim for, in (0, 1).

    Raises:
        ValueError: ``target_acceptance`` is not within (0, 1).

    Example:
        >>> import partialbayes as pb
        >>> sampler = pb.samplers.hmc(step_size=pb.samplers.adapted(0.9), num_leapfrog_steps=10)
    """
    require_probability("target_acceptance", target_acceptance, "for example adapted(0.8).")
    return Adapted(target_acceptance)


class ChainLength(NamedTuple):
    """How long the chains are, and how many.

    Attributes:
        chains: Chains side by side.
        num_warmup: Draws of each chain thrown away (and tuned on, where the step size is adapted).
        draws: Draws of each chain kept.
        particles: How many of the kept draws, evenly spaced, make the posterior.
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
    """A sampler that runs a kernel of BlackJAX's Hamiltonian family.

    Args:
        load_family: Gives the kernel, such as ``blackjax.nuts``; called late because importing
            BlackJAX starts XLA.
        parameters: What the kernel takes besides step size and mass.
        step_size: Of the leapfrog integrator, with unit mass; or `adapted`.
        length: How long, and how many.
        jitter: Spread of the starts, in standard deviations of the prior.
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
    """Refuse chains of no length, too few draws for the particles asked for, and a jitter below zero."""
    if not isinstance(jitter, jax.core.Tracer) and not 0.0 <= float(jitter) < math.inf:
        raise ValueError(f"jitter must be finite and not negative, not {jitter!r}.")
    names = ("num_chains", "num_warmup", "num_draws", "num_particles")
    for name, count in zip(names, length, strict=True):
        require_positive_int(name, count, "for example 1000 draws of 4 chains after a burn-in of 2000.")
    if length.particles > length.chains * length.draws:
        raise ValueError(
            f"num_particles is {length.particles}, but only {length.chains} chains × {length.draws} "
            f"draws are kept; ask for fewer particles or more draws."
        )


def starting_points(
    key: PRNGKey, model: Model, posterior: Posterior, num: int, jitter: Any
) -> Float[Array, "chain dim"]:
    """Particles drawn by weight, spread a little so that chains from one point differ."""
    key_choice, key_jitter = jax.random.split(key)
    values, log_weights = posterior.particles
    chosen = values[jax.random.categorical(key_choice, log_weights, shape=(num,))]
    spread = jitter * prior_scale(model, posterior.psi)
    return chosen + spread[None, :] * jax.random.normal(key_jitter, chosen.shape, chosen.dtype)


def evenly_spaced(chains: Float[Array, "chain draw dim"], num: int) -> Particles:
    """Evenly spaced draws of all the chains, equally weighted."""
    flat = chains.reshape(-1, chains.shape[-1])
    places = np.arange(num) * flat.shape[0] // num  # on the host, in 64 bits
    return Particles(flat[places], uniform_log_weights(num))


def chain_report(
    chains: Float[Array, "chain draw dim"],
    acceptance: Float[Array, "draw chain"],
    divergent: Bool[Array, "draw chain"],
    step_size: Float[Array, " chain"],
) -> ChainReport:
    """Split R-hat and effective sample size of each coordinate, acceptance of each chain."""
    import blackjax.diagnostics as diagnostics

    num_chains, num_draws, dim = chains.shape
    # Halves as chains of their own: drift within a chain then shows, and one chain is enough.
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

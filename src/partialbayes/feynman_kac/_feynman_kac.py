"""The sequential Monte Carlo step, and its run along a path of targets.

From particles that stand for π_{t−1}, one step makes particles that stand for π_t:

    resample    φ ← resampled φ, w ← 1/J, where asked for
    move        φ_j ~ K(· | φ_j), K leaving π_{t−1} invariant
    reweight    w_j ∝ w_j G_t(φ_j), G_t = π_t / π_{t−1}; the evidence grows by Σ_j w_j G_t(φ_j)

The move must be for the *old* target: the potential is then the exact ratio that importance
sampling asks for, and Ẑ = Π_t Σ_j w_j G_t(φ_j) is unbiased for a fixed path. Particles start as
exact draws of π_0, the prior, so the first step is the reweighting alone.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from partialbayes.annealing import TargetFamily, bridge, rows_seen, stride_by_ess
from partialbayes.feynman_kac._evidence import log_unrelated
from partialbayes.parallel._sharding import shard_particles
from partialbayes.resampling import gather, stratified_indices
from partialbayes.types import Kernel, Particles, PRNGKey, Resampler, Scalar, Target
from partialbayes.weights import effective_sample_size, reweight, uniform_log_weights

Stride: TypeAlias = Callable[[Array, Array], Scalar]
"""``(log_weights, log_potentials) -> share`` of the potential to apply, in (0, 1]."""


class Cloud(NamedTuple):
    """Particles on their way, with what their history says about them.

    Attributes:
        particles: Standing for the present target.
        founders: The first-generation draw each one descends from.
        log_resampled: The kinship that resampling made by itself, Σ log (1 − S before) /
            (1 − S after), for the variance of the evidence; see `partialbayes.evidence`.
        log_evidence: log Ẑ so far.
        kernel: The move's memory.
    """

    particles: Particles
    founders: Int[Array, " particle"]
    log_resampled: Scalar
    log_evidence: Scalar
    kernel: PyTree


class StepRecord(NamedTuple):
    """What one step reports; a run stacks them.

    Attributes:
        ess: Effective sample size after the reweighting.
        increment: Of the log-evidence.
        acceptance: Mean acceptance probability of the move; one where nothing moved.
        ancestors: Number of first-generation draws with descendants left.
    """

    ess: Float[Array, "*step"]
    increment: Float[Array, "*step"]
    acceptance: Float[Array, "*step"]
    ancestors: Float[Array, "*step"]


class Mutation(NamedTuple):
    """Resample and move together: how a new generation comes from the old.

    Attributes:
        num_founders: ``num_particles -> N``, how many independent units a generation has.
        step: ``(key, cloud, target) -> (cloud, acceptance)``.
    """

    num_founders: Callable[[int], int]
    step: Callable[[PRNGKey, Cloud, Target], tuple[Cloud, Scalar]]


def resample_move(kernel: Kernel, resample: Resampler) -> Mutation:
    """The usual mutation: J particles are resampled, each is moved."""

    def step(key: PRNGKey, cloud: Cloud, target: Target) -> tuple[Cloud, Scalar]:
        key_resample, key_move = jax.random.split(key)
        resampled, ancestors = resample(key_resample, cloud.particles)
        founders = cloud.founders[ancestors]
        num_founders = founders.shape[0]
        before = log_unrelated(cloud.particles.log_weights, cloud.founders, num_founders)
        after = log_unrelated(resampled.log_weights, founders, num_founders)
        moved = kernel.step(key_move, resampled, target, cloud.kernel)
        log_weights = resampled.log_weights + moved.log_correction
        cloud = cloud._replace(
            particles=Particles(moved.values, log_weights),
            founders=founders,
            log_resampled=cloud.log_resampled + before - after,
            kernel=moved.state,
        )
        return cloud, moved.acceptance

    return Mutation(lambda num_particles: num_particles, step)


def keep_chains(kernel: Kernel, chain_length: int) -> Mutation:
    """Keep every state of the chains (Dau and Chopin, 2022).

    J / P particles are drawn, each starts a chain of P states, and all J states make the new
    generation. A chain is one unit of the ancestry: given the draws, chains are independent.

    Args:
        kernel: Applied P − 1 times.
        chain_length: P; it must divide the number of particles.
    """

    def num_founders(num_particles: int) -> int:
        chains, rest = divmod(num_particles, chain_length)
        if rest or chain_length < 2 or chains < 2:
            raise ValueError(
                f"waste_free is {chain_length} states per chain, but num_particles is "
                f"{num_particles}; choose a chain length of at least 2 that divides num_particles "
                "into at least 2 chains."
            )
        return chains

    def step(key: PRNGKey, cloud: Cloud, target: Target) -> tuple[Cloud, Scalar]:
        key_draw, key_chain = jax.random.split(key)
        num_particles = cloud.particles.log_weights.shape[0]
        chains = num_founders(num_particles)
        drawn = stratified_indices(key_draw, jax.nn.softmax(cloud.particles.log_weights), chains)
        start = Particles(gather(cloud.particles.values, drawn), uniform_log_weights(chains))

        def advance(carry: tuple[Particles, PyTree], key_move: PRNGKey) -> Any:
            particles, memory = carry
            moved = kernel.step(key_move, particles, target, memory)
            return (particles._replace(values=moved.values), moved.state), (
                moved.values,
                moved.acceptance,
            )

        keys = jax.random.split(key_chain, chain_length - 1)
        (_, memory), (states, acceptance) = jax.lax.scan(advance, (start, cloud.kernel), keys)
        values = jnp.concatenate([start.values[None], states]).reshape(num_particles, -1)
        founders = cloud.founders[drawn]
        before = log_unrelated(cloud.particles.log_weights, cloud.founders, chains)
        after = log_unrelated(start.log_weights, founders, chains)
        cloud = cloud._replace(
            particles=Particles(values, uniform_log_weights(num_particles)),
            founders=jnp.tile(founders, chain_length),
            log_resampled=cloud.log_resampled + before - after,
            kernel=memory,
        )
        return cloud, acceptance.mean()

    return Mutation(num_founders, step)


def _whole(log_weights: Array, log_potentials: Array) -> Scalar:
    return jnp.ones((), log_potentials.dtype)


def start(
    key: PRNGKey, family: TargetFamily, num_particles: int, mutation: Mutation, kernel_state: PyTree
) -> Cloud:
    """Exact draws from the prior."""
    values = shard_particles(family.sample_prior(key, num_particles))
    num_founders = mutation.num_founders(num_particles)
    return Cloud(
        particles=Particles(values, uniform_log_weights(num_particles)),
        founders=jnp.arange(num_particles, dtype=jnp.int32) % num_founders,
        log_resampled=jnp.zeros((), values.dtype),
        log_evidence=jnp.zeros((), values.dtype),
        kernel=kernel_state,
    )


def weigh(
    cloud: Cloud, target: Target, acceptance: Scalar, stride: Stride = _whole
) -> tuple[Cloud, StepRecord, Scalar]:
    """The reweighting, by the share of the potential that ``stride`` allows; returns the share."""
    values, log_weights = cloud.particles
    log_potentials = jax.vmap(target.log_potential)(values)
    share = stride(log_weights, log_potentials)
    particles, increment = reweight(cloud.particles, share * log_potentials)
    survivors = jnp.zeros(log_weights.shape, bool).at[cloud.founders].set(True)
    record = StepRecord(
        ess=effective_sample_size(particles.log_weights),
        increment=increment,
        acceptance=acceptance,
        ancestors=survivors.sum().astype(log_weights.dtype),
    )
    cloud = cloud._replace(particles=particles, log_evidence=cloud.log_evidence + increment)
    return cloud, record, share


def run_path(
    key: PRNGKey,
    family: TargetFamily,
    exponents: Float[np.ndarray, "target example"],
    mutation: Mutation,
    num_particles: int,
    kernel_state: PyTree,
) -> tuple[Cloud, StepRecord]:
    """Sequential Monte Carlo along a fixed path.

    Returns:
        The weighted particles of the last target, and the record of each step. The first step
        weighs draws from the prior; nothing moves there.
    """
    key_start, key_steps = jax.random.split(key)
    cloud = start(key_start, family, num_particles, mutation, kernel_state)
    table, seen, num_targets = jnp.asarray(exponents), rows_seen(exponents), exponents.shape[0]
    link = bridge(family, table[0, : seen[0]], table[1, : seen[1]])
    cloud, first, _ = weigh(cloud, link, jnp.ones((), cloud.log_evidence.dtype))

    def step(cloud: Cloud, stage: tuple[PRNGKey, Array, Array]) -> tuple[Cloud, StepRecord]:
        key_step, before, after = stage
        link = bridge(family, before, after)
        cloud, acceptance = mutation.step(key_step, cloud, link)
        cloud, record, _ = weigh(cloud, link, acceptance)
        return cloud, record

    keys = jax.random.split(key_steps, num_targets - 2)
    records = [jax.tree.map(lambda leaf: leaf[None], first)]
    # One loop over all targets that see as many rows: those not in yet are not evaluated.
    for rows, targets in groupby(range(1, num_targets - 1), seen.__getitem__):
        group = list(targets)
        begin, end = group[0], group[-1] + 1
        stages = (
            keys[begin - 1 : end - 1],
            table[begin:end, :rows],
            table[begin + 1 : end + 1, : seen[end]],
        )
        cloud, record = jax.lax.scan(step, cloud, stages)
        records.append(record)
    return cloud, jax.tree.map(lambda *parts: jnp.concatenate(parts), *records)


class Adaptive(NamedTuple):
    """What an adaptive run reports; the traces are NaN past the last step taken.

    Attributes:
        cloud: The weighted particles of the last target reached.
        record: One row per step.
        temperatures: The exponent reached by each step.
        num_steps: How many were taken.
    """

    cloud: Cloud
    record: StepRecord
    temperatures: Float[Array, " step"]
    num_steps: Int[Array, ""]


def run_adaptive(
    key: PRNGKey,
    family: TargetFamily,
    mutation: Mutation,
    num_particles: int,
    kernel_state: PyTree,
    *,
    target_ess: float,
    max_steps: int,
) -> Adaptive:
    """Sequential Monte Carlo by tempering, each step as long as the ESS allows.

    It ends at temperature 1, or short of it after ``max_steps``. Because the temperatures are
    chosen by the particles themselves, Ẑ is no longer exactly unbiased; the bias is of order 1/J,
    below the standard error. A second run along the same temperatures, fixed, has none.
    """
    key_start, key_steps = jax.random.split(key)
    stride = stride_by_ess(target_ess)
    cloud = start(key_start, family, num_particles, mutation, kernel_state)
    dtype = cloud.log_evidence.dtype
    everything = jnp.ones(family.num_rows, dtype)

    def link(temperature: Scalar) -> Target:
        """From here to the end; the stride decides how much of it is taken."""
        return bridge(family, temperature * everything, everything)

    def note(trace: Adaptive, cloud: Cloud, record: StepRecord, temperature: Scalar) -> Adaptive:
        place = trace.num_steps
        return Adaptive(
            cloud,
            jax.tree.map(lambda past, new: past.at[place].set(new), trace.record, record),
            trace.temperatures.at[place].set(temperature),
            place + 1,
        )

    empty = jnp.full(max_steps, jnp.nan, dtype)
    trace = Adaptive(cloud, StepRecord(empty, empty, empty, empty), empty, jnp.zeros((), jnp.int32))
    cloud, record, share = weigh(cloud, link(jnp.zeros((), dtype)), jnp.ones((), dtype), stride)
    trace = note(trace, cloud, record, share)

    def unfinished(trace: Adaptive) -> Array:
        short = (trace.temperatures[trace.num_steps - 1] < 1.0) & (trace.num_steps < max_steps)
        return short & jnp.isfinite(trace.cloud.log_evidence)

    def step(trace: Adaptive) -> Adaptive:
        temperature = trace.temperatures[trace.num_steps - 1]
        target = link(temperature)
        key_step = jax.random.fold_in(key_steps, trace.num_steps)
        cloud, acceptance = mutation.step(key_step, trace.cloud, target)
        cloud, record, share = weigh(cloud, target, acceptance, stride)
        # The last step must reach one exactly, whatever the rounding.
        reached = jnp.where(share >= 1.0, 1.0, temperature + share * (1.0 - temperature))
        return note(trace, cloud, record, reached)

    return jax.lax.while_loop(unfinished, step, trace)


def relative_variance(cloud: Cloud, mutation: Mutation) -> Scalar:
    """Variance of Ẑ/Z from the ancestry of this one run; see `partialbayes.feynman_kac._evidence`."""
    num_founders = mutation.num_founders(cloud.particles.log_weights.shape[0])
    at_start = jnp.log1p(-1.0 / num_founders)
    at_end = log_unrelated(cloud.particles.log_weights, cloud.founders, num_founders)
    variance = -jnp.expm1(cloud.log_resampled - at_start + at_end)
    return jnp.where(jnp.isneginf(at_end), 1.0, variance)

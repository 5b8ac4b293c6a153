"""The sequential Monte Carlo step, and its run along a path of targets.

One step turns particles that represent π_{t−1} into particles that represent π_t:

    resample    φ ← resampled φ, w ← 1/J, if requested
    move        φ_j ~ K(· | φ_j), where K leaves π_{t−1} invariant
    reweight    w_j ∝ w_j G_t(φ_j), G_t = π_t / π_{t−1}; the evidence grows by Σ_j w_j G_t(φ_j)

The move must leave the *old* target invariant. The potential is then the exact importance ratio, and
Ẑ = Π_t Σ_j w_j G_t(φ_j) is unbiased for a fixed path. Particles start as exact draws from π_0, the
prior, so the first step only reweights.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from partialbayes._utils.checks import require_instance
from partialbayes.annealing import TargetFamily, bridge, rows_seen, stride_by_ess
from partialbayes.feynman_kac._evidence import log_unrelated
from partialbayes.parallel._sharding import shard_particles
from partialbayes.resampling import gather, stratified_indices
from partialbayes.types import Kernel, Moved, Particles, PRNGKey, Resampler, Scalar, Target
from partialbayes.weights import effective_sample_size, reweight, uniform_log_weights

Stride: TypeAlias = Callable[[Array, Array], Scalar]
"""``(log_weights, log_potentials) ->`` the power of the potential to apply, in (0, 1]."""


class Cloud(NamedTuple):
    """Particles during a run, with what is known of their history.

    Attributes:
        particles: Particles that represent the current target.
        founders: The first-generation draw from which each particle descends.
        log_resampled: The kinship that resampling itself created, Σ log (1 − S before) /
            (1 − S after), for the variance of the evidence; see `_evidence.py`.
        log_evidence: log Ẑ so far.
        kernel: The memory of the kernel.
    """

    particles: Particles
    founders: Int[Array, " particle"]
    log_resampled: Scalar
    log_evidence: Scalar
    kernel: PyTree


class StepRecord(NamedTuple):
    """The record of one step; a run stacks them.

    Attributes:
        ess: Effective sample size after the reweighting.
        increment: The increment of the log-evidence.
        acceptance: Mean acceptance probability of the move; one if nothing moved.
        ancestors: Number of first-generation draws with descendants left.
    """

    ess: Float[Array, "*step"]
    increment: Float[Array, "*step"]
    acceptance: Float[Array, "*step"]
    ancestors: Float[Array, "*step"]


class Mutation(NamedTuple):
    """A resampling and a move together, which make a new generation from the old one.

    Attributes:
        num_founders: ``num_particles -> N``, the number of independent units of a generation.
        step: ``(key, cloud, target) -> (cloud, acceptance)``.
    """

    num_founders: Callable[[int], int]
    step: Callable[[PRNGKey, Cloud, Target], tuple[Cloud, Scalar]]


def resample_move(kernel: Kernel, resample: Resampler) -> Mutation:
    """Make the usual mutation: resample J particles, and move each."""

    def step(key: PRNGKey, cloud: Cloud, target: Target) -> tuple[Cloud, Scalar]:
        key_resample, key_move = jax.random.split(key)
        resampled, ancestors = resample(key_resample, cloud.particles)
        founders = cloud.founders[ancestors]
        num_founders = founders.shape[0]
        before = log_unrelated(cloud.particles.log_weights, cloud.founders, num_founders)
        after = log_unrelated(resampled.log_weights, founders, num_founders)
        moved = kernel.step(key_move, resampled, target, cloud.kernel)
        require_instance("what the kernel's step returns", moved, Moved, "see types.Kernel.")
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
    """Make the mutation that keeps every state of the chains (Dau and Chopin, 2022).

    J / P particles are drawn, each starts a chain of P states, and all J states make the new
    generation. A chain is one unit of the ancestry: given the draws, chains are independent.

    Args:
        kernel: The kernel, applied P − 1 times.
        chain_length: P; it must divide the number of particles.

    Returns:
        The mutation.
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

        # A kernel that learns may use the whole generation, not only the few that start a chain.
        pools = _strangers(cloud.particles, drawn, chain_length)
        move = kernel.step if kernel.learn is None else kernel.learn(pools, target.prior)

        def advance(carry: tuple[Particles, PyTree], key_move: PRNGKey) -> Any:
            particles, memory = carry
            moved = move(key_move, particles, target, memory)
            require_instance("what the kernel's step returns", moved, Moved, "see types.Kernel.")
            return (particles._replace(values=moved.values), moved.state), (
                moved.values,
                moved.acceptance,
            )

        keys = jax.random.split(key_chain, chain_length - 1)
        (_, memory), (states, acceptance) = jax.lax.scan(advance, (start, cloud.kernel), keys)
        # Chain by chain, so that families stay together.
        kept = jnp.swapaxes(jnp.concatenate([start.values[None], states]), 0, 1)
        values = kept.reshape(num_particles, -1)
        founders = cloud.founders[drawn]
        before = log_unrelated(cloud.particles.log_weights, cloud.founders, chains)
        after = log_unrelated(start.log_weights, founders, chains)
        cloud = cloud._replace(
            particles=Particles(values, uniform_log_weights(num_particles)),
            founders=jnp.repeat(founders, chain_length),
            log_resampled=cloud.log_resampled + before - after,
            kernel=memory,
        )
        return cloud, acceptance.mean()

    return Mutation(num_founders, step)


def _strangers(
    particles: Particles, drawn: Int[Array, " chain"], chain_length: int
) -> tuple[Particles, Particles]:
    """Return the particles outside the chains of the first half of the draws, then of the second half.

    Particles are laid out chain by chain, and the draws are in order.
    """
    half = (drawn.shape[0] + 1) // 2
    chains = jnp.arange(particles.log_weights.shape[0], dtype=drawn.dtype) // chain_length
    after, before = chains > drawn[half - 1] // chain_length, chains < drawn[half] // chain_length
    return tuple(  # type: ignore[return-value]
        particles._replace(log_weights=jnp.where(own, particles.log_weights, -jnp.inf))
        for own in (after, before)
    )


def start(
    key: PRNGKey, family: TargetFamily, num_particles: int, mutation: Mutation, kernel_state: PyTree
) -> Cloud:
    """Draw a cloud from the prior."""
    values = shard_particles(family.sample_prior(key, num_particles))
    num_founders = mutation.num_founders(num_particles)
    return Cloud(
        particles=Particles(values, uniform_log_weights(num_particles)),
        founders=jnp.arange(num_particles, dtype=jnp.int32) // (num_particles // num_founders),
        log_resampled=jnp.zeros((), values.dtype),
        log_evidence=jnp.zeros((), values.dtype),
        kernel=kernel_state,
    )


def weigh(
    cloud: Cloud, target: Target, acceptance: Scalar, share: float | Scalar = 1.0
) -> tuple[Cloud, StepRecord]:
    """Reweight by a power of the potential."""
    values, log_weights = cloud.particles
    log_potentials = jax.vmap(target.log_potential)(values)
    particles, increment = reweight(cloud.particles, share * log_potentials)
    survivors = jnp.zeros(log_weights.shape, bool).at[cloud.founders].set(True)
    record = StepRecord(
        ess=effective_sample_size(particles.log_weights),
        increment=increment,
        acceptance=acceptance,
        ancestors=survivors.sum().astype(log_weights.dtype),
    )
    cloud = cloud._replace(particles=particles, log_evidence=cloud.log_evidence + increment)
    return cloud, record


def share_of(stride: Stride, cloud: Cloud, target: Target) -> Scalar:
    """Return the power of the potential to apply, from the particles *before* they move.

    If the moved particles decided, a cloud that has a few large weights by chance would stop earlier
    than one without, and log Ẑ would be too low, by a multiple of 1/J at each step.
    """
    log_potentials = jax.vmap(target.log_potential)(cloud.particles.values)
    return stride(cloud.particles.log_weights, log_potentials)


def run_path(
    key: PRNGKey,
    family: TargetFamily,
    exponents: Float[np.ndarray, "target example"],
    mutation: Mutation,
    num_particles: int,
    kernel_state: PyTree,
    *,
    target_ess: float | None = None,
    max_steps: int = 100,
) -> tuple[Cloud, StepRecord]:
    """Run sequential Monte Carlo along a fixed path, or one with intermediate targets where needed.

    Args:
        key: The random key of the run.
        family: The family of the targets.
        exponents: The path.
        mutation: The mutation between targets.
        num_particles: J.
        kernel_state: The kernel's memory.
        target_ess: If given, go from one target to the next by powers of the potential, each as large as
            leaves this fraction of J as effective sample size. If None, apply each potential at once.
        max_steps: The most such powers between two targets; the last one takes the whole rest.

    Returns:
        The weighted particles of the last target, and the record of each step. The first step
        weighs draws from the prior, without a move.
    """
    key_start, key_first, key_steps = jax.random.split(key, 3)
    cloud = start(key_start, family, num_particles, mutation, kernel_state)
    table, seen, num_targets = jnp.asarray(exponents), rows_seen(exponents), exponents.shape[0]
    stride = None if target_ess is None else stride_by_ess(target_ess)

    def at_once(cloud: Cloud, stage: tuple[PRNGKey, Array, Array]) -> tuple[Cloud, StepRecord]:
        key_step, before, after = stage
        link = bridge(family, before, after)
        cloud, acceptance = mutation.step(key_step, cloud, link)
        return weigh(cloud, link, acceptance)

    def by_powers(
        cloud: Cloud,
        stage: tuple[PRNGKey, Array, Array],
        first: StepRecord | None = None,
        share: Any = 0.0,
    ) -> tuple[Cloud, StepRecord]:
        key_step, before, after = stage
        change = after - jnp.pad(before, (0, after.shape[0] - before.shape[0]))
        zero = jnp.zeros((), cloud.log_evidence.dtype)

        def unfinished(carry: tuple[Cloud, StepRecord, Scalar, Array]) -> Array:
            cloud, _, share, _ = carry
            return (share < 1.0) & jnp.isfinite(cloud.log_evidence)

        def step(
            carry: tuple[Cloud, StepRecord, Scalar, Array],
        ) -> tuple[Cloud, StepRecord, Scalar, Array]:
            cloud, so_far, share, count = carry
            link = bridge(family, after - (1.0 - share) * change, after)
            count = count + 1
            assert stride is not None
            part = share_of(stride, cloud, link)
            part = jnp.where(count < max_steps, part, 1.0).astype(part.dtype)
            cloud, acceptance = mutation.step(jax.random.fold_in(key_step, count), cloud, link)
            cloud, record = weigh(cloud, link, acceptance, part)
            reached = jnp.where(part >= 1.0, 1.0, share + part * (1.0 - share)).astype(share.dtype)
            mean = so_far.acceptance + (acceptance - so_far.acceptance) / count.astype(acceptance.dtype)
            record = record._replace(increment=so_far.increment + record.increment, acceptance=mean)
            return cloud, record, reached, count

        so_far = StepRecord(zero, zero, zero, zero) if first is None else first
        begin = (cloud, so_far, zero + share, jnp.zeros((), jnp.int32))
        cloud, record, _, _ = jax.lax.while_loop(unfinished, step, begin)
        return cloud, record

    link = bridge(family, table[0, : seen[0]], table[1, : seen[1]])
    one = jnp.ones((), cloud.log_evidence.dtype)
    share = one if stride is None else share_of(stride, cloud, link)
    cloud, first = weigh(cloud, link, one, share)
    if stride is not None:
        stage = (key_first, table[0, : seen[0]], table[1, : seen[1]])
        cloud, first = by_powers(cloud, stage, first, share)
    step = at_once if stride is None else by_powers

    keys = jax.random.split(key_steps, num_targets - 2)
    records = [jax.tree.map(lambda leaf: leaf[None], first)]
    # One loop over all targets with the same number of rows, so that later rows are not evaluated.
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
    """The result of an adaptive run; the traces are NaN after the last step.

    Attributes:
        cloud: The weighted particles of the last target reached.
        record: One row per step.
        temperatures: The exponent after each step.
        num_steps: Number of steps taken.
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
    """Run sequential Monte Carlo by tempering, with each step as long as the ESS allows.

    The run ends at temperature 1, or below it after ``max_steps``. Because the particles themselves
    choose the temperatures, Ẑ is not exactly unbiased; the bias is of order 1/J. A second run along the
    same temperatures, fixed, with a kernel that does not learn, has no bias.
    """
    key_start, key_steps = jax.random.split(key)
    stride = stride_by_ess(target_ess)
    cloud = start(key_start, family, num_particles, mutation, kernel_state)
    dtype = cloud.log_evidence.dtype
    everything = jnp.ones(family.num_rows, dtype)

    def link(temperature: Scalar) -> Target:
        """Return the link from here to the posterior; the stride decides which power to apply."""
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
    target = link(jnp.zeros((), dtype))
    share = share_of(stride, cloud, target)
    cloud, record = weigh(cloud, target, jnp.ones((), dtype), share)
    trace = note(trace, cloud, record, share)

    def unfinished(trace: Adaptive) -> Array:
        short = (trace.temperatures[trace.num_steps - 1] < 1.0) & (trace.num_steps < max_steps)
        return short & jnp.isfinite(trace.cloud.log_evidence)

    def step(trace: Adaptive) -> Adaptive:
        temperature = trace.temperatures[trace.num_steps - 1]
        target = link(temperature)
        key_step = jax.random.fold_in(key_steps, trace.num_steps)
        share = share_of(stride, trace.cloud, target)
        cloud, acceptance = mutation.step(key_step, trace.cloud, target)
        cloud, record = weigh(cloud, target, acceptance, share)
        # The last step must reach one exactly, despite rounding.
        reached = jnp.where(share >= 1.0, 1.0, temperature + share * (1.0 - temperature))
        return note(trace, cloud, record, reached)

    return jax.lax.while_loop(unfinished, step, trace)


def relative_variance(cloud: Cloud, mutation: Mutation) -> Scalar:
    """Estimate the variance of Ẑ/Z from the ancestry of this run; see `_evidence.py`."""
    num_founders = mutation.num_founders(cloud.particles.log_weights.shape[0])
    at_start = jnp.log1p(-1.0 / num_founders)
    at_end = log_unrelated(cloud.particles.log_weights, cloud.founders, num_founders)
    variance = -jnp.expm1(cloud.log_resampled - at_start + at_end)
    return jnp.where(jnp.isneginf(at_end), 1.0, variance)

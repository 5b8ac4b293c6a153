"""Paths of targets from the prior to the posterior.

Every target of a path has the form

    π_t(φ) ∝ π(φ) Π_n p(y_n | φ; ψ)^{λ_{t,n}},    λ_0 = 0, λ_T = 1,

so a path is a table of exponents λ, one row per target and one column per data point. Rows that fill
with ones block by block anneal by data; a row of equal numbers is a temperature. `bridge` makes both
the target that a kernel must leave invariant, π_{t−1}, and the potential that follows, π_t / π_{t−1},
from the same two rows, so they cannot disagree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from partialbayes._utils.checks import require_positive_int
from partialbayes._utils.jaxprs import partially_evaluate
from partialbayes.model._batch import overwrite_masked_rows
from partialbayes.model._partial_bnn import of_density
from partialbayes.types import Batch, LogDensity, Model, Moments, Phi, PRNGKey, Psi, Scalar, Target

__all__ = ["blocks", "geometric_blocks", "tempering"]


AnnealingSchedule: TypeAlias = Callable[[int], Float[np.ndarray, "target example"]]
"""A function from the number of rows in the batch to the exponents, from all zero to all one."""


class TargetFamily(NamedTuple):
    """The densities π(φ) Π_n p(y_n | φ)^{λ_n} of one data set at one ψ.

    Attributes:
        sample_prior: ``(key, num) -> (num, dim)``, exact draws at λ = 0.
        log_prior: ``phi -> scalar``.
        log_likelihood: ``(phi, rows) -> (rows,)``, of the first rows of the batch; zero on masked rows.
        prior: Moments of the prior.
        fraction: M / N, the fraction of the data in the batch.
        num_rows: Number of rows of the batch, masked rows included.
    """

    sample_prior: Callable[[PRNGKey, int], Float[Array, "num dim"]]
    log_prior: LogDensity
    log_likelihood: Callable[[Phi, int], Float[Array, " rows"]]
    prior: Moments
    fraction: Scalar
    num_rows: int


def posterior_family(model: Model, psi: Psi, batch: Batch) -> TargetFamily:
    """Return the family of a batch at ψ; it evaluates only the rows that are requested."""
    model = of_density(model)
    batch = overwrite_masked_rows(batch)  # before it is cut: the first rows may all be masked

    def log_likelihood(phi: Phi, rows: int) -> Float[Array, " rows"]:
        inputs, targets, mask = jax.tree.map(lambda leaf: leaf[:rows], batch[:3])
        return model.log_likelihood(phi, psi, Batch(inputs, targets, mask, batch.scale))

    return TargetFamily(
        sample_prior=lambda key, num: model.sample_prior(key, psi, num),
        log_prior=lambda phi: model.log_prior(phi, psi),
        log_likelihood=log_likelihood,
        prior=model.prior_moments(psi),
        fraction=1.0 / batch.scale,
        num_rows=batch.mask.shape[0],
    )


def prestage(family: TargetFamily) -> TargetFamily:
    """Return the same family, with all that does not depend on φ precomputed."""
    everything = partially_evaluate(
        lambda phi: family.log_likelihood(phi, family.num_rows), family.prior.mean
    )
    return family._replace(log_likelihood=lambda phi, rows: everything(phi)[:rows])


def bridge(
    family: TargetFamily, before: Float[Array, " seen"], after: Float[Array, " example"]
) -> Target:
    """Return one link of a path: the target to leave invariant, and the potential to the next.

    Args:
        family: The family of the targets.
        before: Exponents of the target, for the first rows; the exponents of other rows are zero.
        after: Exponents of the next target, for as many rows or more.

    Returns:
        The target of the kernel.
    """
    change = after - jnp.pad(before, (0, after.shape[0] - before.shape[0]))

    def powered(phi: Phi, exponents: Float[Array, " rows"]) -> Scalar:
        # Rows with exponent zero have no effect, even if their log-likelihood is infinite.
        values = family.log_likelihood(phi, exponents.shape[0])
        return jnp.where(exponents != 0.0, exponents * values, 0.0).sum()

    def log_density(phi: Phi) -> Scalar:
        return family.log_prior(phi) + powered(phi, before)

    def log_potential(phi: Phi) -> Scalar:
        return powered(phi, change)

    return Target(log_density, log_potential, family.prior, family.fraction)


def _cumulative(rows: int, ends: Sequence[int]) -> Float[np.ndarray, "target example"]:
    """Return ones for the rows that have been added by each end."""
    return (np.arange(rows)[None, :] < np.asarray([0, *ends])[:, None]).astype(float)


def blocks(size: int = 1) -> AnnealingSchedule:
    """Add the data ``size`` rows at a time; one by one by default.

    Args:
        size: Number of rows per block; the last block may be shorter.

    Returns:
        The schedule, to pass to `smc`.

    Example:
        >>> import partialbayes as pb
        >>> pb.annealing.blocks(2)(3)
        array([[0., 0., 0.],
               [1., 1., 0.],
               [1., 1., 1.]])
    """
    require_positive_int("size", size, "blocks(1) takes the rows one by one.")

    def schedule(rows: int) -> Float[np.ndarray, "target example"]:
        return _cumulative(rows, [*range(size, rows, size), rows])

    return schedule


def geometric_blocks(first: int = 1, ratio: float = 2.0) -> AnnealingSchedule:
    """Add the data in blocks such that the number of rows grows by a factor each time.

    Early data change the posterior most, so early blocks are small. There are about
    log N / log ratio blocks instead of N.

    Args:
        first: Number of rows in the first block.
        ratio: The ratio of the number of rows after a block to that before it; above 1.

    Returns:
        The schedule, to pass to `smc`.

    Example:
        >>> import partialbayes as pb
        >>> pb.annealing.geometric_blocks()(5).sum(axis=1)
        array([0., 1., 2., 4., 5.])
    """
    require_positive_int("first", first, "the number of rows in the first block.")
    if not ratio > 1.0:
        raise ValueError(f"ratio must be more than 1, not {ratio!r}; 2 doubles the rows seen each time.")

    def schedule(rows: int) -> Float[np.ndarray, "target example"]:
        ends = [min(first, rows)]
        while ends[-1] < rows:
            ends.append(min(rows, max(ends[-1] + 1, round(ends[-1] * ratio))))
        return _cumulative(rows, ends)

    return schedule


def tempering(temperatures: Sequence[float] | Any) -> AnnealingSchedule:
    """Add all data together, at a power that grows from 0 to 1.

    Args:
        temperatures: Increasing numbers in (0, 1], the last one 1; a leading 0 is optional.

    Returns:
        The schedule, to pass to `smc`.

    Example:
        >>> import partialbayes as pb
        >>> pb.annealing.tempering([0.1, 1.0])(2)
        array([[0. , 0. ],
               [0.1, 0.1],
               [1. , 1. ]])
    """
    powers = np.asarray(temperatures, float)
    if powers.ndim != 1 or powers.size == 0:
        raise ValueError(f"temperatures must be a list of numbers, not {temperatures!r}.")
    powers = powers if powers[0] == 0.0 else np.concatenate([[0.0], powers])
    if powers[-1] != 1.0 or not np.all(np.diff(powers) > 0.0):
        raise ValueError(
            f"temperatures must increase strictly from above 0 to exactly 1, not {temperatures!r}; "
            "for example [0.01, 0.1, 0.3, 1.0]."
        )
    return lambda rows: np.repeat(powers[:, None], rows, axis=1)


def as_exponents(schedule: AnnealingSchedule, rows: int) -> Float[np.ndarray, "target example"]:
    """Return the table of a schedule, after a check of its shape and ends."""
    table = np.asarray(schedule(rows))
    if table.ndim != 2 or table.shape[1] != rows or np.any(table[0] != 0) or np.any(table[-1] != 1):
        raise ValueError(
            f"schedule returned exponents of shape {table.shape} for {rows} rows; it must return one "
            "row per target and one column per data point, from all 0 to all 1."
        )
    return table.astype(jnp.result_type(float))


def rows_seen(exponents: Float[np.ndarray, "target example"]) -> Int[np.ndarray, " target"]:
    """Return how many of the first rows are evaluated for each target: those used, rounded up to 4ᵏ.

    Later targets never use fewer. Rounding leaves few different numbers, each of which needs a compiled
    program. Powers of two would need twice as many programs, and be no faster.
    """
    rows = exponents.shape[1]
    last = np.where(exponents != 0.0, np.arange(1, rows + 1), 1).max(axis=1)
    powers = 4 ** np.arange(rows.bit_length() // 2 + 2)
    return np.minimum(powers[np.searchsorted(powers, np.maximum.accumulate(last))], rows)


def stride_by_ess(target_ess: float, iterations: int = 40) -> Callable[[Array, Array], Scalar]:
    """Choose the power of a potential that keeps the fraction ``target_ess`` of the sample size.

    The sample size that is left after weights w are multiplied by a potential G is the conditional
    effective sample size (Zhou et al. 2016),

        J (Σ_j w_j G_j)² / Σ_j w_j G_j²,

    which is the effective sample size itself if the weights were equal.

    Args:
        target_ess: Fraction of J, in (0, 1).
        iterations: Number of iterations of the bisection.

    Returns:
        ``(log_weights, log_potentials) -> share``, the largest power s in (0, 1] such that G^s keeps
        that fraction.
    """

    def stride(
        log_weights: Float[Array, " particle"], log_potentials: Float[Array, " particle"]
    ) -> Scalar:
        def enough(share: Scalar) -> Array:
            log_mean, log_square = (
                jax.nn.logsumexp(log_weights + power * log_potentials) for power in (share, 2.0 * share)
            )
            return 2.0 * log_mean - log_square >= math.log(target_ess)

        def halve(_: Any, bracket: tuple[Scalar, Scalar]) -> tuple[Scalar, Scalar]:
            low, high = bracket
            # On the log scale: the first steps from a vague prior may have any size.
            middle = jnp.sqrt(low * high)
            good = enough(middle)
            return jnp.where(good, middle, low), jnp.where(good, high, middle)

        one = jnp.ones((), log_potentials.dtype)
        low, _ = jax.lax.fori_loop(0, iterations, halve, (1e-8 * one, one))
        return jnp.where(enough(one), one, low)

    return stride

"""Test whether a run has settled, by the loss and the moments of the cloud in successive windows.

The test needs no validation data. At every evaluation it takes the mean loss ℓ since the last one, and
the weighted mean m and standard deviation s of the cloud. Each is averaged over a window of W
evaluations, within which it has a standard deviation f. With a prime for the previous window, the run
has settled when

    |ℓ − ℓ'| ≤ tolerance + 2 standard errors,
    ‖m − m'‖ ≤ drift ‖f_m‖ + tolerance ‖m‖,    ‖s − s'‖ ≤ drift ‖f_s‖ + tolerance ‖s‖.

A cloud that follows minibatches never stands still: it wanders along directions that the data do not
determine. The ratio of ‖m − m'‖ to ‖f_m‖ distinguishes a drift from wandering: it is √12 ≈ 3.5 for a
steady drift, 2 for a random walk, and √(2/W) for noise about a point.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from partialbayes._utils.checks import require_instance, require_positive, require_positive_int
from partialbayes.types import Posterior, Scalar


class Settled(NamedTuple):
    """Train until the loss and the cloud have settled; for `Run.until`.

    Attributes:
        tolerance: The change from one window to the next that is allowed: of the loss per row, beyond
            two standard errors; of the mean and spread of the cloud, as a fraction of their norm, beyond
            their wandering.
        drift: The distance that the cloud may move from one window to the next, in standard deviations
            of its movement within the window: 2 is a random walk, 3.5 a steady drift.
        window: Number of evaluations in a window; there is one per epoch, or every `Validation.every`
            steps.

    Example:
        >>> import jax.numpy as jnp, partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 5, 1]), "layers/0/*", pb.gaussian())
        >>> x = jnp.linspace(-1.0, 1.0, 8)[:, None]
        >>> run = pb.Run(until=pb.training.Settled(tolerance=0.1, window=5))
        >>> trained = pb.fit(pb.map_estimate(model), (x, x), epochs=1000, run=run)
        >>> trained.end
        'settled'
    """

    tolerance: float = 0.01
    drift: float = 2.5
    window: int = 20


def require_settled(until: Settled | None) -> None:
    """Raise an error if the settings are not valid."""
    if until is None:
        return
    require_instance("until", until, Settled, "for example training.Settled().")
    require_positive("tolerance", until.tolerance)
    require_positive("drift", until.drift)
    require_positive_int("window", until.window, "a number of evaluations.")


class Summary(NamedTuple):
    """The monitored values, or their squares, summed or averaged over a window."""

    loss: Scalar
    mean: Float[Array, " dim"]
    spread: Float[Array, " dim"]


class Window(NamedTuple):
    """The summary of the values, and that of their squares."""

    values: Summary
    squares: Summary


class Settling(NamedTuple):
    """The sums of this window, the averages of the previous one, and the number of evaluations."""

    sums: Window
    before: Window
    evaluations: Int[Array, ""]


def nothing_seen(posterior: Posterior) -> Settling:
    """Return the memory before the first evaluation."""
    values = posterior.particles.values
    zeros = jnp.zeros(values.shape[-1], values.dtype)
    blank = Summary(jnp.zeros((), values.dtype), zeros, zeros)
    return Settling(Window(blank, blank), Window(blank, blank), jnp.zeros((), jnp.int32))


def check(
    until: Settled, memory: Settling, loss: Scalar, posterior: Posterior
) -> tuple[Settling, Bool[Array, ""]]:
    """Return the memory after one more evaluation, and whether the run has settled with it."""
    values = posterior.particles.values.reshape(-1, posterior.particles.values.shape[-1])
    weights = jax.nn.softmax(posterior.particles.log_weights.ravel())
    mean = weights @ values
    spread = jnp.sqrt(weights @ jnp.square(values - mean[None]))
    seen = Summary(loss.astype(mean.dtype), mean, spread)
    seen_both = Window(seen, jax.tree.map(jnp.square, seen))
    sums, evaluations = jax.tree.map(jnp.add, memory.sums, seen_both), memory.evaluations + 1
    now = jax.tree.map(lambda leaf: leaf / until.window, sums)
    is_full = evaluations % until.window == 0
    blank = jax.tree.map(jnp.zeros_like, sums)

    def choose(if_full: Window, otherwise: Window) -> Window:
        chosen: Window = jax.tree.map(lambda a, b: jnp.where(is_full, a, b), if_full, otherwise)
        return chosen

    is_second = evaluations >= 2 * until.window
    settled = is_full & is_second & _is_close(until, memory.before, now)
    return Settling(choose(blank, sums), choose(now, memory.before), evaluations), settled


def _variances(window: Window) -> Summary:
    found: Summary = jax.tree.map(
        lambda value, square: jnp.maximum(square - jnp.square(value), 0.0), *window
    )
    return found


def _is_close(until: Settled, before: Window, now: Window) -> Bool[Array, ""]:
    fluctuations = _variances(now)
    error = jnp.sqrt((_variances(before).loss + fluctuations.loss) / until.window)
    change = jnp.abs(now.values.loss - before.values.loss)

    def is_still(was: Array, value: Array, variance: Array) -> Bool[Array, ""]:
        wandering = until.drift * jnp.sqrt(variance.sum())
        allowed = wandering + until.tolerance * jnp.linalg.norm(value)
        return jnp.linalg.norm(value - was) <= allowed

    return (
        (change <= until.tolerance + 2.0 * error)
        & is_still(before.values.mean, now.values.mean, fluctuations.mean)
        & is_still(before.values.spread, now.values.spread, fluctuations.spread)
    )

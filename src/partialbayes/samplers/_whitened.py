"""Hamiltonian moves of independent draws, in coordinates in which the target is nearly N(0, I).

Every draw is a chain. All chains share one step size, which is adapted to their mean acceptance.
In these coordinates a trajectory of length 3/2, a quarter of a period, is nearly independent of its
start, so a few moves correct draws from an approximation that is not far off.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from partialbayes.types import LogDensity, PRNGKey, Scalar

Carry = tuple[Array, Array, Array, Array]

_LEAPFROG_STEPS = 6
_ACCEPTANCE = 0.8
_CHUNK = 16  # draws at a time


def hamiltonian_moves(
    key: PRNGKey, log_density: LogDensity, starts: Float[Array, "draw dim"], num_moves: int
) -> tuple[Float[Array, "draw dim"], Scalar]:
    """Move every start by HMC, and return the ends and the mean acceptance of the last move."""
    one = jax.value_and_grad(log_density)

    def both(values: Float[Array, "draw dim"]) -> tuple[Float[Array, " draw"], Float[Array, "draw dim"]]:
        heights, gradients = jax.lax.map(one, values, batch_size=_CHUNK)
        return heights, gradients

    def move(carry: Carry, inputs: tuple[PRNGKey, Array]) -> tuple[Carry, Array]:
        values, heights, gradients, log_step = carry
        key, gain = inputs
        key_momentum, key_step, key_accept = jax.random.split(key, 3)
        momentum = jax.random.normal(key_momentum, values.shape, values.dtype)
        # The step varies, so that no direction turns by full periods.
        step = jnp.exp(log_step) * jax.random.uniform(key_step, minval=0.7, maxval=1.3)

        def leapfrog(_: Array, state: tuple[Array, ...]) -> tuple[Array, ...]:
            end, momentum, _, gradients = state
            half = momentum + 0.5 * step * gradients
            end = end + step * half
            heights, gradients = both(end)
            return end, half + 0.5 * step * gradients, heights, gradients

        ends, last, new_heights, new_gradients = jax.lax.fori_loop(
            0, _LEAPFROG_STEPS, leapfrog, (values, momentum, heights, gradients)
        )
        energy = 0.5 * (jnp.square(momentum) - jnp.square(last)).sum(axis=1)
        ratio = jnp.nan_to_num(new_heights - heights + energy, nan=-jnp.inf)
        probability = jnp.exp(jnp.minimum(ratio, 0.0))
        accepted = jax.random.uniform(key_accept, probability.shape) < probability
        values = jnp.where(accepted[:, None], ends, values)
        gradients = jnp.where(accepted[:, None], new_gradients, gradients)
        heights = jnp.where(accepted, new_heights, heights)
        acceptance = probability.mean()
        return (values, heights, gradients, log_step + gain * (acceptance - _ACCEPTANCE)), acceptance

    heights, gradients = both(starts)
    log_step = jnp.log(1.5 / _LEAPFROG_STEPS) * jnp.ones((), starts.dtype)
    gains = 2.0 / jnp.sqrt(1.0 + jnp.arange(num_moves, dtype=starts.dtype))
    carry = (starts, heights, gradients, log_step)
    (values, *_), acceptance = jax.lax.scan(move, carry, (jax.random.split(key, num_moves), gains))
    return values, acceptance[-1]

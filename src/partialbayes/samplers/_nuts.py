"""The no-U-turn sampler on p(φ | y_1:N; ψ̂), by BlackJAX.

It is HMC that doubles its trajectory until it turns back, so that only the step size has to be tuned.
"""

from __future__ import annotations

from typing import Any

from jaxtyping import Array, Float

from partialbayes._utils.checks import require_positive_int
from partialbayes.samplers._chains import Adapted, ChainLength, adapted, chain_sampler
from partialbayes.types import Sampler


def nuts(
    *,
    step_size: float | Float[Array, ""] | Adapted | None = None,
    max_doublings: int = 10,
    num_chains: int = 4,
    num_warmup: int = 500,
    num_draws: int = 500,
    num_particles: int = 1000,
    jitter: float | Float[Array, ""] = 0.1,
) -> Sampler:
    """Sample φ by NUTS, with step size and mass tuned during warm-up.

    The report is a `ChainReport`.

    Args:
        step_size: ``adapted()`` by default; a number for a fixed step size, with unit mass.
        max_doublings: A trajectory has at most 2 to this power leapfrog steps.
        num_chains: Number of chains, all in one program; each draw takes as long as the longest
            trajectory.
        num_warmup: Number of draws of each chain to tune on and discard.
        num_draws: Number of draws of each chain to keep.
        num_particles: Number of kept draws, evenly spaced, in the posterior.
        jitter: Noise, in standard deviations of the prior, that is added to the particles of the first
            stage at which chains start; 0 for none.

    Returns:
        The sampler, to pass to `two_stage` or `second_stage`.

    Example:
        >>> import partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 20, 1]), "layers/0/*", pb.gaussian())
        >>> map_nuts = pb.two_stage(pb.map_estimate(model), pb.samplers.nuts(num_chains=2))
    """
    require_positive_int("max_doublings", max_doublings, "for example max_doublings=10.")

    def load_family() -> Any:
        import blackjax

        return blackjax.nuts

    length = ChainLength(num_chains, num_warmup, num_draws, num_particles)
    step_size = adapted() if step_size is None else step_size
    return chain_sampler(load_family, {"max_num_doublings": max_doublings}, step_size, length, jitter)

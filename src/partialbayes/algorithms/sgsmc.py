"""Stochastic-gradient sequential Monte Carlo (Algorithm 2 of the paper).

Algorithm 1 on a fresh minibatch S of M rows at each iteration:

    sample      w_j, φ_j for p(φ | y_S; ψ), by sequential Monte Carlo from the prior
    ascend      ψ ← optimiser(ψ, (N/M) Σ_j w_j ∇_ψ log p(φ_j, y_S; ψ))

The kernel sees a growing prefix of the batch through the exponents of `partialbayes.annealing`,
zeros and ones; rows not yet in are not evaluated, masked rows count for nothing.
"""

from __future__ import annotations

import optax

from partialbayes.algorithms.smc import smc
from partialbayes.annealing import Schedule
from partialbayes.types import Algorithm, Model, Move, Resampler


def sgsmc(
    model: Model,
    *,
    num_particles: int = 1000,
    schedule: Schedule | None = None,
    kernel: Move | None = None,
    resample: Resampler | None = None,
    optimizer: optax.GradientTransformation | None = None,
    gradient_particles: int | None = None,
) -> Algorithm:
    """Train ψ on minibatches, each with its own sequential Monte Carlo from the prior.

    The particles it ends with are a sample given the *last minibatch* only, wider than the
    posterior of all the data. Follow it by `refine`, which samples that at the ψ found here.

    Args:
        model: What to train.
        num_particles: J, the number of samples of φ.
        schedule: How a minibatch comes in: `geometric_blocks` (default), `blocks`, or `tempering`.
        kernel: How particles move before each block, leaving their present target invariant;
            `adapted_hamiltonian` of one trajectory by default.
        resample: Stratified when the ESS falls below J/2, by default.
        optimizer: Any Optax transformation, for ψ; Adam at 0.01 by default.
        gradient_particles: K, how many particles, drawn by weight, the gradient of ψ comes from;
            all of them by default.

    Raises:
        ValueError: As in `smc`.

    Example:
        >>> import partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 20, 1]), "layers/1/*", pb.gaussian())
        >>> algorithm = pb.sgsmc(model, num_particles=100)
    """
    # The scale N/M travels in the batch, so the step is that of `smc`.
    return smc(
        model,
        num_particles=num_particles,
        schedule=schedule,
        kernel=kernel,
        resample=resample,
        optimizer=optimizer,
        gradient_particles=gradient_particles,
    )

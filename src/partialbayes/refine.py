"""The exact posterior of φ at a fixed ψ, after any trainer.

Sequential Monte Carlo by tempering from the prior to p(φ | y_1:N; ψ̂): consistent as the number of
particles grows, with the evidence log p(y_1:N; ψ̂) and its error. What comes before the stochastic
weights in the network is computed once. Set against the particles the trainer left, it says how
far those were off.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from partialbayes.annealing import Family, as_exponents, posterior_family, staged, tempering
from partialbayes.batches import checked
from partialbayes.checks import require_count, require_suitable
from partialbayes.feynman_kac import (
    Adaptive,
    Mutation,
    relative_variance,
    resample_move,
    run_adaptive,
    run_path,
    waste_free as keep_chains,
)
from partialbayes.kernels import adapted_hamiltonian
from partialbayes.metrics import nlpd
from partialbayes.predict import log_predictive_density, predict
from partialbayes.resampling import stratified
from partialbayes.types import Batch, Model, Move, Particles, Posterior, PRNGKey, Scalar


class Discrepancy(NamedTuple):
    """How far the particles that `refine` was given were off.

    Attributes:
        mean: Root mean square difference of the predictive means, over inputs.
        largest_mean: The largest difference of the predictive means.
        variance: Root mean square difference of the predictive variances.
        nlpd: Held-out NLPD of the particles given, less that of the refined ones: positive where
            refining helped. None without held-out data.
    """

    mean: Scalar
    largest_mean: Scalar
    variance: Scalar
    nlpd: Scalar | None


class Refined(NamedTuple):
    """The exact posterior of φ at ψ̂, and what is known about it.

    Attributes:
        posterior: ψ̂ as it was, with new particles.
        log_evidence: log Ẑ, an estimate of log p(y_1:N; ψ̂).
        standard_error: Of log Ẑ, from the ancestry of this run.
        temperatures: The path taken, ending at 1.
        ess: Effective sample size after each step.
        acceptance: Of the moves of each step; one at the first, where nothing moves.
        discrepancy: How far the particles given were off.
    """

    posterior: Posterior
    log_evidence: Scalar
    standard_error: Scalar
    temperatures: Float[np.ndarray, " step"]
    ess: Float[np.ndarray, " step"]
    acceptance: Float[np.ndarray, " step"]
    discrepancy: Discrepancy


class StalledError(RuntimeError):
    """The tempering did not reach the posterior.

    Attributes:
        temperatures: As far as it came.
    """

    def __init__(self, temperatures: Float[np.ndarray, " step"], message: str) -> None:
        super().__init__(message)
        self.temperatures = temperatures


def refine(
    model: Model,
    posterior: Posterior,
    data: Any,
    *,
    num_particles: int = 1000,
    kernel: Move | None = None,
    target_ess: float = 0.5,
    waste_free: int | None = None,
    temperatures: Sequence[float] | Float[np.ndarray, " step"] | None = None,
    max_steps: int = 100,
    held_out: Any = None,
    key: PRNGKey | int = 0,
) -> Refined:
    """Sample p(φ | data; ψ̂) exactly, and say how far the particles of ``posterior`` were from it.

    The temperatures are chosen as it goes, each step as long as the ESS allows. That makes log Ẑ
    slightly biased, by less than its standard error; for an unbiased Ẑ pass the ``temperatures`` of
    one run to a second one with another key.

    Args:
        model: The model that was trained.
        posterior: From `fit`. Its ψ is kept; its particles serve for the comparison only.
        data: A pair ``(inputs, targets)``: all the data to condition on.
        num_particles: J.
        kernel: Leaves each target invariant; `adapted_hamiltonian` by default. For a likelihood
            without gradients use ``adapted_metropolis(num_steps=...)``.
        target_ess: Share of J that the ESS may fall to at each step, in (0, 1).
        waste_free: Keep every state of chains of this length, which must divide J; by default
            only the last state of each move is kept.
        temperatures: A fixed path instead, ending at 1.
        max_steps: How many steps the path may take.
        held_out: A pair like ``data`` for the comparison; the training inputs by default.
        key: A ``jax.random.key`` or a whole number to make one from.

    Raises:
        StalledError: The path did not get to the posterior in ``max_steps``.

    Example:
        >>> import jax.numpy as jnp, partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 5, 1]), "layers/1/*", pb.gaussian())
        >>> x = jnp.linspace(-1.0, 1.0, 8)[:, None]
        >>> trained = pb.fit(pb.ohsmc(model, num_particles=50), (x, x), epochs=3, progress=False)
        >>> refined = pb.refine(model, trained.posterior, (x, x), num_particles=100)
        >>> float(refined.temperatures[-1])
        1.0
    """
    if posterior.particles.log_weights.ndim != 1:
        raise ValueError(
            "posterior is an ensemble; refine its members one by one, "
            "jax.tree.map(lambda leaf: leaf[i], posterior) with weights made to sum to one."
        )
    train = checked(model, data, "data")
    require_count("num_particles", num_particles, "for example num_particles=1000.")
    require_count("max_steps", max_steps, "for example max_steps=100.")
    if not 0.0 < target_ess < 1.0:
        raise ValueError(
            f"target_ess must be between 0 and 1, a share of num_particles, not {target_ess!r}; "
            "for example target_ess=0.5."
        )
    kernel = adapted_hamiltonian() if kernel is None else kernel
    require_suitable(kernel, model)
    mutation = (
        resample_move(kernel, stratified) if waste_free is None else keep_chains(kernel, waste_free)
    )
    mutation.num_founders(num_particles)  # complains here if waste_free does not fit
    if isinstance(key, int):
        key = jax.random.key(key)

    family = staged(posterior_family(model, posterior.psi, train))

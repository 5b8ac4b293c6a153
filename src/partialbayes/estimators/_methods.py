"""Trainers by name, for the estimators and the command line.

A name is that of a trainer, ``"ohsmc"``; or of a trainer and a sampler for its second stage,
``"map_estimate+nuts"``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import optax

from partialbayes import algorithms, samplers
from partialbayes.types import Algorithm, Model, Sampler

Method: TypeAlias = str | Callable[[Model], Algorithm]
"""What a user may write: a name, or a function from the model to an algorithm."""


class Budget(NamedTuple):
    """What every method is given.

    Attributes:
        num_particles: J, samples of φ in the posterior.
        optimizer: For ψ, and for φ where it is a point.
    """

    num_particles: int
    optimizer: optax.GradientTransformation


def _trainer(
    builder: Callable[..., Algorithm], particles: str | None = "num_particles"
) -> Callable[[Model, Budget], Algorithm]:
    """A trainer with its own defaults; ``particles`` is what it calls J, None if it has none."""

    def build(model: Model, budget: Budget) -> Algorithm:
        count = {} if particles is None else {particles: budget.num_particles}
        return builder(model, optimizer=budget.optimizer, **count)

    build.__doc__ = builder.__doc__
    return build


def _deep_ensemble(model: Model, budget: Budget) -> Algorithm:
    return algorithms.ensemble(algorithms.map_estimate(model, optimizer=budget.optimizer), 5)


def _shared_ensemble(model: Model, budget: Budget) -> Algorithm:
    # More members than rows in a batch could not be; their number costs rows, not time.
    return algorithms.shared_ensemble(model, num_particles=4, optimizer=budget.optimizer)


TRAINERS: dict[str, Callable[[Model, Budget], Algorithm]] = {
    "ohsmc": _trainer(algorithms.ohsmc),
    "backward_ohsmc": _trainer(algorithms.backward_ohsmc),
    "deep_ensemble": _deep_ensemble,
    "ekf": _trainer(algorithms.ekf),
    "full_rank_vb": _trainer(algorithms.full_rank_vb),
    "map_estimate": _trainer(algorithms.map_estimate, None),
    "mean_field_vb": _trainer(algorithms.mean_field_vb),
    "monte_carlo": _trainer(algorithms.monte_carlo),
    "particle_ensemble": _trainer(algorithms.particle_ensemble),
    "particle_gradient_descent": _trainer(algorithms.particle_gradient_descent),
    "sghmc": _trainer(algorithms.sghmc),
    "sgld": _trainer(algorithms.sgld),
    "sgsmc": _trainer(algorithms.sgsmc),
    "shared_ensemble": _shared_ensemble,
    "smc": _trainer(algorithms.smc),
    "svgd": _trainer(algorithms.svgd),
    "swag": _trainer(algorithms.swag),
}

SAMPLERS: dict[str, Callable[..., Sampler]] = {
    "hmc": samplers.hmc,
    "laplace": samplers.laplace,
    "mclmc": samplers.mclmc,
    "nuts": samplers.nuts,
    "tempered_smc": samplers.tempered_smc,
}

CROSSFIT = "crossfit"

_IN_WORDS = {
    CROSSFIT: "groups of rank-one members, each without one fold of the rows, calibrated on these",
    "ohsmc": "open-horizon SMC with the transport kernel: ψ and particles in one pass",
    "backward_ohsmc": "open-horizon SMC debiased by a backward kernel",
    "deep_ensemble": "five networks trained from different starts, each a single point",
    "ekf": "extended Kalman filter: a Gaussian φ, updated batch by batch",
    "full_rank_vb": "variational Bayes with a full covariance",
    "map_estimate": "maximum a posteriori: one point, no uncertainty of the weights",
    "mean_field_vb": "variational Bayes with independent weights",
    "monte_carlo": "brute force: samples of the prior, weighted by the likelihood",
    "particle_ensemble": "an ensemble with one ψ: every member its own φ and gradient",
    "particle_gradient_descent": "particles that follow their gradients with noise, Langevin's way",
    "sghmc": "stochastic-gradient Hamiltonian dynamics, with friction",
    "sgld": "stochastic-gradient Langevin dynamics",
    "shared_ensemble": "four members with one ψ, each with a φ and rows of its own",
    "sgsmc": "SMC on fresh minibatches (Algorithm 2); follow it by a second stage",
    "smc": "SMC over all the data at every step (Algorithm 1), whatever the batch size; slow",
    "svgd": "Stein variational gradient descent",
    "swag": "a Gaussian around the path of the optimizer",
    "hmc": "Hamiltonian Monte Carlo",
    "laplace": "a Gaussian at the mode",
    "mclmc": "microcanonical Langevin dynamics, for many weights",
    "nuts": "the No-U-Turn sampler",
    "tempered_smc": "tempered SMC, with the evidence",
}


def describe() -> str:
    """What there is, one line each."""
    width = max(map(len, TRAINERS))
    lines = ["the estimators' default, a recipe of network, training and calibration for tables:"]
    lines += [f"  {CROSSFIT:<{width}}  {_IN_WORDS[CROSSFIT]}"]
    lines += ["trainers:"]
    lines += [f"  {name:<{width}}  {_IN_WORDS[name]}" for name in TRAINERS]
    lines += ["second stages, after any trainer with a plus, such as map_estimate+nuts:"]
    lines += [f"  {name:<{width}}  {_IN_WORDS[name]}" for name in SAMPLERS]
    lines += ["poisson_ohsmc needs constants of its own and is for Python only."]
    return "\n".join(lines)


def build(method: Method, model: Model, budget: Budget) -> Algorithm:
    """The algorithm of a method."""
    if not isinstance(method, str):
        algorithm = method(model)
        if not isinstance(algorithm, Algorithm):
            raise TypeError(
                f"method must give an Algorithm for a model, not {type(algorithm).__name__}; for "
                "example lambda model: pb.ohsmc(model)."
            )
        return algorithm
    require_method(method)
    first, *stages = method.split("+")
    algorithm = TRAINERS[first](model, budget)
    for stage in stages:
        settings: dict[str, Any] = {"num_particles": budget.num_particles}
        algorithm = algorithms.two_stage(algorithm, SAMPLERS[stage](**settings))
    return algorithm


def require_method(method: Any) -> None:
    """Refuse a name that is not of a method."""
    if isinstance(method, str):
        first, *stages = method.split("+")
        if method == CROSSFIT or (first in TRAINERS and all(stage in SAMPLERS for stage in stages)):
            return
    elif callable(method):
        return
    raise ValueError(
        f"method must be {CROSSFIT} or one of {', '.join(TRAINERS)}, perhaps followed by a second stage "
        f"({', '.join('+' + name for name in SAMPLERS)}), or a function model -> Algorithm; not "
        f"{method!r}."
    )

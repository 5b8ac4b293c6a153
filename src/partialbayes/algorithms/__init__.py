"""Training algorithms: each learns ψ and the law of φ together, and returns an `Algorithm`.

The room may import everything up to `samplers`.
"""

from partialbayes.algorithms._backward_ohsmc import backward_ohsmc
from partialbayes.algorithms._combinators import ensemble, two_stage
from partialbayes.algorithms._ekf import ekf
from partialbayes.algorithms._langevin import sghmc, sgld
from partialbayes.algorithms._map import map_estimate
from partialbayes.algorithms._mc_dropout import mc_dropout
from partialbayes.algorithms._monte_carlo import (
    expected_log_likelihood,
    log_expected_likelihood,
    monte_carlo,
)
from partialbayes.algorithms._ohsmc import ohsmc
from partialbayes.algorithms._particle_gradient import particle_ensemble, particle_gradient_descent
from partialbayes.algorithms._path import averaged, trajectory
from partialbayes.algorithms._poisson_ohsmc import poisson_ohsmc
from partialbayes.algorithms._shared_ensemble import shared_ensemble
from partialbayes.algorithms._smc import sgsmc, smc
from partialbayes.algorithms._svgd import svgd
from partialbayes.algorithms._swag import swag
from partialbayes.algorithms._variational import full_rank_vb, mean_field_vb
from partialbayes.algorithms._weight_prior import weight_prior

__all__ = [
    "averaged",
    "backward_ohsmc",
    "ekf",
    "ensemble",
    "expected_log_likelihood",
    "full_rank_vb",
    "log_expected_likelihood",
    "map_estimate",
    "mc_dropout",
    "mean_field_vb",
    "monte_carlo",
    "ohsmc",
    "particle_ensemble",
    "particle_gradient_descent",
    "poisson_ohsmc",
    "sghmc",
    "sgld",
    "sgsmc",
    "shared_ensemble",
    "smc",
    "svgd",
    "swag",
    "trajectory",
    "two_stage",
    "weight_prior",
]

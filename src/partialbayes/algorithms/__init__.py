"""Training methods, one a file; each returns an `Algorithm`."""

from partialbayes.algorithms.backward_ohsmc import backward_ohsmc
from partialbayes.algorithms.ekf import ekf
from partialbayes.algorithms.ensemble import ensemble
from partialbayes.algorithms.map import map_estimate
from partialbayes.algorithms.monte_carlo import (
    expected_log_likelihood,
    log_expected_likelihood,
    monte_carlo,
)
from partialbayes.algorithms.ohsmc import ohsmc
from partialbayes.algorithms.particle_gradient_descent import particle_gradient_descent
from partialbayes.algorithms.poisson_ohsmc import poisson_ohsmc
from partialbayes.algorithms.sgld import sgld
from partialbayes.algorithms.sgsmc import sgsmc
from partialbayes.algorithms.smc import smc
from partialbayes.algorithms.svgd import svgd
from partialbayes.algorithms.swag import swag
from partialbayes.algorithms.two_stages import continued, second_stage, then
from partialbayes.algorithms.variational import full_rank_vb, mean_field_vb

__all__ = [
    "backward_ohsmc",
    "continued",
    "ekf",
    "ensemble",
    "expected_log_likelihood",
    "full_rank_vb",
    "log_expected_likelihood",
    "map_estimate",
    "mean_field_vb",
    "monte_carlo",
    "ohsmc",
    "particle_gradient_descent",
    "poisson_ohsmc",
    "second_stage",
    "sgld",
    "sgsmc",
    "smc",
    "svgd",
    "swag",
    "then",
]

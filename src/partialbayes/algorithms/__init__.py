"""Training methods: each learns ψ and the law of φ together, and returns an `Algorithm`.

It may import everything up to `samplers`.
"""

from partialbayes.algorithms._backward_ohsmc import backward_ohsmc
from partialbayes.algorithms._combinators import ensemble, two_stage
from partialbayes.algorithms._ekf import ekf
from partialbayes.algorithms._langevin import particle_gradient_descent, sgld
from partialbayes.algorithms._map import map_estimate
from partialbayes.algorithms._monte_carlo import (
    expected_log_likelihood,
    log_expected_likelihood,
    monte_carlo,
)
from partialbayes.algorithms._ohsmc import ohsmc
from partialbayes.algorithms._poisson_ohsmc import poisson_ohsmc
from partialbayes.algorithms._smc import sgsmc, smc
from partialbayes.algorithms._svgd import svgd
from partialbayes.algorithms._swag import swag
from partialbayes.algorithms._variational import full_rank_vb, mean_field_vb

__all__ = [
    "backward_ohsmc",
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
    "sgld",
    "sgsmc",
    "smc",
    "svgd",
    "swag",
    "two_stage",
]

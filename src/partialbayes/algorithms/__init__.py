"""Training methods, one a file; each returns an `Algorithm`."""

from partialbayes.algorithms.ensemble import ensemble
from partialbayes.algorithms.map import map_estimate
from partialbayes.algorithms.ohsmc import ohsmc
from partialbayes.algorithms.particle_gradient_descent import particle_gradient_descent
from partialbayes.algorithms.sgld import sgld
from partialbayes.algorithms.sgsmc import sgsmc
from partialbayes.algorithms.smc import smc
from partialbayes.algorithms.svgd import svgd
from partialbayes.algorithms.swag import swag
from partialbayes.algorithms.two_stages import sample, then

__all__ = [
    "ensemble",
    "map_estimate",
    "ohsmc",
    "particle_gradient_descent",
    "sample",
    "sgld",
    "sgsmc",
    "smc",
    "svgd",
    "swag",
    "then",
]

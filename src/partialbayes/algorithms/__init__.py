"""Training methods, one a file; each returns an `Algorithm`."""

from partialbayes.algorithms.map import map_estimate
from partialbayes.algorithms.ohsmc import ohsmc
from partialbayes.algorithms.two_stages import sample, then

__all__ = ["map_estimate", "ohsmc", "sample", "then"]

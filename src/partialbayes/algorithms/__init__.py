"""Training methods, one a file; each returns an `Algorithm`."""

from partialbayes.algorithms.map import map_estimate
from partialbayes.algorithms.monte_carlo import (
    expected_log_likelihood,
    log_expected_likelihood,
    monte_carlo,
)
from partialbayes.algorithms.ohsmc import ohsmc
from partialbayes.algorithms.two_stages import second_stage, then
from partialbayes.algorithms.variational import full_rank_vb, mean_field_vb

__all__ = [
    "expected_log_likelihood",
    "full_rank_vb",
    "log_expected_likelihood",
    "map_estimate",
    "mean_field_vb",
    "monte_carlo",
    "ohsmc",
    "second_stage",
    "then",
]

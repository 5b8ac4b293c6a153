"""Priors of the random weights, with scales per weight, layer or fan-in, fixed or learned.

It may import `parameters` and `subsets`.
"""

from partialbayes.priors._priors import (
    centered_on,
    custom,
    dropout,
    inverse_gamma,
    laplace,
    normal,
    student_t,
)
from partialbayes.priors._scales import fan_in, per_layer

__all__ = [
    "centered_on",
    "custom",
    "dropout",
    "fan_in",
    "inverse_gamma",
    "laplace",
    "normal",
    "per_layer",
    "student_t",
]

"""Which weights are random: globs over paths, predicates, layers, masks, rankings.

It may import `types` and `_utils`.
"""

from partialbayes.subsets._ranking import largest, most_variable_gradient
from partialbayes.subsets._select import (
    Subset,
    biases,
    layer,
    mask,
    normalisation_scales,
    output_layer,
    paths,
    random_fraction,
    where,
)

__all__ = [
    "Subset",
    "biases",
    "largest",
    "layer",
    "mask",
    "most_variable_gradient",
    "normalisation_scales",
    "output_layer",
    "paths",
    "random_fraction",
    "where",
]

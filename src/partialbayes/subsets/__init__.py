"""Choose the random weights: by path, predicate, layer, mask or ranking.

It may import `types` and `_utils`.
"""

from partialbayes.subsets._ranking import largest, most_uncertain, most_variable_gradient
from partialbayes.subsets._select import (
    Subset,
    biases,
    glob,
    layer,
    mask,
    normalization_scales,
    output_layer,
    random_fraction,
    where,
)

__all__ = [
    "Subset",
    "biases",
    "glob",
    "largest",
    "layer",
    "mask",
    "most_uncertain",
    "most_variable_gradient",
    "normalization_scales",
    "output_layer",
    "random_fraction",
    "where",
]

"""Networks: adapters to common libraries, ready-made networks, and new weights for existing ones.

The room may import `types` and `_utils`.
"""

from partialbayes.networks._bfloat16 import bfloat16_matmuls
from partialbayes.networks._equinox import from_equinox
from partialbayes.networks._factors import low_rank, rank_one
from partialbayes.networks._keras import from_keras
from partialbayes.networks._kernel_machine import with_kernel_machine
from partialbayes.networks._layout import with_layout
from partialbayes.networks._linen import from_linen
from partialbayes.networks._mlp import mlp
from partialbayes.networks._nnx import from_nnx
from partialbayes.networks._params import from_params
from partialbayes.networks._subspace import Path, path_directions, subspace
from partialbayes.networks._table_mlp import table_mlp
from partialbayes.networks._torch import from_torch

__all__ = [
    "Path",
    "bfloat16_matmuls",
    "from_equinox",
    "from_keras",
    "from_linen",
    "from_nnx",
    "from_params",
    "from_torch",
    "low_rank",
    "mlp",
    "path_directions",
    "rank_one",
    "subspace",
    "table_mlp",
    "with_kernel_machine",
    "with_layout",
]

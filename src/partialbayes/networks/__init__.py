"""Networks: adapters to the common libraries, and a ready-made perceptron.

They may import `types` and `_utils`.
"""

from partialbayes.networks._bfloat16 import bfloat16_matmuls
from partialbayes.networks._equinox import from_equinox
from partialbayes.networks._linen import from_linen
from partialbayes.networks._mlp import mlp
from partialbayes.networks._nnx import from_nnx
from partialbayes.networks._params import from_params

__all__ = ["bfloat16_matmuls", "from_equinox", "from_linen", "from_nnx", "from_params", "mlp"]

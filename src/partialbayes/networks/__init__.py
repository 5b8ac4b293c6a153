"""Networks: adapters to the common libraries, and ready-made ones."""

from partialbayes.networks.cnn import cnn
from partialbayes.networks.equinox import from_equinox
from partialbayes.networks.linen import from_linen
from partialbayes.networks.mlp import mlp
from partialbayes.networks.nnx import from_nnx
from partialbayes.networks.plain import from_params
from partialbayes.networks.precision import bfloat16_matmuls

__all__ = ["bfloat16_matmuls", "cnn", "from_equinox", "from_linen", "from_nnx", "from_params", "mlp"]

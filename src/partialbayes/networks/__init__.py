"""Networks: adapters to the common libraries, and ready-made ones."""

from partialbayes.networks.mlp import mlp
from partialbayes.networks.nnx import from_nnx

__all__ = ["from_nnx", "mlp"]

"""Meshes of devices, groups of processes, and sweeps of independent runs.

It may import `types` and `_utils`.
"""

from partialbayes.parallel._hosts import allgather_rows, initialize
from partialbayes.parallel._mesh import mesh
from partialbayes.parallel._sweep import sweep

__all__ = ["allgather_rows", "initialize", "mesh", "sweep"]

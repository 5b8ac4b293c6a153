"""More than one device, more than one machine: meshes of devices, and processes that work as one."""

from partialbayes.parallel.hosts import initialise, rows_of_all
from partialbayes.parallel.islands import islands
from partialbayes.parallel.meshes import mesh
from partialbayes.parallel.sweeps import sweep

__all__ = ["initialise", "islands", "mesh", "rows_of_all", "sweep"]

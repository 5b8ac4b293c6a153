"""Samplers of φ at fixed ψ, for the second stage of `two_stage`.

They may import `kernels` and what is below it.
"""

from partialbayes.samplers._chains import adapted
from partialbayes.samplers._hmc import hmc
from partialbayes.samplers._importance import importance_sampling
from partialbayes.samplers._laplace import laplace
from partialbayes.samplers._mclmc import mclmc
from partialbayes.samplers._nuts import nuts
from partialbayes.samplers._tempered_smc import tempered_smc

__all__ = ["adapted", "hmc", "importance_sampling", "laplace", "mclmc", "nuts", "tempered_smc"]

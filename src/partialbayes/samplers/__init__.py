"""Samplers of φ at fixed ψ, for the second stage of `then`.

They may import `kernels` and what is below it.
"""

from partialbayes.samplers._chains import adapted
from partialbayes.samplers._hmc import hmc
from partialbayes.samplers._importance import likelihood_weighting
from partialbayes.samplers._laplace import laplace
from partialbayes.samplers._nuts import nuts
from partialbayes.samplers._tempered_smc import tempered_smc

__all__ = ["adapted", "hmc", "laplace", "likelihood_weighting", "nuts", "tempered_smc"]

"""Samplers of φ at fixed ψ, for the second stage of `then`; one a file."""

from partialbayes.samplers.chains import adapted
from partialbayes.samplers.hmc import hmc
from partialbayes.samplers.laplace import laplace
from partialbayes.samplers.likelihood_weighting import likelihood_weighting
from partialbayes.samplers.nuts import nuts
from partialbayes.samplers.tempered_smc import tempered_smc

__all__ = ["adapted", "hmc", "laplace", "likelihood_weighting", "nuts", "tempered_smc"]

"""Markov kernels on the particle cloud, one a file."""

from partialbayes.kernels.adapted_hamiltonian import adapted_hamiltonian
from partialbayes.kernels.adapted_metropolis import adapted_metropolis
from partialbayes.kernels.forgetting import forgetting
from partialbayes.kernels.guided_langevin import guided_langevin
from partialbayes.kernels.hamiltonian import hamiltonian
from partialbayes.kernels.identity import identity
from partialbayes.kernels.langevin import unadjusted_langevin
from partialbayes.kernels.lift import lift
from partialbayes.kernels.mala import mala
from partialbayes.kernels.ornstein_uhlenbeck import ornstein_uhlenbeck
from partialbayes.kernels.pcn import pcn
from partialbayes.kernels.random_walk import random_walk
from partialbayes.kernels.random_walk_metropolis import random_walk_metropolis

__all__ = [
    "adapted_hamiltonian",
    "adapted_metropolis",
    "forgetting",
    "guided_langevin",
    "hamiltonian",
    "identity",
    "lift",
    "mala",
    "ornstein_uhlenbeck",
    "pcn",
    "random_walk",
    "random_walk_metropolis",
    "unadjusted_langevin",
]

"""Markov kernels on the particle cloud.

They may import `feynman_kac` and what is below it.
"""

from partialbayes.kernels._affine_langevin import affine_langevin
from partialbayes.kernels._forgetting import forgetting
from partialbayes.kernels._from_mcmc import from_mcmc
from partialbayes.kernels._hamiltonian import adapted_hamiltonian, hamiltonian
from partialbayes.kernels._langevin import guided_langevin, mala, unadjusted_langevin
from partialbayes.kernels._metropolis import adapted_metropolis, random_walk_metropolis
from partialbayes.kernels._ornstein_uhlenbeck import ornstein_uhlenbeck
from partialbayes.kernels._pcn import pcn
from partialbayes.kernels._random_walk import identity, moved_without_correction, random_walk
from partialbayes.kernels._transport import transport

__all__ = [
    "adapted_hamiltonian",
    "adapted_metropolis",
    "affine_langevin",
    "forgetting",
    "from_mcmc",
    "guided_langevin",
    "hamiltonian",
    "identity",
    "mala",
    "moved_without_correction",
    "ornstein_uhlenbeck",
    "pcn",
    "random_walk",
    "random_walk_metropolis",
    "transport",
    "unadjusted_langevin",
]

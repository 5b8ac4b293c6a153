"""Markov kernels on the particle cloud, one a file."""

from partialbayes.kernels.ornstein_uhlenbeck import ornstein_uhlenbeck
from partialbayes.kernels.random_walk import random_walk

__all__ = ["ornstein_uhlenbeck", "random_walk"]

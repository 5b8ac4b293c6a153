"""Partial Bayesian networks: a network, a likelihood, a prior, and the split of weights into φ and ψ.

It may import `networks`, `likelihoods`, `subsets` and `priors`.
"""

from partialbayes.model._partial_bnn import partial_bnn, with_chunks
from partialbayes.model._split import split_weights
from partialbayes.model._trunk import Trunk, split_trunk

__all__ = ["Trunk", "partial_bnn", "split_trunk", "split_weights", "with_chunks"]

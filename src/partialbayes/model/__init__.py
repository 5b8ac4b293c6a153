"""A partial Bayesian network: network, likelihood, prior, and the split of the weights into φ and ψ.

It may import `networks`, `likelihoods`, `subsets` and `priors`.
"""

from partialbayes.model._partial_bnn import in_chunks, partial_bnn
from partialbayes.model._split import split_weights

__all__ = ["in_chunks", "partial_bnn", "split_weights"]

"""Likelihoods: per-example log-densities and predictive moments from a network's outputs.

A single output loses its trailing axis: outputs of shape (n, 1) go with targets of shape (n,).
"""

from partialbayes.likelihoods.custom import custom
from partialbayes.likelihoods.discrete import bernoulli, categorical, poisson
from partialbayes.likelihoods.gaussian import gaussian, heteroscedastic
from partialbayes.likelihoods.missing import allow_missing
from partialbayes.likelihoods.multivariate import multivariate_gaussian
from partialbayes.likelihoods.student_t import student_t

__all__ = [
    "allow_missing",
    "bernoulli",
    "categorical",
    "custom",
    "gaussian",
    "heteroscedastic",
    "multivariate_gaussian",
    "poisson",
    "student_t",
]

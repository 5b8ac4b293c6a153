"""Likelihoods: log-densities and predictive moments per example, from the outputs of a network.

A single output has no trailing axis: outputs of shape (n, 1) match targets of shape (n,). The room
may import `parameters` and `_utils`.
"""

from partialbayes.likelihoods._calibrated import calibrated
from partialbayes.likelihoods._custom import custom
from partialbayes.likelihoods._discrete import bernoulli, categorical, poisson
from partialbayes.likelihoods._gaussian import gaussian, heteroscedastic
from partialbayes.likelihoods._missing import allow_missing
from partialbayes.likelihoods._multivariate import multivariate_gaussian
from partialbayes.likelihoods._student_t import student_t

__all__ = [
    "allow_missing",
    "bernoulli",
    "calibrated",
    "categorical",
    "custom",
    "gaussian",
    "heteroscedastic",
    "multivariate_gaussian",
    "poisson",
    "student_t",
]

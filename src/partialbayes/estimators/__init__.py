"""Estimators for scikit-learn, and the tables they and the command line read.

They need scikit-learn. They may import everything but `cli`.
"""

from partialbayes.estimators._estimators import PartialBNNClassifier, PartialBNNRegressor
from partialbayes.estimators._scorers import negative_crps, negative_nlpd

__all__ = ["PartialBNNClassifier", "PartialBNNRegressor", "negative_crps", "negative_nlpd"]

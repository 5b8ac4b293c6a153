"""Estimators for scikit-learn, and the tables they and the command line read.

They need scikit-learn. They may import everything but `cli`.
"""

from partialbayes.estimators._estimators import PartialBNNClassifier, PartialBNNRegressor

__all__ = ["PartialBNNClassifier", "PartialBNNRegressor"]

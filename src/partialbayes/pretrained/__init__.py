"""Make a trained network Bayesian in one call.

It may import `training` and what is below it.
"""

from partialbayes.pretrained._bayesianize import bayesianize
from partialbayes.pretrained._result import Bayesianized

__all__ = ["Bayesianized", "bayesianize"]

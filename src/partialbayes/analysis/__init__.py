"""Analyze a trained model: refine its posterior, compare random subsets, export to ArviZ.

It may import everything up to `training`; `plots` and `reporting` build on it.
"""

from partialbayes.analysis._advise import Candidate, SubsetComparison, advise
from partialbayes.analysis._arviz import to_arviz
from partialbayes.analysis._refine import Discrepancy, Refined, refine

__all__ = ["Candidate", "Discrepancy", "Refined", "SubsetComparison", "advise", "refine", "to_arviz"]

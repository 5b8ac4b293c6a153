"""Pictures of a run, of what it learned and of what it predicts.

Every function draws on ``ax``, or makes a figure where there is none, and returns what it drew on.
They need Matplotlib (``pip install 'partialbayes[plots]'``) and import it when called.
"""

from partialbayes.plots.advice import advice
from partialbayes.plots.calibration import coverage, pit, reliability
from partialbayes.plots.particles import flow, marginals, pairs
from partialbayes.plots.predictions import (
    decision_boundary,
    predicted_against_observed,
    predictive_bands,
)
from partialbayes.plots.training import ancestry, trace, training, validation

__all__ = [
    "advice",
    "ancestry",
    "coverage",
    "decision_boundary",
    "flow",
    "marginals",
    "pairs",
    "pit",
    "predicted_against_observed",
    "predictive_bands",
    "reliability",
    "trace",
    "training",
    "validation",
]

"""Plot training runs, posteriors and predictions.

Every function draws on ``ax``, or on a new figure, and returns the axes. Plots need Matplotlib (``pip
install 'partialbayes[plots]'``), which is imported when they are called. The room may import everything
up to `analysis`.
"""

from partialbayes.plots._advice import advice
from partialbayes.plots._calibration import coverage, pit, reliability, risk_coverage
from partialbayes.plots._particles import flow, marginals, pairs
from partialbayes.plots._predictions import (
    decision_boundary,
    predicted_against_observed,
    predictive_bands,
)
from partialbayes.plots._training import ancestry, trace, training, validation

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
    "risk_coverage",
    "trace",
    "training",
    "validation",
]

"""One HTML page on a trained model: its training, its particles, its predictions.

It may import everything up to `plots`.
"""

from partialbayes.reporting._baseline import Baseline
from partialbayes.reporting._report import About, report

__all__ = ["About", "Baseline", "report"]

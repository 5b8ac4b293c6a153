"""One HTML page on a trained model: its training, its particles, its predictions.

It may import everything up to `plots`.
"""

from partialbayes.reporting._report import report

__all__ = ["report"]

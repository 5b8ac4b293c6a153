"""Files: saved models, exported predictors, pytrees of arrays and compiled programs.

It may import everything up to `prediction`.
"""

from partialbayes.io._compilation_cache import compilation_cache
from partialbayes.io._export import export, load_predictor
from partialbayes.io._model_folder import Saved, load, save

__all__ = ["Saved", "compilation_cache", "export", "load", "load_predictor", "save"]

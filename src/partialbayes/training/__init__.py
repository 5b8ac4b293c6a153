"""Training: one run, many runs at once, second stages, memory budgets.

It may import everything up to `_engine`.
"""

from partialbayes._engine.checkpoints import Checkpoints
from partialbayes._engine.sources import DataSource, data_source
from partialbayes.training._fit import fit
from partialbayes.training._fit_many import fit_many
from partialbayes.training._memory import with_memory_budget
from partialbayes.training._second_stage import continue_training, second_stage

__all__ = [
    "Checkpoints",
    "DataSource",
    "continue_training",
    "data_source",
    "fit",
    "fit_many",
    "second_stage",
    "with_memory_budget",
]

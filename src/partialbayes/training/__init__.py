"""Training: one run, many runs at once, second stages, memory budgets.

It may import everything up to `_engine`.
"""

from partialbayes._engine.departure import pretrained_posterior
from partialbayes._engine.settings import Checkpoints, Run, Validation
from partialbayes._engine.settling import Settled
from partialbayes._engine.sources import DataSource, data_source
from partialbayes.training._fit import fit
from partialbayes.training._fit_many import fit_many
from partialbayes.training._held_out import PriorFit, fit_with_prior
from partialbayes.training._memory import with_memory_budget
from partialbayes.training._second_stage import continue_training, second_stage

__all__ = [
    "Checkpoints",
    "DataSource",
    "PriorFit",
    "Run",
    "Settled",
    "Validation",
    "continue_training",
    "data_source",
    "fit",
    "fit_many",
    "fit_with_prior",
    "pretrained_posterior",
    "second_stage",
    "with_memory_budget",
]

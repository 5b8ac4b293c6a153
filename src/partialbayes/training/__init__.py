"""Training: one run, many runs at once, second stages, data that arrive, memory budgets.

It may import everything up to `_engine`.
"""

from partialbayes._engine.checkpoints import Checkpoints
from partialbayes._engine.sources import Stream, stream
from partialbayes.training._fit import fit
from partialbayes.training._fit_many import fit_many
from partialbayes.training._memory import within_memory
from partialbayes.training._online import Follower, follow, update
from partialbayes.training._second_stage import continued, second_stage

__all__ = [
    "Checkpoints",
    "Follower",
    "Stream",
    "continued",
    "fit",
    "fit_many",
    "follow",
    "second_stage",
    "stream",
    "update",
    "within_memory",
]

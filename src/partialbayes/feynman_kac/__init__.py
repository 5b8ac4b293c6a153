"""The Feynman–Kac model of a cloud: its SMC sampler, evidence, and the gradient of a batch.

It may import `model` and what is below it, `weights`, `resampling` and `annealing`.
"""

from partialbayes.feynman_kac._evidence import Evidence, evidence_from_runs
from partialbayes.feynman_kac._gradients import one_pass

__all__ = ["Evidence", "evidence_from_runs", "one_pass"]

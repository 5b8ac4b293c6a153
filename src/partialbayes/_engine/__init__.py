"""The training engine: sources of batches, one compiled loop, one host loop, checkpoints of a run.

Nobody's business but `training`'s. It may import everything up to `io` and `callbacks`.
"""

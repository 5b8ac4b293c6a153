"""The training engine: a source of batches, one compiled loop, one host loop with a monitor, a result.

Private: `training` and `online` are made of it. It may import everything up to `io` and `callbacks`.
"""

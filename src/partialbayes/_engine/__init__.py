"""The training engine: a source of batches, one compiled loop, one host loop with a monitor, a result.

The room is private; `training` and `online` use it. It may import everything up to `io` and `callbacks`.
"""

"""The experiments: their settings, methods and data, and the folder their results go to."""

"""The paper's experiments, run again: ``python -m reproduction --help``."""

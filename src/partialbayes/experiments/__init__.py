"""The paper's experiments, run again: declarations, runs, tables and figures."""

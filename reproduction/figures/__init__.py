"""The figures: what is kept of a run, and how it is drawn."""

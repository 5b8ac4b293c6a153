"""The tables: aggregates over runs, beside the numbers that the paper published."""

"""The command line: train on a table, predict, evaluate and report.

It may import everything.
"""

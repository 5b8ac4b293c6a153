"""The command line: a table in a file, a model in a folder, predictions in a file.

It may import everything.
"""

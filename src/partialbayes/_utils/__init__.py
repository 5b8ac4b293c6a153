"""Private tools for every room: argument checks, atomic files, recipes, jaxprs.

It may import `types` and `errors`.
"""

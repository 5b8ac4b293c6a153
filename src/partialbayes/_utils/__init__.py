"""What every room may need: checks of arguments, atomic files, recipes, tools for jaxprs.

Nobody's business outside the package. It may import `types` and `errors` alone.
"""

"""The examples in docstrings run."""

import doctest
import importlib
import pkgutil

import pytest

import reproduction

MODULES = [
    name
    for _, name, _ in pkgutil.walk_packages(reproduction.__path__, "reproduction.")
    if ".tests" not in name and not name.endswith("__main__")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name):
    module = importlib.import_module(name)
    flags = doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL
    assert doctest.testmod(module, extraglobs={}, optionflags=flags).failed == 0

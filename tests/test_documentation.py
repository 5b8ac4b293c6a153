"""Documentation runs: the example of every public name, and the code in the README."""

import doctest
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import jax
import pytest

import partialbayes as pb

ROOT = Path(__file__).parents[1]
MODULES = [name for _, name, _ in pkgutil.walk_packages(pb.__path__, "partialbayes.")]


def examples():
    finder = doctest.DocTestFinder(exclude_empty=True)
    for name in MODULES:
        module = importlib.import_module(name)
        if ">>>" in (module.__doc__ or ""):
            test = doctest.DocTestParser().get_doctest(module.__doc__, {}, name, module.__file__, 0)
            yield pytest.param(test, id=name)
        for owner, member in inspect.getmembers(module):
            if getattr(member, "__module__", None) == name and not owner.startswith("_"):
                for test in finder.find(member, f"{name}.{owner}", module=False, globs={}):
                    if test.examples:
                        yield pytest.param(test, id=test.name)


@pytest.mark.parametrize("example", list(examples()))
def test_docstring_example_runs(example):
    # As a user runs it: the checker of key reuse gives false alarms on loops under vmap.
    with jax.debug_key_reuse(False):
        outcome = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(example)
    assert outcome.failed == 0


def public_names():
    """The names at the top, and those of the families."""
    for name in pb.__all__:
        member = getattr(pb, name)
        yield name, member
        if inspect.ismodule(member):
            for inner in getattr(member, "__all__", []):
                yield f"{name}.{inner}", getattr(member, inner)


def test_every_public_function_and_class_has_an_example():
    without = {
        name
        for name, member in public_names()
        if (inspect.isfunction(member) or inspect.isclass(member))
        and ">>>" not in (member.__doc__ or "")
    }
    assert not without


def test_few_names_at_the_top():
    assert sorted(pb.__all__) == pb.__all__
    assert len([name for name in pb.__all__ if not inspect.ismodule(getattr(pb, name))]) < 75


def test_readme_example_runs_as_written(capsys):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        exec(block, {})  # the README is ours


def test_import_is_light():
    """Optional libraries, and BlackJAX (which starts XLA), are loaded only where they are used."""
    heavy = ("blackjax", "flax", "equinox", "sklearn", "matplotlib", "arviz")
    code = f"import sys, partialbayes; print([m for m in {heavy!r} if m in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"

"""Documentation runs: the example of every public name, and the code in the README."""

import doctest
import functools
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
BLOCK = r"```python\n(.*?)```"
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


@functools.cache
def names_of(path):
    """The names that the example of a function leaves behind."""
    function = functools.reduce(getattr, path.split("."), pb)
    (example,) = doctest.DocTestFinder().find(function, path, globs={})
    names = {}
    for step in example.examples:
        exec(step.source, names)
    return names


@pytest.mark.parametrize("example", list(examples()))
def test_docstring_example_runs(example):
    if before := re.search(r"# .* as in the example of ([\w.]+)", example.docstring):
        example.globs.update(names_of(before[1]))
    # As a user runs it: the checker of key reuse gives false alarms on loops under vmap.
    with jax.debug_key_reuse(False):
        outcome = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(example)
    assert outcome.failed == 0


def public_names():
    """The names at the top, and those of the rooms, each with what it stands for."""
    for name in pb.__all__:
        member = getattr(pb, name)
        yield name, member
        if inspect.ismodule(member):
            yield from ((f"{name}.{inner}", getattr(member, inner)) for inner in member.__all__)


def test_every_public_room_and_no_other_is_at_the_top():
    rooms = {
        name
        for _, name, _ in pkgutil.iter_modules(pb.__path__)
        if not name.startswith("_") and name != "cli"
    }
    assert rooms == {name for name in pb.__all__ if inspect.ismodule(getattr(pb, name))}


def test_names_are_there_once():
    for module in [pb, *(member for _, member in public_names() if inspect.ismodule(member))]:
        names = module.__all__
        assert len(set(names)) == len(names), module.__name__
        assert all(hasattr(module, name) for name in names)


def test_every_public_function_has_an_example():
    """In its docstring, or in the code of a guide. Results and errors are received, not called."""
    guides = "".join(page.read_text() for page in sorted((ROOT / "docs" / "guides").glob("*.md")))
    shown = set(re.findall(r"\bpb\.(\w+\.\w+)\(", "".join(re.findall(BLOCK, guides, re.DOTALL))))
    without = {
        name
        for name, member in public_names()
        if inspect.isfunction(member) and ">>>" not in (member.__doc__ or "") and name not in shown
    }
    assert not without


def test_few_names_at_the_top():
    assert len([name for name in pb.__all__ if not inspect.ismodule(getattr(pb, name))]) <= 35


def test_import_is_light():
    """Optional libraries, and BlackJAX (which starts XLA), are loaded only where they are used."""
    heavy = ("blackjax", "flax", "equinox", "sklearn", "matplotlib", "arviz")
    code = f"import sys, partialbayes; print([m for m in {heavy!r} if m in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"

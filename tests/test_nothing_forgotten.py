"""A new kernel, algorithm, room or docstring has all that CONTRIBUTING.md asks for."""

import ast
import importlib
import re
import typing
from pathlib import Path

import pytest

import partialbayes as pb
from partialbayes.estimators import _methods
from partialbayes.types import Algorithm, Kernel
from tests.test_rooms import ORDER

ROOT = Path(__file__).parents[1]
# Trainers that the registry has under another form.
NOT_BY_NAME = {
    "averaged": "it is made of another method",
    "ensemble": "deep_ensemble is one of them",
    "mc_dropout": "it needs a network with factors",
    "poisson_ohsmc": "it needs constants of its own",
    "trajectory": "it is made of another method",
    "two_stage": "a plus in the name of a method",
}


def builders(room, kind):
    """The public functions of a room that make something of a kind."""
    functions = {name: getattr(room, name) for name in room.__all__ if callable(getattr(room, name))}
    return [
        name
        for name, function in functions.items()
        if typing.get_type_hints(function).get("return") is kind
    ]


def used_in(place):
    """Every attribute that the code of a file or folder asks for; comments do not count."""
    path = ROOT / place
    return {
        node.attr
        for file in ([path] if path.is_file() else path.rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Attribute)
    }


def on_page(name):
    text = (ROOT / "docs" / "api" / f"{name}.rst").read_text()
    return {path.rsplit(".", 1)[1] for path in re.findall(r"^\.\. autofunction:: (\S+)", text, re.M)}


KERNELS = builders(pb.kernels, Kernel)
ALGORITHMS = builders(pb.algorithms, Algorithm)


def test_builders_are_found():
    assert {"random_walk", "mala", "from_mcmc"} <= set(KERNELS)
    assert "moved_without_correction" not in KERNELS
    assert {"ohsmc", "ensemble", "swag"} <= set(ALGORITHMS)
    assert "expected_log_likelihood" not in ALGORITHMS


@pytest.mark.parametrize(
    ("where", "there"),
    [
        ("tests/kernels/test_contract.py", used_in("tests/kernels/test_contract.py")),
        ("tests/statistical/", used_in("tests/statistical")),
        ("docs/api/kernels.rst", on_page("kernels")),
    ],
)
def test_every_kernel_is_in(where, there):
    missing = sorted(set(KERNELS) - there)
    assert not missing, f"{missing} not in {where}"


@pytest.mark.parametrize(
    ("where", "there"),
    [
        ("tests/algorithms/test_contract.py", used_in("tests/algorithms/test_contract.py")),
        ("docs/api/algorithms.rst", on_page("algorithms")),
        ("estimators/_methods.py", {*_methods.TRAINERS, *NOT_BY_NAME}),
        ("examples/compare_methods.py", {*used_in("examples/compare_methods.py"), "poisson_ohsmc"}),
    ],
)
def test_every_algorithm_is_in(where, there):
    missing = sorted(set(ALGORITHMS) - there)
    assert not missing, f"{missing} not in {where}"


def test_exceptions_are_algorithms_and_not_in_the_registry():
    assert set(NOT_BY_NAME) <= set(ALGORITHMS) - set(_methods.TRAINERS)


def test_the_registry_describes_what_it_has():
    described = _methods.describe()
    assert all(f"  {name} " in described for name in (*_methods.TRAINERS, *_methods.SAMPLERS))


def test_contributing_prints_the_rooms_in_the_order_of_imports():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    tree = re.search(r"```text\nsrc/partialbayes/\n(.*?)```", text, re.DOTALL)[1]
    rooms = re.findall(r"^  (\w+)(?:/|\.py) +\S", tree, re.M)
    assert rooms == [room for room in ORDER if room != "__main__"]


# Files whose docstrings follow CONTRIBUTING.md; add a room when all of its files do.
IN_ONE_VOICE = [
    *("types.py", "results.py", "errors.py", "parameters.py", "weights.py", "resampling.py"),
    *("annealing.py", "callbacks.py", "online.py", "__init__.py", "__main__.py", "networks/*.py"),
    *(f"{room}/*.py" for room in ("_utils", "parallel", "priors", "subsets", "plots", "likelihoods")),
    *(f"{room}/*.py" for room in ("samplers", "_engine", "training", "reporting", "prediction")),
    *(f"{room}/*.py" for room in ("model", "analysis", "io", "cli", "pretrained", "algorithms")),
    *(f"{room}/*.py" for room in ("kernels", "feynman_kac", "metrics")),
]
NOUN_FIRST = r"(The|A|An|What|How|Whether|Of|Those|One|So) "
FRAGMENT = r" +\*{0,2}\w+: (Of|As in|As for|The same)\b.*"
IDIOM = (
    r"\b(look(s|ed)? (at|in)|told|said|says|in words|goes on|go on|so many|at hand|rivals?|believed|"
    r"whole or not at all|by itself|of it|whoever|one an? (row|file|curve|snapshot))\b"
)
BRITISH = r"\b\w*(is(ation|ed|ing)|[^ofhey ]our|entred?|elled|elling)\b"
AMERICAN = {"raised", "raising", "supervised", "noised", "promised", "advised", "telling", "rising"}


def docstrings():
    """Each docstring of those files: where it is, its node, its text, and whether it is exported."""
    package = ROOT / "src" / "partialbayes"
    for path in sorted({path for pattern in IN_ONE_VOICE for path in package.glob(pattern)}):
        room = path.relative_to(package).with_suffix("").parts[0]
        exported = getattr(importlib.import_module(f"partialbayes.{room}"), "__all__", ())
        tree = ast.parse(path.read_text())
        owners = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node):
                name = getattr(node, "name", "")
                owner = owners.get(node)
                if isinstance(owner, ast.ClassDef):
                    public = owner.name in exported and not name.startswith("_")
                else:
                    public = isinstance(owner, ast.Module) and name in exported
                where = f"{path.relative_to(package)} {name}"
                yield where, node, ast.get_docstring(node), public


DOCSTRINGS = list(docstrings())


def wrong_words(text):
    """Say what is wrong with the words of a docstring."""
    spelled = (match[0] for match in re.finditer(BRITISH, text))
    yield from (word for word in spelled if word.lower() not in AMERICAN)
    yield from (match[0] for match in re.finditer(IDIOM, text))
    yield from (match[0].strip() for match in re.finditer(f"^{FRAGMENT}", text, re.M))
    if re.search(r">>> .*(_fields|isinstance|issubclass)", text):
        yield "an example that shows no use"


def missing_sections(node, text):
    """Say what the docstring of an exported function lacks."""
    arguments = node.args
    names = [each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    documented = re.search(r"^Args:\n((?:(?: +.*)?\n)*)", text, re.M)
    found = re.findall(r"^    (\w+): ", documented[1] if documented else "", re.M)
    if found != [name for name in names if name not in ("self", "cls")]:
        yield f"arguments {found}"
    returns = ast.unparse(node.returns) if node.returns else "None"
    if returns != "None" and not re.search(r"^(Returns|Yields):$", text, re.M):
        yield "Returns:"


def test_wrong_words_are_found():
    assert list(wrong_words("Standardised, whoever asks.\n\nArgs:\n    name: Of the set.\n"))
    assert not list(wrong_words("Raise four noise contours, precisely.\n\nArgs:\n    name: A name.\n"))
    assert len(DOCSTRINGS) > 500


def test_docstrings_use_plain_words():
    found = {where: words for where, _, text, _ in DOCSTRINGS if (words := list(wrong_words(text)))}
    assert not found


def test_functions_begin_with_a_verb():
    found = [
        f"{where}: {text.splitlines()[0]}"
        for where, node, text, _ in DOCSTRINGS
        if isinstance(node, ast.FunctionDef) and re.match(NOUN_FIRST, text)
    ]
    assert not found


def test_exported_functions_document_arguments_and_result():
    found = {
        where: missing
        for where, node, text, public in DOCSTRINGS
        if public
        and isinstance(node, ast.FunctionDef)
        and not any("property" in ast.unparse(decorator) for decorator in node.decorator_list)
        and (missing := list(missing_sections(node, text)))
    }
    assert not found

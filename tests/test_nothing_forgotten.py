"""A new kernel or algorithm is in every place that CONTRIBUTING.md names, and so is a new room."""

import ast
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
    assert not set(KERNELS) - there, where


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
    assert not set(ALGORITHMS) - there, where


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

"""The rooms of the package are ordered, and imports point one way."""

import ast
from pathlib import Path

import pytest
from tools.draw_rooms import FLOORS, drawing

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "partialbayes"
ORDER = """
    types results errors _utils parallel
    networks parameters likelihoods subsets priors model
    weights resampling annealing feynman_kac kernels
    samplers algorithms prediction metrics io callbacks _engine training online pretrained
    analysis plots reporting estimators cli __main__
""".split()  # noqa: SIM905
FILES = sorted(PACKAGE.rglob("*.py"))


def room(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_rooms(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "partialbayes":
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("partialbayes."):
            yield node.module.split(".")[1]
        elif isinstance(node, ast.Import):
            yield from (
                alias.name.split(".")[1]
                for alias in node.names
                if alias.name.startswith("partialbayes.")
            )


def wrong_imports(own, source):
    rooms = set(imported_rooms(ast.parse(source)))
    return sorted(name for name in rooms if ORDER.index(name) > ORDER.index(own))


def test_every_room_has_its_place():
    assert {room(path) for path in FILES} - {"__init__"} == set(ORDER)


@pytest.mark.parametrize("name", ORDER)
def test_a_room_imports_only_rooms_before_it(name):
    for path in FILES:
        if room(path) == name:
            assert not wrong_imports(name, path.read_text()), path


def test_an_import_that_points_back_is_found():
    assert wrong_imports("model", "from partialbayes.training._fit import fit") == ["training"]
    assert wrong_imports("model", "def f():\n    from partialbayes import plots") == ["plots"]
    assert not wrong_imports("plots", "import partialbayes.metrics")


def test_the_picture_of_the_rooms_is_in_the_order_of_imports():
    drawn = " ".join(FLOORS.values()).split()
    assert drawn[::-1] == [name for name in ORDER if name != "__main__"]
    assert (ROOT / "docs" / "figures" / "rooms.svg").read_text() == drawing()


def test_nothing_in_the_package_imports_the_reproduction():
    for path in FILES:
        assert "reproduction" not in {
            (getattr(node, "module", None) or "").split(".")[0]
            for node in ast.walk(ast.parse(path.read_text()))
        }, path


def test_a_package_hides_its_files_and_says_what_it_may_import():
    for folder in {path.parent for path in FILES} - {PACKAGE}:
        assert folder.parent == PACKAGE, "rooms are one level deep"
        doc = ast.get_docstring(ast.parse((folder / "__init__.py").read_text()))
        assert "may import" in doc, folder
        if not folder.name.startswith("_"):
            shown = [path.name for path in folder.glob("*.py") if not path.name.startswith("_")]
            assert not shown, f"{folder.name}/{shown} ought to begin with an underscore"

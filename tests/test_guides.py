"""The pages of the site: their code runs, their pictures exist, every public name is on one of them."""

import importlib
import inspect
import json
import re
import runpy
from importlib.util import find_spec
from pathlib import Path

import jax
import pytest

import partialbayes as pb
from partialbayes import results, types
from tests.test_documentation import public_names

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
SCRIPTS = sorted((ROOT / "examples" / "gallery").glob("*.py"))
# Those that compile the least; `make test-all` runs the others too.
QUICK_PAGES = {"algorithm", "index", "likelihood", "network"}
QUICK_SCRIPTS = {"flow", "resampling"}
OPTIONAL = ("torch", "keras")  # in no lock of ours


def blocks(page):
    """The code of a page, or of a notebook."""
    if page.suffix == ".ipynb":
        cells = json.loads(page.read_text())["cells"]
        return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)


def pages():
    for page in [*sorted(DOCS.glob("*.md")), *sorted(DOCS.glob("guides/*.*"))]:
        if blocks(page):
            marks = [] if page.stem in QUICK_PAGES else [pytest.mark.slow]
            code = "\n".join(blocks(page))
            needed = [name for name in OPTIONAL if re.search(rf"^import {name}$", code, re.M)]
            missing = [name for name in needed if find_spec(name) is None]
            if missing:
                marks.append(pytest.mark.skip(f"{', '.join(missing)} not installed: make test-torch"))
            yield pytest.param(page, marks=marks, id=page.stem)


@pytest.mark.parametrize("page", list(pages()))
@pytest.mark.filterwarnings("ignore:.*:partialbayes.errors.CollapseWarning")
def test_code_of_a_page_runs_from_top_to_bottom(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    # As a reader runs it, without the strictness of the tests.
    with jax.debug_key_reuse(False), jax.numpy_rank_promotion("allow"):
        namespace = {}
        for block in blocks(page):
            exec(compile(block, str(page), "exec"), namespace)  # the pages are ours
    if page.stem == "first_hour":
        assert namespace["scores"]["r2"] > 0.9
        assert (namespace["again"].mean == namespace["predictive"].mean).all()


def test_the_notebook_shows_what_came_out_and_nothing_of_the_machine():
    text = (DOCS / "guides" / "first_hour.ipynb").read_text()
    assert len(text) < 100_000
    for words in ("site-packages", "/home", "/work", "Traceback"):
        assert words not in text
    shown = [cell["outputs"] for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    assert sum(bool(outputs) for outputs in shown) >= 8


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(
            script, marks=() if script.stem in QUICK_SCRIPTS else (pytest.mark.slow,), id=script.stem
        )
        for script in SCRIPTS
    ],
)
@pytest.mark.filterwarnings("ignore:.*:partialbayes.errors.CollapseWarning")
def test_gallery_script_draws_its_picture(script, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.setattr("sys.argv", [str(script), "2"])  # as little training as there can be
    with jax.debug_key_reuse(False), jax.numpy_rank_promotion("allow"):
        runpy.run_path(str(script), run_name="__main__")
    assert (tmp_path / f"{script.stem}.png").stat().st_size > 1000


def test_gallery_shows_every_script_and_pages_show_pictures_that_exist():
    gallery = (DOCS / "gallery.md").read_text()
    assert len(SCRIPTS) >= 10
    assert not [script.stem for script in SCRIPTS if f"figures/{script.stem}.png" not in gallery]
    shown = [
        (page.parent / path).resolve()
        for page in DOCS.rglob("*.md")
        for path in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page.read_text())
    ]
    assert shown
    assert not [path for path in shown if not path.is_file()]
    assert max(path.stat().st_size for path in shown) < 200_000


ENTRY = re.compile(r"^\.\. auto(?:function|class|exception|data):: (\S+)", re.M)


def documented():
    """What the pages of the API document, by the name they use."""
    for page in sorted(DOCS.glob("api/*.rst")):
        yield from ENTRY.findall(page.read_text())


def found(name):
    module, member = name.rsplit(".", 1)
    return getattr(importlib.import_module(module), member)


def shortest_paths():
    """Each public thing by the path a user writes: at the top if it is there, else in its room."""
    paths = {}
    for name, member in public_names():
        if not inspect.ismodule(member):
            paths.setdefault(id(member), []).append(f"partialbayes.{name}")
    return {min(names, key=lambda name: name.count(".")) for names in paths.values()}


ALIASES = {
    f"{module.__name__}.{name}"
    for module in (types, results)
    for name in re.findall(r"^(\w+): TypeAlias", inspect.getsource(module), re.M)
}


def test_every_public_name_has_one_entry_under_its_public_path():
    entries = list(documented())
    assert len(entries) == len(set(entries))
    wanted = shortest_paths() | ALIASES
    assert wanted - set(entries) == set(), "without an entry in docs/api"
    assert set(entries) - wanted == set(), "in docs/api, and not public"


def test_every_room_has_a_page_with_its_own_entries():
    rooms = {name for name in pb.__all__ if inspect.ismodule(getattr(pb, name))}
    assert {page.stem for page in DOCS.glob("api/*.rst")} == rooms
    for room in sorted(rooms):
        members = {id(getattr(getattr(pb, room), name)) for name in getattr(pb, room).__all__}
        entries = set(ENTRY.findall((DOCS / "api" / f"{room}.rst").read_text())) - ALIASES
        assert not [name for name in entries if id(found(name)) not in members], room


def test_the_toctrees_list_every_page():
    for index in (DOCS / "index.md", DOCS / "api" / "index.md", DOCS / "guides" / "index.md"):
        trees = re.findall(r"```{toctree}\n(.*?)```", index.read_text(), re.DOTALL)
        listed = [line for tree in trees for line in tree.split("\n") if line and line[0] != ":"]
        pages = [page for end in ("md", "rst", "ipynb") for page in index.parent.glob(f"*.{end}")]
        assert ":glob:" not in "".join(trees)
        assert sorted(line for line in listed if "/" not in line) == sorted(
            page.stem for page in pages if page != index
        )


def code():
    """The code of the pages, of the README and of the examples."""
    block = re.compile(r"```(?:python|{code-block} python)\n(.*?)```", re.DOTALL)
    for page in [*DOCS.rglob("*.md"), ROOT / "README.md"]:
        yield page, "".join(block.findall(page.read_text()))
    for script in (ROOT / "examples").rglob("*.py"):
        yield script, script.read_text()


def test_what_readers_are_shown_is_public():
    """No underscored file is imported, and what is taken from a room is in the room's `__all__`."""
    public = {name for name, _ in public_names()}
    rooms = {name for name in pb.__all__ if inspect.ismodule(getattr(pb, name))}
    for path, text in code():
        assert not re.search(r"\bpartialbayes(?:\.\w+)*\._", text), path
        used = {
            name
            for name in re.findall(r"(?<![\w.])pb\.(\w+(?:\.\w+)?)", text)
            if name.split(".")[0] in rooms and "." in name
        }
        for room, names in re.findall(r"from partialbayes\.(\w+) import ([\w, ]+)", text):
            used |= {f"{room}.{name.strip()}" for name in names.split(",")}
        assert not used - public, path

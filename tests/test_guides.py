"""The pages of the site: their code runs, their pictures exist, every public name is on one of them."""

import importlib
import inspect
import re
import runpy
from pathlib import Path

import jax
import pytest

import partialbayes as pb
from partialbayes import types
from tests.test_documentation import public_names

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
SCRIPTS = sorted((ROOT / "examples" / "gallery").glob("*.py"))
# Those that compile the least; `make test-all` runs the others too.
QUICK_PAGES = {"algorithm", "index", "likelihood", "network"}
QUICK_SCRIPTS = {"flow", "resampling"}


def pages():
    for page in sorted(DOCS.glob("*.md")) + sorted(DOCS.glob("guides/*.md")):
        if "```python\n" in page.read_text():
            marks = () if page.stem in QUICK_PAGES else (pytest.mark.slow,)
            yield pytest.param(page, marks=marks, id=page.stem)


@pytest.mark.parametrize("page", list(pages()))
@pytest.mark.filterwarnings("ignore:.*:partialbayes.errors.CollapseWarning")
def test_code_of_a_page_runs_from_top_to_bottom(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    # As a reader runs it, without the strictness of the tests.
    with jax.debug_key_reuse(False), jax.numpy_rank_promotion("allow"):
        namespace = {}
        for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
            exec(compile(block, str(page), "exec"), namespace)  # the pages are ours


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
    assert max(path.stat().st_size for path in shown) < 80_000


def documented():
    """What the pages of the API document, by the name they use."""
    pattern = re.compile(r"^\.\. auto(?:function|class|exception|data):: (\S+)", re.M)
    for page in DOCS.glob("api/*.rst"):
        yield from pattern.findall(page.read_text())


def found(name):
    module, member = name.rsplit(".", 1)
    return getattr(importlib.import_module(module), member)


def test_every_public_name_has_a_page():
    names = list(documented())
    assert len(names) == len(set(names))
    there = {id(found(name)) for name in names}
    missing = {
        name
        for name, member in public_names()
        if not inspect.ismodule(member) and id(member) not in there
    }
    assert not missing


def test_every_contract_has_a_page():
    names = set(documented())
    contracts = {
        name
        for name, member in vars(types).items()
        if getattr(member, "__module__", "") == types.__name__
    }
    aliases = set(re.findall(r"^(\w+): TypeAlias", inspect.getsource(types), re.M))
    top = {name for name in contracts if name in pb.__all__}
    wanted = {f"partialbayes.{name}" for name in top} | {
        f"partialbayes.types.{n}" for n in (contracts | aliases) - top
    }
    assert not wanted - names

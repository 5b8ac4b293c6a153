"""Every script in examples/ runs, and says something."""

import json
import runpy
from pathlib import Path

import jax
import pytest

FOLDER = Path(__file__).parents[1] / "examples"
SLOW = {"two_moons.py", "which_weights.py"}  # the first is `make demo`
ELSEWHERE = {"compare_methods.py"}  # tests/test_compare.py
SHORT = {  # shown as "this is all it takes"
    "flax_model.py",
    "equinox_model.py",
    "pretrained_last_layer.py",
    "individual_weights.py",
    "heteroscedastic_regression.py",
    "which_weights.py",
}


def scripts():
    for script in sorted(FOLDER.glob("*.py")):
        if script.name in ELSEWHERE:
            continue
        marks = (pytest.mark.slow,) if script.name in SLOW else ()
        yield pytest.param(script, marks=marks, id=script.stem)


@pytest.mark.parametrize("script", list(scripts()))
def test_example_runs(script, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", [str(script)])
    runpy.run_path(str(script), run_name="__main__")
    assert "nan" not in capsys.readouterr().out.lower().split()


def test_short_examples_are_short():
    for name in SHORT:
        assert len((FOLDER / name).read_text().splitlines()) < 40


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*:partialbayes.errors.CollapseWarning")
def test_the_notebook_runs_from_top_to_bottom(monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "Agg")
    cells = json.loads((FOLDER / "first_hour.ipynb").read_text())["cells"]
    namespace = {}
    # As a reader runs it, without the strictness of the tests.
    with jax.debug_key_reuse(False), jax.numpy_rank_promotion("allow"):
        for cell in cells:
            if cell["cell_type"] == "code":
                exec("".join(cell["source"]), namespace)  # the notebook is ours
    assert namespace["scores"]["r2"] > 0.9
    assert (namespace["again"].mean == namespace["predictive"].mean).all()


def test_the_notebook_shows_what_came_out_and_nothing_of_the_machine():
    text = (FOLDER / "first_hour.ipynb").read_text()
    assert len(text) < 100_000
    for words in ("site-packages", "/home", "/work", "Traceback"):
        assert words not in text
    shown = [cell["outputs"] for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    assert sum(bool(outputs) for outputs in shown) >= 8

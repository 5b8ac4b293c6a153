"""Every script in examples/ runs, and says something."""

import runpy
from pathlib import Path

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

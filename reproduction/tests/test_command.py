"""The command: what it does, and a sentence for whatever is wrong."""

import subprocess
import sys
from pathlib import Path

import pytest

from partialbayes.errors import TrainingDivergedError
from reproduction import __main__ as command
from reproduction.__main__ import main
from reproduction.experiments.crescent import CrescentExperiment
from reproduction.registry import EXPERIMENTS

ROOT = Path(__file__).parents[2]


def said(capsys, code, *arguments):
    """What goes to standard error: one sentence."""
    assert main([str(argument) for argument in arguments]) == code
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = (line for line in err.splitlines() if line.startswith("reproduction: "))
    return line


def test_an_experiment_and_its_pictures(tmp_path, capsys):
    arguments = ["crescent", "--quick", "--methods", "MAP", "--out", str(tmp_path)]
    assert main(arguments) == 0
    assert "table.md is written" in capsys.readouterr().out
    folder = tmp_path / "crescent" / "paper"
    assert "| MAP |" in (folder / "table.md").read_text()
    (folder / "posterior.png").unlink()
    assert main(["figures", "--out", str(tmp_path)]) == 0
    assert f"{tmp_path / 'index.html'} shows all results." in capsys.readouterr().out
    assert (folder / "posterior.png").exists()


def test_what_is_wrong_with_a_request(tmp_path, capsys):
    out = ("--out", tmp_path / "out")
    line = said(capsys, 2, "crescent", "--quick", "--methods", "MAP", "HMC", *out)
    assert line.startswith("reproduction: methods of crescent in the paper track are OHSMC, SGSMC, MC")
    assert line.endswith("; there is no HMC.")
    assert "there is no such folder" in said(capsys, 2, "uci", "--data-dir", tmp_path / "none", *out)
    assert "not for all" in said(capsys, 2, "all", "--datasets", "yacht", *out)
    line = said(capsys, 2, "all", "--methods", "OHSMC", "HMC", *out)
    assert "methods of the paper track are OHSMC, SGSMC, MC, VB" in line
    assert line.endswith("there is no HMC.")
    assert "tracks of mnist are paper" in said(capsys, 2, "mnist", "--track", "best", *out)
    assert "there are no results in" in said(capsys, 2, "figures", *out)
    assert "invalid choice: 'nothing'" in said(capsys, 2, "nothing")
    assert "argument --repeats: invalid int value: 'x'" in said(capsys, 2, "moons", "--repeats", "x")
    assert not list(tmp_path.iterdir())


def test_data_that_are_nowhere_are_one_sentence(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("PARTIALBAYES_CACHE", str(tmp_path / "cache"))
    line = said(
        capsys, 2, "uci", "--datasets", "power", "--data-dir", tmp_path, "--out", tmp_path / "out"
    )
    assert f"put it in {tmp_path} as uci/power.csv.gz" in line
    assert not (tmp_path / "out").exists()


def test_all_is_checked_before_the_first_is_run(tmp_path, capsys):
    everything = ("all", "--quick", "--track", "best", "--methods", "MAP", "--out", tmp_path)
    assert "repeats is 21, but yacht, boston" in said(capsys, 2, *everything, "--repeats", "21")
    said(capsys, 2, *everything, "--data-dir", tmp_path / "nothing")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path, capsys):
    file = tmp_path / "file"
    file.write_text("")
    line = said(capsys, 2, "crescent", "--quick", "--methods", "MAP", "--out", file)
    assert line.startswith(f"reproduction: {file}")


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (TrainingDivergedError(12, None, "Try a smaller rate."), 1, "NaN or infinite at step 12"),
        (KeyboardInterrupt(), 130, "interrupted; the same command continues"),
        (ImportError("moons needs scikit-learn."), 2, "moons needs scikit-learn."),
    ],
)
def test_failures_have_a_sentence_and_a_code(tmp_path, capsys, monkeypatch, error, code, sentence):
    def fail(self, task):
        raise error

    monkeypatch.setattr(CrescentExperiment, "train", fail)
    arguments = ("crescent", "--quick", "--methods", "MAP", "--out", tmp_path)
    assert sentence in said(capsys, code, *arguments)
    assert not (tmp_path / "crescent" / "paper" / "per_run.csv").exists()


def test_help_tells_of_every_experiment(capsys):
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"\n    {name}" in text for name in (*EXPERIMENTS, "all", "figures"))
    assert main(["uci", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "Methods of the best track: MAP, OHSMC, OHSMC-diagonal" in text
    assert "Data sets: boston, concrete" in text
    assert main([]) == 2


def test_it_is_a_module_to_run():
    shown = subprocess.run(
        [sys.executable, "-m", "reproduction", "moons", "--jobs", "0"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "PATH": ""},
    )
    assert (shown.returncode, shown.stdout) == (2, "")
    assert shown.stderr.startswith("reproduction: jobs must be")
    assert shown.stderr.count("\n") == 1
    assert command.RESULTS == ROOT / "reproduction" / "results"

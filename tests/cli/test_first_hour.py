"""The ten lines of shell of the guide, as they stand there."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_a_first_hour_with_a_table(tmp_path):
    guide = (ROOT / "docs" / "guides" / "command_line.md").read_text()
    lines = re.search(r"runs them:\n\n```sh\n(.*?)```", guide, re.DOTALL)[1]
    assert len(lines.splitlines()) == 10
    shutil.copy(ROOT / "examples" / "make_houses.py", tmp_path)
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, arguments in (("partialbayes", "-m partialbayes"), ("python", "")):
        (commands / name).write_text(f'#!/bin/sh\nexec {sys.executable} {arguments} "$@"\n')
        (commands / name).chmod(0o755)
    path = f"{commands}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "PATH": path, "PYTHONUTF8": "1"}
    shown = subprocess.run(
        ["sh", "-e", "-c", lines], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert (shown.returncode, shown.stderr) == (0, "")
    for words in ("semicolons between columns", "its logarithm is learned", "('Siegburg')", "baseline"):
        assert words in shown.stdout, words
    for said in re.search(r"```text\n(.*?)```", guide, re.DOTALL)[1].splitlines():
        assert said in shown.stdout
    found = pd.read_csv(tmp_path / "predictions.csv")
    assert list(found) == ["Nr", "mean", "median", "std", "low", "high", "epistemic_std"]
    assert (found["low"] > 0).all()
    scores = json.loads((tmp_path / "scores.json").read_text())
    assert scores["scores"]["r2"] > 0.7
    assert scores["scores"]["crps"] < 0.6 * scores["baseline"]["crps"]
    assert (tmp_path / "report.html").stat().st_size > 100_000
    gardens = pd.read_parquet(tmp_path / "gardens.parquet")
    assert list(gardens)[:4] == ["Ort", "prediction", "probability_ja", "probability_nein"]

"""Bad inputs and settings: a clear error by name or a right answer, none silent."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def found():
    """What happened in a process of its own, where types are not checked before the library can."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    command = [sys.executable, str(ROOT / "tests" / "bad_inputs.py")]
    shown = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert shown.returncode == 0, shown.stderr[-2000:]
    return json.loads(shown.stdout)


def test_each_is_a_clear_error_or_a_right_answer(found):
    assert len(found) >= 149
    wrong = []
    for name, (kind, text, says) in found.items():
        clear = kind == "error" and says is not None and re.search(says, text, re.DOTALL)
        if not (clear or (kind == "right" and says is None)):
            wrong.append(f"{name}: {kind}, {text[:200]!r}; expected {says!r}")
    assert not wrong, "\n".join(wrong)


def test_every_room_that_takes_input_is_tried(found):
    rooms = {name.split(":")[0] for name in found}
    assert rooms == {"fit", "models", "estimators", "prediction", "io", "online"}

"""The lock is complete: what it holds can be installed on any day, with nothing resolved."""

import json
import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from tools.lock import Pin, gaps, key, locked, relevant

ROOT = Path(__file__).parents[1]
PINS = locked(ROOT / "requirements.lock")
RECORD = json.loads((ROOT / "requirements.json").read_text())
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
ROOTS = [
    Requirement(text)
    for texts in [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    for text in texts
    if not text.startswith("partialbayes")
]


def test_every_requirement_is_locked_on_every_python_and_platform():
    assert not list(gaps(PINS, RECORD, ROOTS))


def test_the_record_is_of_this_lock():
    assert {pin.key for pin in PINS} == set(RECORD), "run `make lock`"


def test_the_record_is_what_installed_distributions_say():
    installed = {key(one.name, one.version): one for one in metadata.distributions()}
    checked = [pin for pin in PINS if pin.key in installed]
    assert len(checked) > 100
    for pin in checked:
        requires = installed[pin.key].requires or []
        assert relevant(requires, pin.requirement.extras) == RECORD[pin.key], pin.key


def test_a_stripped_extra_is_a_gap():
    """So it was: orbax-checkpoint wants etils[epath,epy], the lock had etils."""
    stripped = locked(ROOT / "requirements.lock")
    for pin in stripped:
        pin.requirement.extras = set()
    found = list(gaps(stripped, RECORD, ROOTS))
    assert any(gap.startswith("orbax-checkpoint") and "etils" in gap for gap in found)


def test_a_missing_distribution_and_an_old_version_are_gaps():
    without = [pin for pin in PINS if pin.name != "jaxlib"]
    assert any("jaxlib" in gap and "not in the lock" in gap for gap in gaps(without, RECORD, ROOTS))
    old = [*without, Pin(Requirement("jaxlib==0.1"))]
    assert any("jaxlib==0.1 is locked" in gap for gap in gaps(old, {**RECORD, "jaxlib==0.1": []}, ROOTS))


def test_the_lock_names_no_host():
    assert "//" not in (ROOT / "requirements.lock").read_text()

"""The lock is complete: what it holds can be installed on any day, with nothing resolved."""

import json
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from tools.lock import Pin, gaps, key, locked, relevant

ROOT = Path(__file__).parents[1]
PINS = locked(ROOT / "requirements.lock")
RECORD = json.loads((ROOT / "requirements.json").read_text())


def roots(group, extras=None):
    """What the project itself requires, with a dependency group and some of its extras, or all."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    required, optional = project["project"]["dependencies"], project["project"]["optional-dependencies"]

    def grouped(name):
        for entry in project["dependency-groups"][name]:
            yield from [entry] if isinstance(entry, str) else grouped(entry["include-group"])

    texts = [
        *required,
        *(text for name in extras or optional for text in optional[name]),
        *grouped(group),
    ]
    return [Requirement(text) for text in texts if not text.startswith("partialbayes")]


ROOTS = roots("dev")


def test_every_requirement_is_locked_on_every_python_and_platform():
    assert not list(gaps(PINS, RECORD, ROOTS))


def test_the_lock_of_the_demo_is_complete_and_agrees_with_the_other():
    pins = locked(ROOT / "requirements-run.lock")
    assert not list(gaps(pins, RECORD, roots("build", ["sklearn", "plots"])))
    assert {str(pin.requirement) for pin in pins} <= {str(pin.requirement) for pin in PINS}


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


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-run.lock"])
def test_a_lock_names_no_host(name):
    assert "//" not in (ROOT / name).read_text()

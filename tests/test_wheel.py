"""The wheel holds the package alone, and the README's code runs from it with the extras it names."""

import re
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"]
    build += ["--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run(build, check=True)
    (path,) = folder.glob("*.whl")
    return path


def test_the_wheel_is_the_package_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.split("/")[0] for name in names} == {
        "partialbayes",
        f"partialbayes-{metadata.version('partialbayes')}.dist-info",
    }
    assert not [name for name in names if name.endswith((".pyc", ".csv", ".png"))]
    assert "partialbayes/py.typed" in names
    assert wheel.stat().st_size < 520_000


def readme_code():
    """The Python of the README, each block with the extras of the install line above it."""
    extras = None
    pattern = re.compile(r"pip install '?\.(?:\[([\w,]+)\])?|```python\n(.*?)```", re.DOTALL)
    for match in pattern.finditer((ROOT / "README.md").read_text()):
        if match[2] is None:
            extras = tuple(match[1].split(",")) if match[1] else ()
        elif "from_torch" not in match[2]:  # in no extra; tests/networks/test_torch.py runs it
            assert extras is not None, "an install line comes before the first code"
            yield pytest.param(extras, match[2], id="+".join(extras) or "plain")


@pytest.mark.parametrize(("extras", "code"), list(readme_code()))
def test_readme_code_runs_from_the_wheel_with_the_extras_it_names(extras, code, wheel, tmp_path):
    site = tmp_path / "site"
    link_requirements(wheel, set(extras), site)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    # It is not scored here: as little training as there can be.
    code = code.replace("(random_state=0)", '((8,), effort="fast", n_folds=2, max_iter=1)')
    code = code.replace("epochs=200", "epochs=1")
    # -S leaves this environment's packages out; the standard library and `site` are all there is.
    command = [sys.executable, "-S", "-c", f"import sys; sys.path.insert(0, {str(site)!r})\n{code}"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def link_requirements(wheel, extras, site):
    """Link what the wheel requires, and what that requires, into a folder with nothing else."""
    site.mkdir()
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        own = metadata.PathDistribution(zipfile.Path(wheel, name.removesuffix("METADATA")))
    waiting, done = [(own, extras)], set()
    for distribution, wanted in waiting:
        for requirement in map(Requirement, distribution.requires or ()):
            marker = requirement.marker
            holds = marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *wanted))
            if holds and (key := (requirement.name, *sorted(requirement.extras))) not in done:
                done.add(key)
                if requirement.name == "partialbayes":
                    waiting.append((own, requirement.extras))
                else:
                    found = metadata.distribution(requirement.name)
                    waiting.append((found, requirement.extras))
                    link(found, site)


def link(distribution, site):
    for top in {
        path.parts[0] for path in distribution.files if path.parts[0] not in ("..", "__pycache__")
    }:
        if not (site / top).exists():
            (site / top).symlink_to(distribution.locate_file(top))

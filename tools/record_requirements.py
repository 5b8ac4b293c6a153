"""Record what every distribution of requirements.lock requires, in requirements.json.

`tests/test_lock.py` reads the record to show that the lock is complete on every Python and platform it
serves, without a resolver and without the network. `make lock` runs this script.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.lock import ENVIRONMENTS, locked, relevant  # noqa: E402

WHEELS = {
    "linux": [*(f"manylinux_2_{minor}_x86_64" for minor in range(5, 35)), "manylinux2014_x86_64"],
    "darwin": [
        f"macosx_{major}_0_{machine}" for major in range(10, 16) for machine in ("arm64", "universal2")
    ],
    "win32": ["win_amd64"],
}


def metadata(pins: list[Requirement], python: str, platform: str) -> dict[str, list[str]]:
    """Ask pip for the requirements of `pins`, as they are on one Python and platform."""
    with tempfile.TemporaryDirectory() as folder:
        report, names = Path(folder, "report.json"), Path(folder, "pins.txt")
        names.write_text("".join(f"{pin.name}{pin.specifier}\n" for pin in pins))
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--dry-run",
            "--no-deps",
            "--ignore-installed",
        ]
        command += [
            "--ignore-requires-python"
        ]  # of the interpreter that runs this, not of the one asked for
        command += ["--only-binary=:all:", "--target", folder, "--python-version", python]
        command += [f"--platform={tag}" for tag in WHEELS[platform]]
        command += ["--report", str(report), "-r", str(names)]
        subprocess.run(command, check=True)
        installs = json.loads(report.read_text())["install"]
    found = [install["metadata"] for install in installs]
    return {
        f"{one['name'].lower().replace('_', '-')}=={one['version']}": one.get("requires_dist", [])
        for one in found
    }


def main() -> None:
    """Write the record anew."""
    pins = locked(ROOT / "requirements.lock")
    record: dict[str, list[str]] = {}
    for environment in ENVIRONMENTS:
        missing = [pin for pin in pins if pin.key not in record and pin.applies(environment)]
        if missing:
            requires = metadata(
                [pin.requirement for pin in missing],
                environment["python_version"],
                environment["sys_platform"],
            )
            record |= {pin.key: relevant(requires[pin.key], pin.requirement.extras) for pin in missing}
    text = json.dumps(dict(sorted(record.items())), indent=1)
    (ROOT / "requirements.json").write_text(text + "\n")


if __name__ == "__main__":
    main()

"""Record what every distribution of requirements.lock requires, in requirements.json.

`tests/test_lock.py` reads the record to show that the lock is complete on every Python and platform it
serves, without a resolver and without the network. `make lock` runs this script.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.lock import ENVIRONMENTS, Pin, key, locked, relevant

ROOT = Path(__file__).parents[1]
WHEELS = {
    "linux": [*(f"manylinux_2_{minor}_x86_64" for minor in range(5, 35)), "manylinux2014_x86_64"],
    "darwin": [
        f"macosx_{major}_0_{machine}" for major in range(10, 16) for machine in ("arm64", "universal2")
    ],
    "win32": ["win_amd64"],
}


def requirements(pins: list[Pin], python: str, platform: str) -> dict[str, list[str]]:
    """Ask pip what `pins` require on one Python and platform."""
    with tempfile.TemporaryDirectory() as folder:
        report, names = Path(folder, "report.json"), Path(folder, "pins.txt")
        names.write_text("".join(f"{pin.key}\n" for pin in pins))
        options = ["--quiet", "--dry-run", "--no-deps", "--ignore-installed", "--only-binary=:all:"]
        # pip would judge by the interpreter that runs it, not by the one asked for.
        options += ["--ignore-requires-python", f"--python-version={python}"]
        options += [f"--platform={tag}" for tag in WHEELS[platform]]
        options += [f"--target={folder}", f"--report={report}", f"--requirement={names}"]
        subprocess.run([sys.executable, "-m", "pip", "install", *options], check=True)
        found = [install["metadata"] for install in json.loads(report.read_text())["install"]]
    return {key(one["name"], one["version"]): one.get("requires_dist", []) for one in found}


def main() -> None:
    """Write the record anew."""
    pins = locked(ROOT / "requirements.lock")
    record: dict[str, list[str]] = {}
    for environment in ENVIRONMENTS:
        missing = [pin for pin in pins if pin.key not in record and pin.applies(environment)]
        if missing:
            found = requirements(missing, environment["python_version"], environment["sys_platform"])
            record |= {pin.key: relevant(found[pin.key], pin.requirement.extras) for pin in missing}
    text = json.dumps(dict(sorted(record.items())), indent=1)
    (ROOT / "requirements.json").write_text(text + "\n")


if __name__ == "__main__":
    main()

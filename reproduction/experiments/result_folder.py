"""A folder of results that fills as runs finish and survives being stopped.

``per_run.csv`` has a block of lines for each finished run, the last of them its ``seconds``; a block
that was cut off is removed when the folder is opened, or by the next run that comes.
``settings.json`` says what the runs were made with, so that runs of two settings never come into one
table. ``figures.npz`` has what the figures show of the first runs.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import MISSING, asdict, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import partialbayes
from partialbayes._utils.atomic import write_atomically
from reproduction.experiments.settings import Setting
from reproduction.figures.records import FIGURE_DATA, Record, add_records

HEADER = "dataset,method,repeat,metric,value\n"
LAST = "seconds"
"""The last metric of a run's block."""

_ROOT = Path(__file__).resolve().parents[2]
_FREE = ("repeats", "at_once", "methods", "note")
"""What may differ between runs of one table."""


class ResultFolder:
    """The results of one experiment in one track.

    Args:
        folder: ``results/<experiment>/<track>``.
        experiment: Its name.
        settings: Those of all its data sets; must be what the folder was begun with.
    """

    def __init__(self, folder: Path, experiment: str, settings: Sequence[Setting]) -> None:
        self.folder = folder
        self.file = folder / "per_run.csv"
        self._experiment, self._settings = experiment, settings
        self._begun, self._added, self._commit = (
            time.time(),
            0,
            _current_commit(),
        )  # of the code as it runs
        folder.mkdir(parents=True, exist_ok=True)
        if self.file.exists():
            with _locked(self.file) as file:
                _drop_partial_block(file)
        self._require_same_settings()

    def finished(self) -> set[tuple[str, str, int]]:
        """Data set, method and number of each run that is there whole."""
        if not self.file.exists():
            return set()
        lines = self.file.read_text().rpartition("\n")[0].splitlines()[1:]  # a cut line does not count
        rows = [line.split(",") for line in lines]
        last = [row for row in rows if len(row) == 5 and row[3] == LAST]
        for row in last:
            if not row[2].isdecimal():
                raise ValueError(
                    f"{self.file} has the line {','.join(row)!r}, whose repeat is no number."
                )
        return {(row[0], row[1], int(row[2])) for row in last}

    def append(
        self,
        dataset: str,
        method: str,
        repeat: int,
        scores: Mapping[str, float],
        records: Mapping[str, Record] | None = None,
    ) -> None:
        """Add a finished run.

        The command, its commit and its time are written down with it.

        Args:
            dataset: The data set.
            method: The method.
            repeat: The number of the run.
            scores: By metric; the last is its seconds.
            records: What the figures show of it, by name.
        """
        if list(scores)[-1] != LAST:
            raise ValueError(f"scores must end with {LAST!r}, which marks a block as whole.")
        block = "".join(
            f"{dataset},{method},{repeat},{metric},{float(value):.8g}\n"
            for metric, value in scores.items()
        )
        with _locked(self.file) as file:
            _drop_partial_block(file)
            if (dataset, method, repeat) in self.finished():
                return  # another process was faster
            if records:
                order = [name for setting in self._settings for name in setting.methods]
                add_records(self.folder / FIGURE_DATA, repeat, records, order)
            file.write(block.encode())
            self._note()

    def _note(self) -> None:
        now = time.time()
        self._added += 1
        entry = {
            "command": _command(),
            "commit": self._commit,
            "started": _format_time(self._begun),
            "finished": _format_time(now),
            "seconds": round(now - self._begun),
            "runs": self._added,
        }
        content = self._read_settings() or self._description()
        mine = (entry["started"], entry["command"])  # another process may have begun in the same second
        same = [(run.get("started"), run.get("command")) == mine for run in content["runs"]]
        if self._added > 1 and any(same):
            content["runs"][same.index(True)] = entry
        else:
            content["runs"].append(entry)
        self._write_settings(content)

    def _description(self) -> dict[str, Any]:
        declaration = {setting.dataset: asdict(setting) for setting in self._settings}
        return {
            "experiment": self._experiment,
            "track": self._settings[0].track,
            "declaration": json.loads(json.dumps(declaration)),  # tuples as lists, as on reading back
            "runs": [],
        }

    def _read_settings(self) -> dict[str, Any] | None:
        path = self.folder / "settings.json"
        if not path.exists():
            return None
        try:
            content: dict[str, Any] = json.loads(path.read_text())
        except ValueError as error:
            raise ValueError(
                f"{path} is damaged ({error}): put it right, or name another folder by --out."
            ) from error
        return content

    def _write_settings(self, content: dict[str, Any]) -> None:
        text = json.dumps(content, indent=1) + "\n"
        write_atomically(self.folder / "settings.json", text.encode(), mode=0o644)

    def _require_same_settings(self) -> None:
        """Refuse runs by other settings than those of the data set's runs that are there."""
        now = self._description()
        before = self._read_settings() or now
        defaults = {
            field.name: list(field.default) if isinstance(field.default, tuple) else field.default
            for setting in self._settings
            for field in fields(setting)
            if field.default is not MISSING
        }
        for dataset in {dataset for dataset, _, _ in self.finished()}:
            was = before["declaration"].get(dataset, {})
            for name, value in now["declaration"].get(dataset, {}).items():
                old = was.get(name, defaults.get(name))  # a setting younger than the folder
                if name not in _FREE and old != value:
                    raise ValueError(
                        f"{self.folder} has runs of {dataset} with {name}={old!r}, and this would "
                        f"add some with {value!r}: name another folder by --out."
                    )
        self._write_settings(now | {"runs": before["runs"]})


@contextmanager
def _locked(path: Path) -> Iterator[IO[bytes]]:
    """The file, open at its end and ours alone: several processes may fill one table."""
    with path.open("a+b") as file:
        with suppress(ImportError):  # a system without it: one process at a time, please
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        if file.seek(0, 2) == 0:
            file.write(HEADER.encode())
        yield file


def _drop_partial_block(file: IO[bytes]) -> None:
    """Cut off what a run that was killed left after the last whole block."""
    file.seek(0)
    lines = file.read().splitlines(keepends=True)
    whole = [
        number
        for number, line in enumerate(lines)
        if number == 0 or (line.endswith(b"\n") and line.split(b",")[3:4] == [LAST.encode()])
    ]
    file.truncate(sum(map(len, lines[: whole[-1] + 1])))
    file.seek(0, 2)


def _command() -> str:
    program = Path(sys.argv[0])
    ours = program.name == "__main__.py" and program.parent == _ROOT / "reproduction"
    return shlex.join([*(["python", "-m", "reproduction"] if ours else [program.name]), *sys.argv[1:]])


def _current_commit() -> str:
    """Return the commit of this checkout, marked if code differs from it; the version without git."""
    git = ["git", "-C", str(_ROOT)]
    try:
        asked = [*git, "rev-parse", "--short=12", "HEAD"]
        commit = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
        changed = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", "*.py"]).returncode
        return f"{commit}-dirty" if changed else commit
    except (OSError, subprocess.CalledProcessError):
        return partialbayes.__version__


def _format_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")

"""The command: ``python -m reproduction uci --track best``."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import tyro

from reproduction.data import MissingDataError
from reproduction.run import of_all, reproduce, require_possible


@dataclass
class Reproduce:
    """Run the paper's experiments: tables and figures under results/.

    What is there already is not run again, so a stopped reproduction goes on where it was.

    Example: python -m reproduction moons --repeats 10 --methods OHSMC MAP
    """

    experiment: tyro.conf.Positional[Literal["crescent", "regression", "moons", "uci", "mnist", "all"]]
    """Which one."""
    track: Literal["paper", "best"] = "paper"
    """The paper's own settings, or the best we know: learned noise, the forgetting kernel."""
    repeats: int | None = None
    """Runs of each method; as in the paper by default."""
    methods: tuple[str, ...] = ()
    """Those to run, named as in the tables, such as OHSMC MAP-HMC "Deep ensemble"; all by default. A
    wrong name is answered by the list of them."""
    datasets: tuple[str, ...] = ()
    """Of uci, those to run on; all by default."""
    data_dir: Path | None = None
    """Where real data are (folders uci, uci_splits, mnist, fashion_mnist); else the folder of
    PARTIALBAYES_DATA, the cache, or a download."""
    out: Path = Path("results")
    """The folder of all results."""
    jobs: int | None = None
    """Processes; one for each processor by default."""
    small: bool = False
    """MNIST with fewer looks, epochs and gradients: about an hour a run on a processor core."""
    quick: bool = False
    """Few particles and epochs, to see that everything runs; the numbers mean nothing."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run experiments of the paper; the exit code."""
    try:
        command = tyro.cli(Reproduce, args=arguments, prog="python -m reproduction")
        return run(command)
    except SystemExit as stop:  # --help, or arguments that do not parse
        return int(stop.code or 0)
    except (MissingDataError, ValueError, ImportError) as error:
        sys.stderr.write(f"reproduction: {error}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("reproduction: interrupted\n")
        return 130


def run(command: Reproduce) -> int:
    """Run what was asked for."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    for name in ("partialbayes", "reproduction"):
        logging.getLogger(name).addHandler(handler)
        logging.getLogger(name).setLevel(logging.INFO)
    if command.experiment == "all":
        if command.datasets:
            raise ValueError("datasets are of uci: reproduce uci, not all.")
        chosen = of_all(command.track, command.methods or None)
    else:
        chosen = {command.experiment: command.methods or None}
    asked: dict[str, Any] = {
        "track": command.track,
        "repeats": command.repeats,
        "datasets": command.datasets or None,
        "data_dir": command.data_dir,
        "jobs": command.jobs,
    }
    for name, methods in chosen.items():
        require_possible(name, methods=methods, **asked)  # of all, before the first is run
    for name, methods in chosen.items():
        folder = reproduce(
            name,
            methods=methods,
            **asked,
            out=command.out,
            small=command.small,
            quick=command.quick,
            progress=sys.stderr.isatty(),
        )
        sys.stdout.write(
            f"{folder / 'table.md'} is written; {command.out / 'index.html'} shows all results.\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())

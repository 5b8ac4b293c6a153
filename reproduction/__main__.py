"""The command: ``python -m reproduction uci --track best``, ``python -m reproduction figures``."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from partialbayes.errors import StalledError, TrainingDivergedError
from reproduction.registry import EXPERIMENTS
from reproduction.run import RESULTS, check_request, choose_experiments, draw_results, run_request

_TRACKS = tuple(dict.fromkeys(track for one in EXPERIMENTS.values() for track in one.settings))
_DESCRIPTION = """\
Run the experiments of the paper: tables and figures under reproduction/results/.

What is there already is not run again, so a reproduction that was stopped continues where it was.

examples:
  python -m reproduction moons --repeats 10 --methods OHSMC MAP
  python -m reproduction uci --track best --datasets yacht
  python -m reproduction all --quick --out /tmp/try
  python -m reproduction figures
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Answer wrong arguments in one sentence, like everything else that is wrong."""
        self.exit(2, f"reproduction: {message}; see {self.prog} --help.\n")


def _make_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m reproduction",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="experiment", required=True, metavar="experiment")
    for name, one in EXPERIMENTS.items():
        datasets = list(dict.fromkeys(s.dataset for own in one.settings.values() for s in own))
        lines = [f"Run the experiment {name}: {one.summary}."]
        lines += [
            f"Methods of the {track} track: {', '.join(one.methods(track))}." for track in one.settings
        ]
        lines += [f"Data sets: {', '.join(datasets)}."] if len(datasets) > 1 else []
        _add_options(commands.add_parser(name, help=one.summary, description=" ".join(lines)))
    everything = "all of a track, one after another"
    _add_options(commands.add_parser("all", help=everything, description=f"Run {everything}."))
    redraw = "no experiment: write the figures, tables and page of the runs that are there"
    _add_out(commands.add_parser("figures", help=redraw, description=f"{redraw.capitalize()}."))
    return parser


def _add_out(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out", type=Path, default=RESULTS, help="the folder of all results (default: %(default)s)"
    )


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--track",
        choices=_TRACKS,
        default="paper",
        help="the paper's own settings, or the best we know: learned noise, the transport kernel "
        "(default: %(default)s)",
    )
    parser.add_argument("--repeats", type=int, help="runs of each method (default: as in the paper)")
    parser.add_argument(
        "--methods",
        nargs="+",
        metavar="METHOD",
        help="those to run, named as in the tables (default: all)",
    )
    parser.add_argument(
        "--datasets", nargs="+", metavar="DATASET", help="those to run on (default: all)"
    )
    parser.add_argument(
        "--data-dir",
        type=Path,
        metavar="FOLDER",
        help="where real data are, in folders uci, uci_splits, mnist, fashion_mnist (default: that of "
        "PARTIALBAYES_DATA, the cache, or a download)",
    )
    parser.add_argument("--jobs", type=int, help="processes (default: one for each processor)")
    parser.add_argument(
        "--small",
        action="store_true",
        help="MNIST with fewer validations, epochs and gradient samples: about an hour a run on a "
        "processor core",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="few particles and epochs, to see that everything runs; the numbers mean nothing",
    )
    _add_out(parser)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns:
        The exit code: 0; 1 if training failed; 2 if the request is wrong, data are missing or a file
        cannot be read or written; 130 if interrupted.
    """
    try:
        return _run(_make_parser().parse_args(arguments))
    except SystemExit as stop:  # --help, or arguments that do not parse
        return int(stop.code or 0)
    except (TrainingDivergedError, StalledError) as error:
        return _say(str(error), 1)
    except (ValueError, ImportError) as error:
        return _say(str(error), 2)
    except OSError as error:  # data that are missing, a folder that cannot be written
        return _say(f"{error.filename}: {error.strerror}." if error.filename else str(error), 2)
    except KeyboardInterrupt:
        return _say("interrupted; the same command continues where it was.", 130)


def _say(sentence: str, code: int) -> int:
    sys.stderr.write(f"reproduction: {sentence}\n")
    return code


def _run(asked: argparse.Namespace) -> int:
    if asked.experiment == "figures":
        sys.stdout.write(f"{draw_results(asked.out)} shows all results.\n")
        return 0
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    for name in ("partialbayes", "reproduction"):
        logging.getLogger(name).addHandler(handler)
        logging.getLogger(name).setLevel(logging.INFO)
    chosen = {asked.experiment: asked.methods}
    if asked.experiment == "all":
        if asked.datasets:
            raise ValueError("--datasets is for one experiment, such as uci, not for all.")
        chosen = choose_experiments(asked.track, asked.methods)
    options = {"track", "repeats", "datasets", "data_dir", "jobs", "small", "quick"}
    common = {name: value for name, value in vars(asked).items() if name in options}
    requests = {name: check_request(name, methods=methods, **common) for name, methods in chosen.items()}
    for name, request in requests.items():  # all of them checked before the first is run
        folder = run_request(name, request, asked.out, progress=sys.stderr.isatty())
        sys.stdout.write(
            f"{folder / 'table.md'} is written; {asked.out / 'index.html'} shows all results.\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""One call reproduces an experiment: runs, tables, figures, and the page of all results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from partialbayes._utils.checks import require_positive_int
from reproduction.data import MissingDataError
from reproduction.experiments.experiment import Request
from reproduction.experiments.settings import Track
from reproduction.figures.write import write_figures
from reproduction.registry import EXPERIMENTS
from reproduction.site.index import write_index
from reproduction.tables.write import write_tables

RESULTS = Path(__file__).parent / "results"
"""The folder of all results, unless another one is named."""


def reproduce(name: str, *, out: str | Path = RESULTS, progress: bool = True, **options: Any) -> Path:
    """Run an experiment of the paper and write ``<out>/<name>/<track>/``.

    What is there already is not run again, so a run that was stopped continues where it was.

    Args:
        name: "crescent", "regression", "moons", "uci" or "mnist".
        out: The folder of all results.
        progress: Whether to show a progress bar.
        options: Those of `check_request`: track, repeats, methods, datasets, data_dir, jobs, small and
            quick.

    Returns:
        The folder written.
    """
    return run_request(name, check_request(name, **options), Path(out), progress)


def check_request(
    name: str,
    *,
    track: Track = "paper",
    repeats: int | None = None,
    methods: Sequence[str] | None = None,
    datasets: Sequence[str] | None = None,
    data_dir: str | Path | None = None,
    jobs: int | None = None,
    small: bool = False,
    quick: bool = False,
) -> Request:
    """Say what is wrong with a request before hours of work, or a folder, are spent on it.

    Real data are loaded, and downloaded where they are not there yet.

    Args:
        name: Of the experiment.
        track: "paper", its own settings; or "best", see `reproduction.experiments.settings`.
        repeats: Runs of each method; as in the paper by default.
        methods: Those to run, named as in the tables; all by default.
        datasets: Those to run on; all by default.
        data_dir: Where real data are; see `reproduction.data`.
        jobs: Processes; one for each processor by default.
        small: MNIST with fewer validations, epochs and gradient samples, about an hour a run on a
            processor core; the others are small already.
        quick: Few particles and epochs, to see that everything runs; the numbers mean nothing.

    Raises:
        ValueError: There is no such experiment, track, method or data set, or a number is wrong.
        MissingDataError: Its data are nowhere to be found.
    """
    if name not in EXPERIMENTS:
        raise ValueError(f"experiment must be one of {', '.join(EXPERIMENTS)}, not {name!r}.")
    experiment = EXPERIMENTS[name]
    if track not in experiment.settings:
        tracks = ", ".join(experiment.settings)
        raise ValueError(f"tracks of {name} are {tracks}; there is no {track}.")
    settings = experiment.settings[track]
    if quick or small:
        settings = tuple(one.quick() if quick else one.small() for one in settings)
    _require_known("methods", methods, experiment.methods(track), f"{name} in the {track} track")
    _require_known("datasets", datasets, [one.dataset for one in settings], name)
    chosen = [one for one in settings if not datasets or one.dataset in datasets]
    if jobs is not None:
        require_positive_int("jobs", jobs, "or none for as many as there are processors.")
    if repeats is not None:
        require_positive_int("repeats", repeats, "for example repeats=10.")
        few = {one.dataset: most for one in chosen if (most := one.most_repeats) and repeats > most}
        if few:
            raise ValueError(
                f"repeats is {repeats}, but {', '.join(few)} have {min(few.values())} splits: "
                "give no more, or name other datasets."
            )
    folder = None if data_dir is None else Path(data_dir)
    if folder is not None and not folder.is_dir():
        raise MissingDataError(f"data_dir is {folder}, and there is no such folder.")
    for setting in chosen:
        experiment.load_data(setting, folder)
    return Request(
        settings,
        tuple(one.dataset for one in chosen),
        tuple(dict.fromkeys(methods)) if methods else None,
        repeats,
        folder,
        jobs,
    )


def run_request(name: str, request: Request, out: Path = RESULTS, progress: bool = True) -> Path:
    """Run what was asked for, and write its tables and figures and the page of all results.

    Args:
        name: Of the experiment.
        request: From `check_request`.
        out: The folder of all results.
        progress: Whether to show a progress bar.

    Returns:
        The folder written.
    """
    folder = out / name / request.settings[0].track
    EXPERIMENTS[name].run(request, folder, progress)
    write_figures(folder, *write_tables(folder))
    write_index(out)
    return folder


def draw_results(out: Path = RESULTS) -> Path:
    """Write the tables, the figures and the page of the runs that are there; train nothing.

    Args:
        out: The folder of all results.

    Returns:
        The page.

    Raises:
        ValueError: There are no runs.
    """
    folders = [path.parent for path in sorted(out.glob("*/*/per_run.csv"))]
    if not folders:
        raise ValueError(f"there are no results in {out}: run an experiment first.")
    for folder in folders:
        write_figures(folder, *write_tables(folder))
    return write_index(out)


def choose_experiments(
    track: Track, methods: Sequence[str] | None = None
) -> dict[str, Sequence[str] | None]:
    """Return the experiments of a track, each with those of the methods that it has; None for all.

    Args:
        track: As in `reproduce`.
        methods: Those asked for; an experiment that has none of them is left out.
    """
    known = {name: one.methods(track) for name, one in EXPERIMENTS.items() if track in one.settings}
    if not methods:
        return dict.fromkeys(known)
    everywhere = list(dict.fromkeys(method for own in known.values() for method in own))
    _require_known("methods", methods, everywhere, f"the {track} track")
    chosen = {name: [method for method in methods if method in own] for name, own in known.items()}
    return {name: own for name, own in chosen.items() if own}


def _require_known(what: str, names: Sequence[str] | None, known: Sequence[str], whose: str) -> None:
    unknown = [name for name in names or () if name not in known]
    if unknown:
        raise ValueError(f"{what} of {whose} are {', '.join(known)}; there is no {', '.join(unknown)}.")

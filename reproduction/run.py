"""One call reproduces an experiment: runs, tables, figures, and the page of all results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from partialbayes._utils.checks import require_positive_int
from reproduction import data
from reproduction.data.checksums import STANDARD_SPLITS
from reproduction.experiments import crescent as crescent_runs
from reproduction.experiments import mnist
from reproduction.experiments import tabular as runner
from reproduction.experiments.problems import problem
from reproduction.experiments.settings import REGRESSION_SETS, TRACKS, Track, experiment
from reproduction.figures import collect as pictures
from reproduction.figures.write import write_figures
from reproduction.site.index import write_index
from reproduction.tables.write import write_tables

EXPERIMENTS = ("crescent", "regression", "moons", "uci", "mnist")
BEST_EXPERIMENTS = ("regression", "moons", "uci")
"""Those that have a best track."""


def of_all(track: Track, methods: Sequence[str] | None) -> dict[str, Sequence[str] | None]:
    """The experiments of a track, each with those of the methods that it has; None for all its own.

    Args:
        track: As in `reproduce`.
        methods: Those asked for; an experiment that has none of them is left out.
    """
    names = EXPERIMENTS if track == "paper" else BEST_EXPERIMENTS
    if methods is None:
        return dict.fromkeys(names)
    known = {name: _methods_of(name, track) for name in names}
    everywhere = list(dict.fromkeys(method for own in known.values() for method in own))
    _require_known("methods", methods, everywhere, f"the {track} track")
    own = {name: [method for method in methods if method in known[name]] for name in names}
    return {name: chosen for name, chosen in own.items() if chosen}


def _settings_of(name: str, track: Track) -> tuple[Any, ...]:
    if name == "crescent":
        return (crescent_runs.CrescentSetting(),)
    if name == "mnist":
        return (mnist.MnistSetting(),)
    return experiment(name, track).settings


def _methods_of(name: str, track: Track) -> list[str]:
    settings = _settings_of(name, track)
    return list(dict.fromkeys(method for setting in settings for method in setting.methods))


def _require_known(what: str, names: Sequence[str], known: Sequence[str], whose: str) -> None:
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"{what} of {whose} are {', '.join(known)}; there is no {', '.join(unknown)}.")


def require_possible(
    name: str,
    *,
    track: Track = "paper",
    repeats: int | None = None,
    methods: Sequence[str] | None = None,
    datasets: Sequence[str] | None = None,
    data_dir: str | Path | None = None,
    jobs: int | None = None,
) -> None:
    """Say what is wrong with a request before hours of work, or a folder, are spent on it.

    Real data are looked for, and downloaded where they are not there yet.

    Args:
        name: As in `reproduce`, like the others.
        track: Which one.
        repeats: Runs of each method.
        methods: Those to run.
        datasets: Those to run on.
        data_dir: Where real data are.
        jobs: Processes.
    """
    if name not in EXPERIMENTS:
        raise ValueError(f"experiment must be one of {', '.join(EXPERIMENTS)}, not {name!r}.")
    if track not in TRACKS:
        raise ValueError(f"track must be one of {', '.join(TRACKS)}, not {track!r}.")
    if track == "best" and name not in BEST_EXPERIMENTS:
        raise ValueError(f"{name} has the track paper alone; best is for regression, moons and uci.")
    known = {setting.dataset: setting for setting in _settings_of(name, track)}
    _require_known("methods", methods or (), _methods_of(name, track), f"{name} in the {track} track")
    _require_known("datasets", datasets or (), list(known), name)
    chosen = datasets or list(known)
    if jobs is not None:
        require_positive_int("jobs", jobs, "or none for as many as there are processors.")
    if repeats is not None:
        require_positive_int("repeats", repeats, "for example repeats=10.")
        split = [one for one in chosen if track == "best" and one in REGRESSION_SETS]
        if split and repeats > STANDARD_SPLITS:
            raise ValueError(
                f"repeats is {repeats}, but {', '.join(split)} have {STANDARD_SPLITS} standard splits: "
                "give no more, or name other datasets."
            )
    folder = None if data_dir is None else Path(data_dir)
    if folder is not None and not folder.is_dir():
        raise data.MissingDataError(f"data_dir is {folder}, and there is no such folder.")
    if name == "mnist":
        data.mnist(folder), data.fashion_mnist(folder)
    for dataset in chosen if name == "uci" else ():
        problem(known[dataset], folder)


def reproduce(
    name: str,
    *,
    track: Track = "paper",
    repeats: int | None = None,
    methods: Sequence[str] | None = None,
    datasets: Sequence[str] | None = None,
    data_dir: str | Path | None = None,
    out: str | Path = "results",
    jobs: int | None = None,
    small: bool = False,
    quick: bool = False,
    progress: bool = True,
) -> Path:
    """Run an experiment of the paper and write ``<out>/<name>/<track>/``.

    What is there already is not run again, so a run that was stopped goes on where it was.

    Args:
        name: "crescent", "regression", "moons", "uci" or "mnist".
        track: "paper", its own settings; or "best", see `reproduction.experiments.settings`.
        repeats: Runs of each method; as in the paper by default.
        methods: Those to run, named as in the tables; all by default.
        datasets: For "uci", those to run on; all by default.
        data_dir: Where real data are; see `partialbayes.data`.
        out: The folder of all results.
        jobs: Processes; one for each processor by default.
        small: MNIST with fewer looks, epochs and gradients, about an hour a run on a processor core; the
            others are small already.
        quick: Few particles and epochs, to see that everything runs; the numbers mean nothing.
        progress: Whether to show a progress bar.

    Returns:
        The folder written.
    """
    require_possible(
        name,
        track=track,
        repeats=repeats,
        methods=methods,
        datasets=datasets,
        data_dir=data_dir,
        jobs=jobs,
    )
    methods, datasets = (names and tuple(dict.fromkeys(names)) for names in (methods, datasets))
    folder = Path(out) / name / track
    real = None if data_dir is None else Path(data_dir)
    if name == "crescent":
        setting = crescent_runs.CrescentSetting()
        setting = crescent_runs.quick(setting) if quick else setting
        results = crescent_runs.run_crescent(setting, folder, repeats=repeats, methods=methods)
        pictures.keep_crescent(setting, folder, results.methods())
    elif name == "mnist":
        images = mnist.MnistSetting()
        images = mnist.quick(images) if quick else mnist.small(images) if small else images
        results = mnist.run_mnist(
            images,
            folder,
            repeats=repeats,
            methods=methods,
            data_dir=real,
            jobs=jobs,
            progress=progress,
        )
    else:
        declared = experiment(name, track)
        declared = runner.quick(declared) if quick else declared
        results = runner.run_experiment(
            declared,
            folder,
            repeats=repeats,
            methods=methods,
            datasets=datasets,
            data_dir=real,
            jobs=jobs,
            progress=progress,
        )
        if name in ("regression", "moons"):
            pictures.keep_predictions(declared.settings[0], folder, results.methods(), jobs)
    write_tables(folder, name)
    write_figures(folder)
    write_index(Path(out))
    return folder

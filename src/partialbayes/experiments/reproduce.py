"""One call reproduces an experiment: runs, tables, figures, and the page of all results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from partialbayes.checks import require_count
from partialbayes.data.facts import STANDARD_SPLITS
from partialbayes.experiments import crescent_runs, mnist, pictures, runner
from partialbayes.experiments.draw import write_figures
from partialbayes.experiments.index import write_index
from partialbayes.experiments.settings import Track, experiment
from partialbayes.experiments.summary import write_tables

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
    unknown = set(methods).difference(*known.values())
    if unknown:
        raise ValueError(f"no experiment has the methods {', '.join(sorted(unknown))}.")
    own = {name: [method for method in methods if method in known[name]] for name in names}
    return {name: chosen for name, chosen in own.items() if chosen}


def _methods_of(name: str, track: Track) -> set[str]:
    if name == "crescent":
        return set(crescent_runs.CrescentSetting().methods)
    if name == "mnist":
        return set(mnist.MnistSetting().methods)
    return {method for setting in experiment(name, track).settings for method in setting.methods}


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
        track: "paper", its own settings; or "best", see `partialbayes.experiments.settings`.
        repeats: Runs of each method; as in the paper by default.
        methods: Those to run, named as in the tables; all by default.
        datasets: For "uci", those to run on; all by default.
        data_dir: Where real data are; see `partialbayes.data`.
        out: The folder of all results.
        jobs: Processes; one for each processor by default.
        small: MNIST as two processor cores do it in about an hour; the others are small already.
        quick: Few particles and epochs, to see that everything runs; the numbers mean nothing.
        progress: Whether to show a progress bar.

    Returns:
        The folder written.
    """
    if name not in EXPERIMENTS:
        raise ValueError(f"experiment must be one of {', '.join(EXPERIMENTS)}, not {name!r}.")
    if track == "best" and name not in BEST_EXPERIMENTS:
        raise ValueError(f"{name} has the track paper alone; best is for regression, moons and uci.")
    if repeats is not None:
        require_count("repeats", repeats, "for example repeats=10.")
        if (name, track) == ("uci", "best") and repeats > STANDARD_SPLITS:
            raise ValueError(
                f"repeats is {repeats}, but there are {STANDARD_SPLITS} standard splits; give no more."
            )
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
            images, folder, repeats=repeats, methods=methods, data_dir=real, progress=progress
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

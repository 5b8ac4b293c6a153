"""One call reproduces an experiment: runs, tables, figures, and the page of all results."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from partialbayes.experiments import crescent_runs, runner
from partialbayes.experiments.index import write_index
from partialbayes.experiments.settings import Track, experiment
from partialbayes.experiments.summary import write_tables

EXPERIMENTS = ("crescent", "regression", "moons", "uci", "mnist")


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
        quick: Few particles and epochs, to see that everything runs; the numbers mean nothing.
        progress: Whether to show a progress bar.

    Returns:
        The folder written.
    """
    begun = time.time()
    folder = Path(out) / name / track
    data_dir = None if data_dir is None else Path(data_dir)
    if name == "crescent":
        crescent_runs.run_crescent(folder, track, repeats=repeats, methods=methods, quick=quick)
    else:
        declared = experiment(name, track)
        runner.run_experiment(
            runner.quick(declared) if quick else declared,
            folder,
            repeats=repeats,
            methods=methods,
            datasets=datasets,
            data_dir=data_dir,
            jobs=jobs,
            progress=progress,
        )
    write_tables(folder, name)
    write_index(Path(out))
    return folder

"""What an experiment is: the protocol that all share, and the loop that runs one."""

from __future__ import annotations

import logging
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tqdm.auto import tqdm

from partialbayes.errors import StalledError, TrainingDivergedError
from partialbayes.parallel._sweep import sweep
from partialbayes.results import Fit
from partialbayes.types import Algorithm
from reproduction.experiments.result_folder import ResultFolder
from reproduction.experiments.settings import Setting, Track
from reproduction.figures.records import Record

logger = logging.getLogger(__name__)


class Task(NamedTuple):
    """Runs that one worker does.

    Attributes:
        setting: The numbers, a `Setting` of the experiment's own kind.
        method: As in the tables.
        repeats: The runs.
        folder: Where the results go, and checkpoints of long runs.
        data_dir: Where real data are, see `reproduction.data`.
        progress: Whether a run may show a bar of its own.
    """

    setting: Any
    method: str
    repeats: tuple[int, ...]
    folder: Path
    data_dir: Path | None = None
    progress: bool = False

    def __str__(self) -> str:
        first, last = self.repeats[0], self.repeats[-1]
        runs = f"run {first}" if first == last else f"runs {first} to {last}"
        return f"{self.setting.dataset}, {self.method}, {runs}"


class Request(NamedTuple):
    """Runs of one experiment that are asked for.

    Attributes:
        settings: Those of a track: whole, small or quick.
        datasets: Those to run on.
        methods: Those to run; None for all.
        repeats: How many runs of each; None for as many as declared.
        data_dir: Where real data are, see `reproduction.data`.
        jobs: Processes, as in `sweep`.
    """

    settings: tuple[Setting, ...]
    datasets: tuple[str, ...]
    methods: tuple[str, ...] | None = None
    repeats: int | None = None
    data_dir: Path | None = None
    jobs: int | None = None


class Outcome(NamedTuple):
    """A finished run: its scores, and what the figures show of it."""

    scores: dict[str, float]
    records: dict[str, Record]


@dataclass(frozen=True, eq=False)
class Experiment(ABC):
    """An experiment of the paper.

    A new one is a subclass (or an object of one that is there), listed in `reproduction.registry`: how
    its runs are trained and scored, and what of them is drawn. The rest is shared.

    Attributes:
        name: Of the command and the folder of results.
        summary: What it is, for the help of the command.
        settings: One for each data set, by track.
        pictured: How many of the first runs have records for the figures.
    """

    name: str
    summary: str
    settings: Mapping[Track, tuple[Setting, ...]]
    pictured: int = 1

    @abstractmethod
    def train(self, task: Task) -> list[Any]:
        """Train the runs of a task; return one object for each run, of any kind."""

    @abstractmethod
    def score(self, task: Task, trained: Any) -> dict[str, float]:
        """Score one of the runs that `train` returned, by the metrics' names in the tables.

        Values are NaN where the run left no posterior.
        """

    def collect_records(self, task: Task, trained: Any) -> dict[str, Record]:
        """Return what the figures show of one of the runs that `train` returned, by name."""
        return {}

    def load_data(self, setting: Setting, data_dir: Path | None) -> None:  # noqa: B027
        """Load and check the real data of a setting, where it has some; its runs find them loaded."""

    def default_jobs(self) -> int | None:
        """Return how many processes to use if nobody says; None for one per processor."""
        return None

    def make_tasks(
        self, setting: Setting, methods: Sequence[str], repeats: Mapping[str, Sequence[int]]
    ) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Divide the runs of a setting into tasks: by default one each, all methods of a run in turn.

        Args:
            setting: The numbers.
            methods: Those to run.
            repeats: By method, the runs that are missing.

        Yields:
            Method and runs of each task.
        """
        for repeat in sorted({repeat for own in repeats.values() for repeat in own}):
            yield from ((method, (repeat,)) for method in methods if repeat in repeats[method])

    def methods(self, track: Track) -> tuple[str, ...]:
        """Return the methods of a track, in the order of its tables."""
        return tuple(dict.fromkeys(name for one in self.settings[track] for name in one.methods))

    def carry_out(self, task: Task) -> list[Outcome]:
        """Train and score the runs of a task."""
        before = time.process_time()  # other work on the machine does not count
        trained = self.train(task)
        scored = [self.score(task, one) for one in trained]
        seconds = {"seconds": (time.process_time() - before) / len(scored)}
        outcomes = []
        for repeat, one, scores in zip(task.repeats, trained, scored, strict=True):
            drawn = repeat < self.pictured and all(map(math.isfinite, scores.values()))
            records = self.collect_records(task, one) if drawn else {}
            outcomes.append(Outcome(scores | seconds, records))
        return outcomes

    def run(self, request: Request, folder: Path, progress: bool = True) -> None:
        """Run what is not yet in the folder.

        The work goes through `sweep`, so ``joblib.parallel_config("dask")`` and the like spread it over
        a cluster; this process alone writes the results.

        Args:
            request: What to run.
            folder: Where ``per_run.csv`` is written, one block per finished run; what it has already
                is not run again.
            progress: Whether to show a progress bar.
        """
        results = ResultFolder(folder, self.name, request.settings)
        done = results.finished()
        jobs = request.jobs or self.default_jobs()
        tasks = []
        for setting in request.settings:
            if setting.dataset not in request.datasets:
                continue
            methods = request.methods or setting.methods
            count = setting.repeats if request.repeats is None else request.repeats
            missing = {
                method: [run for run in range(count) if (setting.dataset, method, run) not in done]
                for method in methods
            }
            tasks += [
                Task(setting, method, group, folder, request.data_dir, progress and jobs == 1)
                for method, group in self.make_tasks(setting, methods, missing)
            ]
        with tqdm(total=len(tasks), disable=not progress, unit="task", leave=False) as bar:
            for task, outcomes in sweep(self.carry_out, tasks, n_jobs=jobs):
                for repeat, outcome in zip(task.repeats, outcomes, strict=True):
                    results.append(task.setting.dataset, task.method, repeat, *outcome)
                scores = outcomes[0].scores
                first, seconds = next(iter(scores)), scores["seconds"]
                mean = sum(outcome.scores[first] for outcome in outcomes) / len(outcomes)
                logger.info("%s: %s %.4g, %.1f seconds each", task, first, mean, seconds)
                bar.update()


def salvage(train: Callable[[], Fit], algorithm: Algorithm, task: Task) -> Fit | None:
    """Train a run by itself, and keep what there is of one that fails.

    Args:
        train: Calls `fit`.
        algorithm: What it trains.
        task: Whose run it is.

    Returns:
        The trained run. One that diverged ends with its best posterior before. None where there is no
        such posterior, or a second stage was to follow, or stalled.
    """
    trained: Fit | None
    try:
        trained = train()
    except TrainingDivergedError as error:
        logger.warning("%s: %s", task, error)
        trained = error.fit if algorithm.finish is None else None
    except StalledError as error:
        logger.warning("%s: %s", task, error)
        return None
    return trained

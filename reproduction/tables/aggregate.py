"""Finished runs, their means and their paired differences.

A folder ``results/<experiment>/<track>`` holds ``per_run.csv`` with the header
``dataset,method,repeat,metric,value``. A run that diverged has values that are not finite: they count
in no mean, and are counted.
"""

from __future__ import annotations

import csv
import math
from pathlib import Path
from statistics import fmean, stdev
from typing import NamedTuple

from reproduction.tables.metrics import METRICS, metric_info
from reproduction.tables.published import DATASETS, METHODS, published_score

REFERENCE = "OHSMC"
"""The method that the others are compared with."""

_REFERENCES = {
    "Deep ensemble": (REFERENCE, "OHSMC-ensemble", "MAP"),
    "Rank-one": (REFERENCE, "MAP", "Deep ensemble"),
    "Rank-one-trajectory": (REFERENCE, "Rank-one", "Deep ensemble"),
    "OHSMC-trajectory": (REFERENCE, "Deep ensemble"),
    "Deep ensemble-trajectory": (REFERENCE, "Deep ensemble"),
}
"""Of methods that are compared with others than OHSMC, too."""

_HEADER = ["dataset", "method", "repeat", "metric", "value"]
_LAST_METRICS = ("validation_nlpd", "seconds")

Runs = dict[tuple[str, str, str], dict[int, float]]
"""Values by data set, method and metric, then by repeat; in the order of the tables."""


class Row(NamedTuple):
    """A line of ``table.csv``; None where there is nothing to say.

    Attributes:
        dataset: The data set.
        method: The method.
        metric: The metric.
        mean: Over the repeats that did not diverge.
        std: Sample standard deviation over them.
        se: Standard error of the mean.
        repeats: How many they are.
        paper_mean: The paper's mean.
        paper_std: The paper's standard deviation.
    """

    dataset: str
    method: str
    metric: str
    mean: float | None
    std: float | None
    se: float | None
    repeats: int
    paper_mean: float | None
    paper_std: float | None


class Difference(NamedTuple):
    """A line of ``differences.csv``: a method less another, over the repeats that both finished.

    Attributes:
        dataset: The data set.
        method: The method.
        metric: The metric; where the best is a target, as 0.9 of coverage90, of the distance to it.
        mean: Of the differences.
        se: Its standard error; None of a single one.
        repeats: How many there are.
        verdict: "tie" below two standard errors, otherwise whether the method is "better" or "worse";
            empty for a single one.
        reference: The method that is subtracted.
    """

    dataset: str
    method: str
    metric: str
    mean: float
    se: float | None
    repeats: int
    verdict: str
    reference: str


def read_runs(path: Path) -> Runs:
    """Read the values of ``per_run.csv``; a last line that was cut short is left out.

    Args:
        path: The file.
    """
    # What follows the last end of line was cut short, even where it can be read: 0.4 may be of 0.41.
    lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    table = [[cell.strip() for cell in row] for row in csv.reader(lines)]
    if not table or table[0] != _HEADER:
        raise ValueError(f"{path} must begin with the line {','.join(_HEADER)}.")
    runs: Runs = {}
    for number, row in enumerate(table[1:], start=2):
        try:
            dataset, method, repeat, metric, text = row
            place, value = int(repeat), float(text)
        except ValueError:
            raise ValueError(f"{path}, line {number}: {','.join(row)!r} is no value of a run.") from None
        values = runs.setdefault((dataset, method, metric), {})
        if place in values:
            raise ValueError(
                f"{path}, line {number}: {metric} of {dataset}, {method}, repeat {place} is there "
                "twice; remove one of the two runs."
            )
        values[place] = value
    if not runs:
        raise ValueError(f"{path} holds no finished run.")
    return _sort(runs)


def _sort(runs: Runs) -> Runs:
    """Put runs in the order of the paper's tables, then in that of the file."""
    datasets, methods, metrics = (list(names) for names in zip(*runs, strict=True))
    metrics = [name for name in [*METRICS, *metrics] if name not in _LAST_METRICS]
    orders = [
        list(dict.fromkeys([*DATASETS, *datasets])),
        list(dict.fromkeys([*METHODS, *methods])),
        list(dict.fromkeys([*metrics, *_LAST_METRICS])),
    ]
    places = {key: [order.index(n) for order, n in zip(orders, key, strict=True)] for key in runs}
    return {key: runs[key] for key in sorted(runs, key=places.__getitem__)}


def summarize(runs: Runs, track: str) -> list[Row]:
    """Return means and standard errors, and what the paper published for them.

    Args:
        runs: From `read_runs`.
        track: ``"paper"``, ``"best"`` or ``"gap"``, see `published_score`.
    """
    rows = []
    for (dataset, method, metric), values in runs.items():
        kept = [value for value in values.values() if math.isfinite(value)]
        mean = fmean(kept) if kept else None
        std = stdev(kept) if len(kept) > 1 else None
        se = None if std is None else std / math.sqrt(len(kept))
        paper = published_score(dataset, method, metric, track) or (None, None)
        rows.append(Row(dataset, method, metric, mean, std, se, len(kept), *paper))
    return rows


def paired_differences(runs: Runs) -> list[Difference]:
    """Compare methods over the repeats that both finished: all with OHSMC, ensembles with each other.

    Args:
        runs: From `read_runs`.
    """
    found = []
    for (dataset, method, metric), values in runs.items():
        for reference in _REFERENCES.get(method, (REFERENCE,)):
            others = runs.get((dataset, reference, metric), {})
            common = [r for r in values if r in others and math.isfinite(values[r] + others[r])]
            if method == reference or metric_info(metric).best is None or not common:
                continue
            differences = [distance(metric, values[r]) - distance(metric, others[r]) for r in common]
            mean, count = fmean(differences), len(common)
            se = stdev(differences) / math.sqrt(count) if count > 1 else None
            verdict = _verdict(metric, mean, se)
            found.append(Difference(dataset, method, metric, mean, se, count, verdict, reference))
    return found


def _verdict(metric: str, mean: float, se: float | None) -> str:
    if se is None:
        return ""  # one pair says nothing
    if mean == 0.0 or abs(mean) < 2.0 * se:
        return "tie"
    return "better" if (mean > 0.0) == (metric_info(metric).best == "high") else "worse"


def distance(metric: str, value: float) -> float:
    """Return how far a value is from the best one, where the metric has one; otherwise the value."""
    best = metric_info(metric).best
    return abs(value - best) if isinstance(best, float) else value

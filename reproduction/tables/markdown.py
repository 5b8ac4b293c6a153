"""The tables to read: ours and the paper's side by side, one section a data set."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal

from reproduction.tables.aggregate import REFERENCE, Difference, Row, Runs, distance
from reproduction.tables.metrics import metric_info
from reproduction.tables.published import METHODS, published_score

_ASIDE = ("validation_nlpd", "seconds")  # never compared
_NONE = "–"
_MANY = 3  # data sets, from which on the text begins with a summary
_CUT = 0.01  # what cutting to two decimals may have taken from a figure of the paper
_BETTER, _WITHIN, _WORSE = "better", "within one standard error", "worse"

_NOTE = """\
Mean (standard deviation) ± standard error over the repeats. In bold the best of ours and what rounds
to the same: the lowest, but for accuracy and AUROC the highest, and for coverage the nearest to 0.90;
not methods with less than half of the repeats of others. The paper's RMSE, ECE and accuracy are
averages over particles and stand beside ours of that kind; where "of particles" is not said, ours are
of the mixture. Differences to OHSMC are over the repeats that both finished; below two standard
errors they are a tie. Where the best is a target (coverage 0.90, an error of zero) they are those of
the distance to it. The validation NLPD is on the scale of training, where targets are standardized.
Repeats on one table of data share rows, so their errors are somewhat too small. †
Some runs diverged and are in no mean."""


def format_tables(
    experiment: str,
    track: str,
    runs: Runs,
    rows: Sequence[Row],
    differences: Sequence[Difference],
    notes: Mapping[str, str],
) -> str:
    """Return the text of ``table.md``.

    Args:
        experiment: For the title.
        track: ``"paper"``, ``"best"`` or ``"gap"``.
        runs: From `read_runs`.
        rows: From `summarize`.
        differences: From `paired_differences`.
        notes: What a reader has to know of a data set.
    """
    datasets = list(dict.fromkeys(row.dataset for row in rows))
    parts = [f"# {experiment}: {track} track", _NOTE]
    if len(datasets) >= _MANY:
        parts += _summary(datasets, runs, rows)
    for dataset in datasets:
        own = [row for row in rows if row.dataset == dataset]
        apart = [one for one in differences if one.dataset == dataset]
        parts += [f"## {dataset}", *filter(None, [notes.get(dataset)])]
        parts += _section(dataset, track, runs, own, apart)
    return "\n\n".join(parts) + "\n"


def round_half_up(value: float, decimals: int) -> str:
    """Format a number with so many decimals; halves are rounded away from zero.

    Args:
        value: The number; noise in its last binary digits does not decide where a half goes.
        decimals: How many.

    Example:
        >>> from reproduction.tables.markdown import round_half_up
        >>> round_half_up(0.125, 2), round_half_up(0.285, 2), round_half_up(-0.0001, 2)
        ('0.13', '0.29', '0.00')
    """
    exact = Decimal(f"{value:.12g}").quantize(Decimal(1).scaleb(-decimals), ROUND_HALF_UP)
    return f"{abs(exact) if exact == 0 else exact:f}"


def _summary(datasets: Sequence[str], runs: Runs, rows: Sequence[Row]) -> list[str]:
    """NLPD of OHSMC beside the paper's, a line each data set."""
    lines = [["data set", "NLPD of OHSMC", "paper", "OHSMC against the paper", "best of ours"]]
    for dataset in datasets:
        own = {row.method: row for row in rows if (row.dataset, row.metric) == (dataset, "nlpd")}
        found = own.get(REFERENCE)
        whole = [row for row in own.values() if not _diverged(dataset, row.method, runs)]
        paper = _NONE
        if found and found.paper_mean is not None:
            paper = _mean_std(found.paper_mean, found.paper_std, 2)
        best = ", ".join(_best("nlpd", 2, whole)) or _NONE
        mark = " †" if _diverged(dataset, REFERENCE, runs) else ""
        lines.append([dataset, _cell(found, 2) + mark, paper, _against_paper(found), best])
    verdicts = [line[3] for line in lines[1:] if line[3] != _NONE]
    if not verdicts:
        return [_table([[line[0], line[1], line[4]] for line in lines])]
    counts = ", ".join(f"{name} on {verdicts.count(name)}" for name in (_BETTER, _WITHIN, _WORSE))
    return [
        _table(lines),
        f"OHSMC against the paper, on {len(verdicts)} data sets: {counts}. The standard error is of "
        "ours. The paper's figures are cut, not rounded: an NLPD of 0.91, which it has for naval, is "
        "impossible at noise of variance 1, where the least is 0.919. Each may be up to 0.01 more.",
    ]


def _against_paper(row: Row | None) -> str:
    if row is None or row.mean is None or row.paper_mean is None:
        return _NONE
    error = row.se or 0.0
    if row.mean + error < row.paper_mean:
        return _BETTER
    return _WORSE if row.mean - error > row.paper_mean + _CUT else _WITHIN


def _section(
    dataset: str, track: str, runs: Runs, rows: Sequence[Row], differences: Sequence[Difference]
) -> list[str]:
    """The paper's metrics with the paper's figures, the others, the repeats, the differences."""
    ran = list(dict.fromkeys(row.method for row in rows))
    metrics = list(dict.fromkeys(row.metric for row in rows))
    in_paper = [name for name in METHODS if published_score(dataset, name, "nlpd", track)]
    both = [*METHODS, *ran]
    listed = sorted(dict.fromkeys([*ran, *in_paper]), key=both.index)
    known = [m for m in metrics if any(published_score(dataset, name, m, track) for name in in_paper)]
    compared = [metric for metric in known if f"{metric}_particles" not in metrics]
    first = compared or [metric for metric in metrics if metric not in _ASIDE]
    rest = [metric for metric in metrics if metric not in first]
    diverged = {name: count for name in ran if (count := _diverged(dataset, name, runs))}
    names = {name: f"{name} †" if name in diverged else name for name in listed}
    decimals = {metric: _decimals(metric, rows, metric in known) for metric in metrics}

    def table(metrics: Sequence[str], methods: Sequence[str]) -> str:
        columns = [["method", *(names[name] for name in methods)]]
        for metric in metrics:
            own = {row.method: row for row in rows if row.metric == metric}
            # A mean over the runs that survived is no record.
            whole = [row for row in own.values() if row.method not in diverged]
            best = [] if metric in _ASIDE else _best(metric, decimals[metric], whole)
            cells = [_cell(own.get(name), decimals[metric], name in best) for name in methods]
            columns.append([metric_info(metric).label, *cells])
            if metric in compared:
                figures = [published_score(dataset, name, metric, track) for name in methods]
                cells = [_mean_std(*figure, decimals[metric]) if figure else _NONE for figure in figures]
                columns.append(["paper", *cells])
        return _table([list(line) for line in zip(*columns, strict=True)])

    parts = [table(first, listed)]
    if rest:
        parts.append(table(rest, ran))
    parts.append(_notes(dataset, ran, runs, diverged))
    shown = [metric for metric in first if any(one.metric == metric for one in differences)]
    for reference in dict.fromkeys(one.reference for one in differences):
        apart = [one for one in differences if one.reference == reference]
        parts.append(_differences(shown, apart, reference, names, decimals))
    return parts


def _notes(dataset: str, methods: Sequence[str], runs: Runs, diverged: dict[str, int]) -> str:
    """How often each method ran, and how many of its runs diverged."""
    counts = {name: len(_repeats(dataset, name, runs)) for name in methods}
    if len(set(counts.values())) == 1:
        text = f"Repeats: {next(iter(counts.values()))}."
    else:
        each = ", ".join(f"{name} {count}" for name, count in counts.items())
        text = f"Repeats differ: {each}."
    missing = {
        (key[2], key[1]): len(values)
        for key, values in runs.items()
        if key[0] == dataset and len(values) < counts[key[1]]
    }
    for metric in dict.fromkeys(metric for metric, _ in missing):
        few = {name: count for (one, name), count in missing.items() if one == metric}
        each = ", ".join(f"{name} {count}" for name, count in few.items())
        text += f" Fewer have a {metric_info(metric).label}: {each}."
    if diverged:
        each = ", ".join(f"{name} {count} of {counts[name]}" for name, count in diverged.items())
        text += f" Diverged: {each}."
    return text


def _repeats(dataset: str, method: str, runs: Runs) -> set[int]:
    return {r for key, values in runs.items() if key[:2] == (dataset, method) for r in values}


def _diverged(dataset: str, method: str, runs: Runs) -> int:
    """How many repeats have a value that is not finite."""
    own = [values for key, values in runs.items() if key[:2] == (dataset, method)]
    return len({r for values in own for r, value in values.items() if not math.isfinite(value)})


def _differences(
    metrics: Sequence[str],
    differences: Sequence[Difference],
    reference: str,
    names: dict[str, str],
    decimals: dict[str, int],
) -> str:
    """A line each method, with what it has more than another in each metric."""
    lines = [[f"less {reference}, paired", *(metric_info(metric).label for metric in metrics)]]
    for name in dict.fromkeys(one.method for one in differences):
        own = {one.metric: one for one in differences if one.method == name}
        lines.append([names[name], *(_difference_cell(own.get(metric), decimals) for metric in metrics)])
    return _table(lines)


def _difference_cell(one: Difference | None, decimals: dict[str, int]) -> str:
    if one is None:
        return _NONE
    text = round_half_up(one.mean, decimals[one.metric] + 1)
    text = text if text.startswith("-") else f"+{text}"
    if one.se is None:
        return f"{text}, one run"
    return f"{text} ± {round_half_up(one.se, decimals[one.metric] + 1)}, {one.verdict}"


def _decimals(metric: str, rows: Sequence[Row], known: bool) -> int:
    """As many as the paper's; more where it has none and errors in large units would vanish."""
    if metric == "seconds":
        return 1
    if not known and metric.startswith(("rmse", "mae", "crps", "width")):
        means = [abs(row.mean) for row in rows if row.metric == metric and row.mean]
        return min(6, max(2, 1 - math.floor(math.log10(min(means, default=1.0)))))
    return {"mnist": 4, "crescent": 3}.get(rows[0].dataset, 2)


def _best(metric: str, decimals: int, rows: Sequence[Row]) -> list[str]:
    """The methods whose mean is the best, or rounds to the same; of those with enough repeats."""
    enough = max((row.repeats for row in rows), default=0) / 2
    scores = {
        row.method: distance(metric, row.mean)
        for row in rows
        if row.mean is not None and row.repeats >= enough
    }
    wanted = metric_info(metric).best
    if not scores or wanted is None:
        return []
    best = (max if wanted == "high" else min)(scores.values())
    same = round_half_up(best, decimals)
    return [name for name, value in scores.items() if round_half_up(value, decimals) == same]


def _cell(row: Row | None, decimals: int, bold: bool = False) -> str:
    if row is None:
        return _NONE
    if row.mean is None:
        return "diverged"
    if row.metric == "seconds":  # runs made together share theirs, so their spread says nothing
        return round_half_up(row.mean, decimals)
    text = _mean_std(row.mean, row.std, decimals)
    text = f"**{text}**" if bold else text
    return text if row.se is None else f"{text} ± {round_half_up(row.se, decimals + 1)}"


def _mean_std(mean: float, std: float | None, decimals: int) -> str:
    spread = "" if std is None else f" ({round_half_up(std, decimals)})"
    return f"{round_half_up(mean, decimals)}{spread}"


def _table(lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table; the first line is its head, the first column to the left."""
    ruler = [":--", *["--:"] * (len(lines[0]) - 1)]
    return "\n".join(f"| {' | '.join(line)} |" for line in [lines[0], ruler, *lines[1:]])

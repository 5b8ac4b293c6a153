"""All results on one page: tables to sort, differences, figures, and how each was obtained."""

from __future__ import annotations

import csv
import html
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from partialbayes.reporting._html import picture, write_page
from reproduction.registry import EXPERIMENTS
from reproduction.site.captions import CAPTIONS, TRACKS
from reproduction.tables.metrics import metric_info
from reproduction.tables.write import read_notes

_HERE = Path(__file__).parent
_PNG_BEGINS, _PNG_ENDS = b"\x89PNG\r\n\x1a\n", b"IEND\xaeB`\x82"


class _Found(NamedTuple):
    """What a folder of results holds, as far as it has come."""

    experiment: str
    track: str
    table: list[dict[str, str]]
    differences: list[dict[str, str]]
    figures: dict[str, bytes]
    settings: Mapping[str, Any]
    runs: int

    @property
    def anchor(self) -> str:
        return f"{self.experiment}-{self.track}".replace(" ", "-")


def write_index(results: Path) -> Path:
    """Write ``index.html``, one page of all results, that needs nothing from elsewhere.

    Args:
        results: The folder of folders ``<experiment>/<track>``. What is not there yet is left out, so
            that the page can be written while experiments run.

    Returns:
        The page's path.

    Example:
        >>> import pathlib, tempfile
        >>> from reproduction.site.index import write_index
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> "No results yet" in write_index(folder).read_text()
        True
    """
    found = [one for folder in sorted(results.glob("*/*/")) if (one := _read(folder))]
    found.sort(key=lambda one: (_place(one.experiment, EXPERIMENTS), _place(one.track, TRACKS)))
    path = results / "index.html"
    body = [*_introduction(found), *(part for one in found for part in _section(one)), *_glossary(found)]
    style, script = ((_HERE / f"index.{kind}").read_text(encoding="utf-8") for kind in ("css", "js"))
    write_page(path, "partialbayes: results", body, style=style, script=script)
    return path


def _place(name: str, order: Iterable[str]) -> tuple[int, str]:
    known = list(order)
    return (known.index(name), "") if name in known else (len(known), name)


def _read(folder: Path) -> _Found | None:
    """What the folder holds; nothing if there is no sign of an experiment."""
    figures = {path.stem: path.read_bytes() for path in sorted(folder.glob("*.png"))}
    found = _Found(
        folder.parent.name,
        folder.name,
        _rows(folder / "table.csv"),
        _rows(folder / "differences.csv"),
        {name: png for name, png in figures.items() if _whole(png)},
        _settings(folder / "settings.json"),
        sum(row.get("metric") == "seconds" for row in _rows(folder / "per_run.csv")),
    )
    return found if any(found[2:]) else None


def _whole(png: bytes) -> bool:
    """Whether the file is written to its end: figures may be on their way."""
    return png.startswith(_PNG_BEGINS) and png.endswith(_PNG_ENDS)


def _rows(path: Path) -> list[dict[str, str]]:
    """The lines of a table that are whole, by column."""
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        lines = list(csv.reader(file))
    return [dict(zip(lines[0], line, strict=True)) for line in lines[1:] if len(line) == len(lines[0])]


def _settings(path: Path) -> Mapping[str, Any]:
    try:
        content: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return content


def _introduction(found: Sequence[_Found]) -> Iterator[str]:
    if not found:
        yield "<p>No results yet.</p>"
        return
    yield (
        "<p>The experiments of the paper on partial Bayesian neural networks by Feynman–Kac models, run "
        "again with this library. There are up to three tracks of each:</p><dl>"
    )
    for track, text in TRACKS.items():
        if any(one.track == track for one in found):
            yield f"<dt>{track}</dt><dd>{html.escape(text)}</dd>"
    yield (
        "</dl><p>Means are over the repeats that did not diverge; <em>std</em> is their standard "
        "deviation, <em>se</em> the standard error of the mean, and <em>paper</em> what the paper has: "
        "its RMSE, ECE and accuracy are averages over particles, also where they stand beside ours of "
        "the mixture. "
        "Differences are paired: a method less another on the same repeat; below two standard errors "
        "they are a tie. Press a heading to sort by it, and again to reverse.</p>"
    )
    links = "".join(
        f'<li><a href="#{html.escape(one.anchor)}">{_title(one)}</a> '
        f'<span class="note">{_size(one)}</span></li>'
        for one in found
    )
    yield f'<nav aria-label="Contents"><ul>{links}</ul></nav>'


def _title(one: _Found) -> str:
    return html.escape(f"{one.experiment}, {one.track} track")


def _size(one: _Found) -> str:
    datasets = len({row.get("dataset") for row in one.table})
    parts = [_count(datasets, "data set"), _count(one.runs, "run"), _count(len(one.figures), "figure")]
    return ", ".join(part for part in parts if part) or "nothing finished yet"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' if number > 1 else ''}" if number else ""


def _section(one: _Found) -> Iterator[str]:
    yield f'<section><h2 id="{html.escape(one.anchor)}">{_title(one)}</h2>'
    yield from _origin(one.settings, one.runs)
    noted = read_notes(one.settings)
    for note in dict.fromkeys(noted.values()):
        datasets = ", ".join(dataset for dataset, own in noted.items() if own == note)
        yield f'<p class="note">{html.escape(f"{datasets}: {note}")}</p>'
    if one.table:
        yield "<h3>Scores</h3>" + _sortable(one.table, f"Scores: {_title(one)}")
    elif one.runs:
        yield f"<p>There is no table yet; {_count(one.runs, 'run')} finished so far.</p>"
    else:
        yield "<p>No run has finished yet.</p>"
    if one.differences:
        yield "<h3>Paired differences</h3>"
        yield _sortable(one.differences, f"Differences: {_title(one)}")
    if one.figures:
        yield "<h3>Figures</h3>"
        for name, png in one.figures.items():
            described = f"{_words(name)}: figure of {one.experiment}, {one.track} track"
            file = quote(f"{one.experiment}/{one.track}/{name}.png")
            yield picture(png, CAPTIONS.get(name, _words(name)), described, file)
    yield "</section>"


def _words(name: str) -> str:
    text = name.replace("_", " ").replace("-", " ").strip()
    return text[:1].upper() + text[1:]


def _origin(settings: Mapping[str, Any], finished: int) -> Iterator[str]:
    """Commands, commits and times; the settings themselves."""
    runs = settings.get("runs", [])
    if runs:
        seconds = float(sum(run.get("seconds") or 0 for run in runs))
        told = [f"{_count(len(runs), 'command')}", f"{_duration(seconds)} in all"]
        counted = sum(run.get("runs") or 0 for run in runs)
        if 0 < counted < finished:  # the first commands did not count
            told.append(f"known to have made {counted} of the {finished} runs")
        commits = list(dict.fromkeys(str(run["commit"]) for run in runs if run.get("commit")))
        if commits:
            told.append(f"commit {', '.join(commits)}")
        yield f"<details{' open' if len(runs) == 1 else ''}>"
        yield f"<summary>How it was obtained: {html.escape(', '.join(told))}</summary>"
        for run in runs:
            began, ended, commit = (run.get(name, "?") for name in ("started", "finished", "commit"))
            times = f"{_time(began)} to {_time(ended)}, commit {commit}"
            if run.get("runs"):
                times += f", {_count(run['runs'], 'run')}"
            command = html.escape(str(run.get("command", "?")))
            yield f'<pre class="command">{command}</pre>'
            yield f'<p class="note">{html.escape(times)}</p>'
        yield "</details>"
    else:
        yield '<p class="note">No command has finished yet.</p>'
    if settings.get("declaration"):
        text = html.escape(json.dumps(settings["declaration"], indent=1, ensure_ascii=False))
        yield f'<details><summary>Settings</summary><pre class="settings">{text}</pre></details>'


def _time(text: Any) -> str:
    return str(text).replace("T", " ").replace("+00:00", " UTC")


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def _sortable(rows: Sequence[Mapping[str, str]], label: str) -> str:
    """A table whose headings sort it, in a box of its own that scrolls."""
    numeric = [name for name in rows[0] if any(_number(row[name]) is not None for row in rows)]

    def kind(name: str) -> str:
        return ' class="number"' if name in numeric else ""

    heads = "".join(
        f'<th scope="col"{kind(name)}><button type="button">'
        f"{html.escape(name).replace('_', ' ')}</button></th>"
        for name in rows[0]
    )
    lines = "".join(
        f"<tr>{''.join(_cell(text, kind(name)) for name, text in row.items())}</tr>\n" for row in rows
    )
    return (
        f'<div class="box" tabindex="0" role="region" aria-label="{label}"><table class="sortable">'
        f"<thead><tr>{heads}</tr></thead>\n<tbody>{lines}</tbody></table></div>"
    )


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _cell(text: str, kind: str) -> str:
    value = _number(text)
    if value is None:
        return f"<td{kind}>{html.escape(text)}</td>"
    shown = min(text.strip(), f"{value:#.4g}".rstrip("."), key=len)  # no more digits than there are
    return f'<td{kind} data-value="{value!r}">{html.escape(shown)}</td>'


def _glossary(found: Sequence[_Found]) -> Iterator[str]:
    """What the metrics on the page mean."""
    metrics = dict.fromkeys(row["metric"] for one in found for row in one.table if "metric" in row)
    told = {name: metric_info(name).meaning for name in metrics}
    entries = "".join(
        f"<dt>{html.escape(name)}</dt><dd>{html.escape(text)}</dd>"
        for name, text in told.items()
        if text
    )
    if entries:
        yield f'<section><h2 id="scores">What the scores are</h2><dl>{entries}</dl></section>'

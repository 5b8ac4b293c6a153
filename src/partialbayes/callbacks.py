"""What `fit` tells the outside as it goes: callbacks, and plain logs made of them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Float

from partialbayes.types import Posterior

__all__ = [
    "Callback",
    "Progress",
    "csv_log",
    "json_lines_log",
    "tensorboard_log",
]


class Progress(NamedTuple):
    """What happened since the last call.

    Attributes:
        begin: Steps done before this piece; the piece's first step is number ``begin + 1``.
        num_steps: Steps of the whole run.
        infos: What the steps of the piece reported, one value each, by name.
        validation_nlpd: The validation scores in the piece, by step.
        best_step: The step of the best posterior so far; 0 if there is none yet.
        best: That posterior. Copy it to keep it: the next piece may reuse its memory.
    """

    begin: int
    num_steps: int
    infos: dict[str, Float[np.ndarray, " step"]]
    validation_nlpd: dict[int, float]
    best_step: int
    best: Posterior


Callback: TypeAlias = Callable[[Progress], None]
"""Called on the host, a few times a second at most, after each piece of the run."""


def _rows(progress: Progress) -> list[dict[str, Any]]:
    length = len(next(iter(progress.infos.values())))
    rows = []
    for offset in range(length):
        step = progress.begin + offset + 1
        row: dict[str, Any] = {"step": step}
        row |= {name: float(values[offset]) for name, values in progress.infos.items()}
        row["validation_nlpd"] = progress.validation_nlpd.get(step)
        rows.append(row)
    return rows


def _appender(
    path: str | Path,
    encode: Callable[[list[dict[str, Any]], bool], str],
    step_of: Callable[[str], int | None],
) -> Callback:
    """A callback that adds rows to a text file; a resumed run goes on where it resumes."""
    file = Path(path)
    started = False

    def callback(progress: Progress) -> None:
        nonlocal started
        if not started:
            file.parent.mkdir(parents=True, exist_ok=True)
            kept = []
            if progress.begin > 0 and file.exists():
                # The log may run past the checkpoint that the run resumed from.
                for line in file.read_text().splitlines(keepends=True):
                    step = step_of(line)
                    if step is None or step <= progress.begin:
                        kept.append(line)
            file.write_text("".join(kept))
            started = True
        is_empty = file.stat().st_size == 0
        with file.open("a") as stream:
            stream.write(encode(_rows(progress), is_empty))

    return callback


def csv_log(path: str | Path) -> Callback:
    """Write one line per step to a CSV file: the step, what it reported, the validation NLPD.

    Example:
        >>> import partialbayes as pb
        >>> callbacks = [pb.callbacks.csv_log("history.csv")]
    """

    def encode(rows: list[dict[str, Any]], is_empty: bool) -> str:
        buffer = io.StringIO()
        writer = csv.DictWriter(buffer, fieldnames=list(rows[0]), lineterminator="\n")
        if is_empty:
            writer.writeheader()
        writer.writerows(rows)
        return buffer.getvalue()

    def step_of(line: str) -> int | None:
        first = line.split(",", 1)[0]
        return int(first) if first.isdigit() else None

    return _appender(path, encode, step_of)


def json_lines_log(path: str | Path) -> Callback:
    """Write one JSON object per step and line: the step, what it reported, the validation NLPD.

    Example:
        >>> import partialbayes as pb
        >>> callbacks = [pb.callbacks.json_lines_log("history.jsonl")]
    """

    def encode(rows: list[dict[str, Any]], is_empty: bool) -> str:
        return "".join(json.dumps(row) + "\n" for row in rows)

    def step_of(line: str) -> int | None:
        return int(json.loads(line)["step"])

    return _appender(path, encode, step_of)


def tensorboard_log(writer: Any) -> Callback:
    """Send every scalar to a TensorBoard writer.

    Args:
        writer: Anything with ``add_scalar(tag, value, step)``, as the summary writers of
            PyTorch and tensorboardX have.

    Example:
        >>> import partialbayes as pb
        >>> class Writer:
        ...     def add_scalar(self, tag, value, step): ...
        >>> callbacks = [pb.callbacks.tensorboard_log(Writer())]
    """

    def callback(progress: Progress) -> None:
        for row in _rows(progress):
            step = row.pop("step")
            for name, value in row.items():
                if value is not None:
                    writer.add_scalar(name, value, step)

    return callback

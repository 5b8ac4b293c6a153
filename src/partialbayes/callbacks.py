"""Callbacks, which `fit` calls as it runs, and logs made of them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import jax
import numpy as np
from jaxtyping import Float

from partialbayes._utils.checks import require_positive_int
from partialbayes._utils.warn import warn
from partialbayes.errors import LogWarning
from partialbayes.types import Posterior

__all__ = ["Callback", "Progress", "Snapshots", "csv_log", "json_lines_log", "tensorboard_log"]


class Progress(NamedTuple):
    """The progress of a run since the last call.

    Attributes:
        begin: Number of steps before this piece; the first step of the piece is number ``begin + 1``.
        num_steps: Number of steps of the whole run.
        infos: The values that the steps of the piece reported, one per step, by name.
        validation_nlpd: The validation scores in the piece, by step.
        best_step: The step of the best posterior so far; 0 if there is none yet.
        best: The best posterior so far. Copy it to keep it: the next piece may reuse its memory.
        current: ``() ->`` the posterior at the end of the piece. Copy it to keep it.

    Example:
        >>> import partialbayes as pb
        >>> def show(progress):
        ...     print(progress.begin, "of", progress.num_steps)
        >>> run = pb.Run(callbacks=[show])  # fit(..., run=run) calls it after each piece
    """

    begin: int
    num_steps: int
    infos: dict[str, Float[np.ndarray, " step"]]
    validation_nlpd: dict[int, float]
    best_step: int
    best: Posterior
    current: Callable[[], Posterior]


Callback: TypeAlias = Callable[[Progress], bool | None]
"""Called on the host, a few times a second at most, after each piece of the run.

If it returns True, the run ends there and its result is kept. If it has a method
``next_stop(done) -> step``, a piece ends at that step."""


class Snapshots:
    """Keep the posterior at regular steps, to see how the particles flow.

    Args:
        every: Number of steps between snapshots.

    Attributes:
        steps: The steps, counted from 1, after which a snapshot was taken.
        posteriors: The posterior at each of them, on the host.

    Example:
        >>> import jax.numpy as jnp, partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 5, 1]), "layers/0/*", pb.gaussian())
        >>> x = jnp.linspace(-1.0, 1.0, 8)[:, None]
        >>> snapshots = pb.callbacks.Snapshots(every=2)
        >>> algorithm = pb.ohsmc(model, num_particles=10)
        >>> trained = pb.fit(algorithm, (x, x), epochs=5, run=pb.Run(callbacks=[snapshots]))
        >>> snapshots.steps
        [2, 4]
    """

    def __init__(self, every: int) -> None:
        require_positive_int("every", every, "a number of steps.")
        self.every = every
        self.steps: list[int] = []
        self.posteriors: list[Posterior] = []

    def next_stop(self, done: int) -> int:
        """Return the step of the next snapshot.

        Args:
            done: Number of steps done.

        Returns:
            The step at which the next piece must end.
        """
        return (done // self.every + 1) * self.every

    def __call__(self, progress: Progress) -> None:
        """Take a snapshot if it is due."""
        step = progress.begin + len(next(iter(progress.infos.values())))
        if step % self.every == 0:
            self.steps.append(step)
            self.posteriors.append(jax.tree.map(np.array, progress.current()))


def _rows(progress: Progress) -> list[dict[str, Any]]:
    return [
        {
            "step": step,
            **{name: float(value) for name, value in zip(progress.infos, values, strict=True)},
            "validation_nlpd": progress.validation_nlpd.get(step),
        }
        for step, values in enumerate(zip(*progress.infos.values(), strict=True), progress.begin + 1)
    ]


class _Log:
    """A callback that appends lines to a text file; a resumed run continues where it resumes.

    A line that a kill or a full disk cut off is removed before anything is added.

    Args:
        path: The file.
        encode: ``(rows, is_empty) ->`` the text to add.
        step_of: ``line -> step``; None for a header, and a ValueError for an incomplete line.
    """

    def __init__(
        self,
        path: str | Path,
        encode: Callable[[list[dict[str, Any]], bool], str],
        step_of: Callable[[str], int | None],
    ) -> None:
        self._file = Path(path)
        self._encode = encode
        self._step_of = step_of
        self._size: int | None = None  # of the complete lines
        self._pending = ""
        self._has_warned = False

    def __call__(self, progress: Progress) -> None:
        """Append the lines of a piece; lines that could not be written are tried again."""
        try:
            if self._size is None:
                self._size = self._begin(progress.begin)
            self._pending += self._encode(_rows(progress), self._size == 0 and not self._pending)
            with self._file.open("r+b") as stream:
                stream.truncate(self._size)
                stream.seek(self._size)
                stream.write(self._pending.encode())
            self._size, self._pending = self._size + len(self._pending.encode()), ""
        except OSError as error:
            if not self._has_warned:
                warn(
                    f"the log {self._file} could not be written ({error.strerror or error}); training "
                    "continues, and the missing lines are written as soon as that is possible.",
                    LogWarning,
                )
            self._has_warned = True

    def _begin(self, done: int) -> int:
        """Return how many bytes to keep: complete lines, up to the step at which the run resumes."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        kept = 0
        if done > 0 and self._file.exists():
            for line in self._file.read_bytes().splitlines(keepends=True):
                try:
                    step = self._step_of(line.decode())
                except (ValueError, KeyError, TypeError):
                    break
                # The log may run past the checkpoint that the run resumed from.
                if not line.endswith(b"\n") or (step is not None and step > done):
                    break
                kept += len(line)
        self._file.touch()
        return kept


def csv_log(path: str | Path) -> Callback:
    """Write one line per step to a CSV file: the step, its reported values, the validation NLPD.

    Args:
        path: The file.

    Returns:
        The callback, to pass to `Run`.

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
        return None if first == "step" else int(first)

    return _Log(path, encode, step_of)


def json_lines_log(path: str | Path) -> Callback:
    """Write one line of JSON per step: the step, its reported values, the validation NLPD.

    Args:
        path: The file.

    Returns:
        The callback, to pass to `Run`.

    Example:
        >>> import partialbayes as pb
        >>> callbacks = [pb.callbacks.json_lines_log("history.jsonl")]
    """

    def encode(rows: list[dict[str, Any]], is_empty: bool) -> str:
        return "".join(json.dumps(row) + "\n" for row in rows)

    def step_of(line: str) -> int | None:
        return int(json.loads(line)["step"])

    return _Log(path, encode, step_of)


def tensorboard_log(writer: Any) -> Callback:
    """Send every scalar to a TensorBoard writer.

    Args:
        writer: An object with ``add_scalar(tag, value, step)``, such as the summary writers of
            PyTorch and tensorboardX.

    Returns:
        The callback, to pass to `Run`.

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

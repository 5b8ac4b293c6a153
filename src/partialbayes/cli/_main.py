"""The command line: a table in a file, a model in a folder, predictions in a file.

Exit codes: 0 all is well, 1 training failed, 2 something about the arguments or files is wrong, 130
interrupted. What is wrong is one sentence on standard error, and nothing is left half-written.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from partialbayes.cli import _commands as commands
from partialbayes.cli._fit import fit
from partialbayes.cli._options import estimator_options
from partialbayes.cli._report import report
from partialbayes.cli._terminal import kept_programs
from partialbayes.errors import CheckpointError, TableError, TrainingDivergedError

EXAMPLES = """Calibrated predictions from tables, by networks with random weights.

Examples:

partialbayes demo

partialbayes fit houses.csv --target price --out model

partialbayes predict model new.csv --out predictions.csv

partialbayes evaluate model held_out.csv

partialbayes report model held_out.csv --out report.html
"""

_A_TABLE = tyro.conf.arg(metavar="TABLE")
_A_MODEL = tyro.conf.arg(metavar="MODEL")


@dataclass(kw_only=True)
class _Reading:
    """How text files are read; what is not said is found from the file."""

    sep: str | None = None
    """What separates the columns of a text file, such as ; or tab."""
    decimal: str | None = None
    """The decimal mark of a text file, . or ,."""
    encoding: str | None = None
    """How letters are written in a text file, such as cp1252."""


@dataclass(kw_only=True)
class _Strict:
    strict: bool = False
    """Refuse categories that were not there in training, and text in place of numbers."""


@dataclass(kw_only=True)
class _Fit(_Reading):
    table: Annotated[tyro.conf.Positional[Path], _A_TABLE]
    """CSV, Parquet, JSON lines, Excel or Feather file."""
    target: str
    """The column to predict."""
    out: Path
    """The folder to write the model to."""
    task: Literal["regression", "classification"] | None = None
    """Guessed from the target if not given."""
    columns: tuple[str, ...] = ()
    """The only columns to predict from; all but the target by default."""
    drop: tuple[str, ...] = ()
    """Columns to leave out."""
    categorical: tuple[str, ...] = ()
    """Columns of numbers that are names of things, such as postal codes."""
    seed: int = 0
    """The same seed gives the same model."""
    resume: bool = False
    """Go on with a run that was stopped."""
    overwrite: bool = False
    """Replace a model that is there already."""


Fit: Any = dataclasses.make_dataclass(
    "Fit",
    [
        (name, kind, dataclasses.field(default=default, kw_only=True))
        for name, (kind, default) in estimator_options().items()
    ],
    bases=(_Fit,),
)
Fit.__doc__ = """Train a model on a table.

Example: partialbayes fit houses.csv --target price --out model
"""


@dataclass(kw_only=True)
class Predict(_Reading, _Strict):
    """Predict the rows of a table.

    Example: partialbayes predict model new.csv --out predictions.csv
    """

    model: Annotated[tyro.conf.Positional[Path], _A_MODEL]
    """Folder that "fit" wrote."""
    table: Annotated[tyro.conf.Positional[Path], _A_TABLE]
    """CSV, Parquet, JSON lines, Excel or Feather file; the target column is not needed."""
    out: Path
    """CSV, Parquet or JSON lines file to write."""
    coverage: float = 0.9
    """Probability inside the interval of a regression, or the set of classes."""
    conformal: bool = False
    """Whether intervals, or sets of classes beside the probabilities, come from out-of-fold errors."""
    keep: tuple[str, ...] = ()
    """Columns of the table to copy beside the predictions; those that name the row are there anyhow."""


@dataclass(kw_only=True)
class Evaluate(_Reading, _Strict):
    """Score a model on a table that has the target.

    Example: partialbayes evaluate model held_out.csv
    """

    model: Annotated[tyro.conf.Positional[Path], _A_MODEL]
    """Folder that "fit" wrote."""
    table: Annotated[tyro.conf.Positional[Path], _A_TABLE]
    """File with the target column."""
    json: bool = False
    """Print JSON instead of words."""


@dataclass(kw_only=True)
class Report(_Reading, _Strict):
    """Write a page (HTML) on a model: what was trained, how it went, how good it is.

    Example: partialbayes report model held_out.csv --out report.html
    """

    model: Annotated[tyro.conf.Positional[Path], _A_MODEL]
    """Folder that "fit" wrote."""
    table: Annotated[tyro.conf.Positional[Path | None], _A_TABLE] = None
    """File with the target column, such as new rows; by default the training file, of which the rows
    that were held out are scored."""
    out: Path = Path("report.html")
    """The page to write."""


@dataclass
class Methods:
    """List the training methods, one line each."""


@dataclass
class Demo:
    """Train on two moons and show what the probabilities know."""

    seed: int = 0
    """Of the data and the training."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if arguments in (["--version"], ["-V"]):
        sys.stdout.write(f"partialbayes {version('partialbayes')}\n")
        return 0
    runners: dict[type, Callable[[Any], int]] = {
        Fit: fit,
        Predict: commands.predict,
        Evaluate: commands.evaluate,
        Report: report,
        Methods: commands.methods,
        Demo: commands.demo,
    }
    named = [
        Annotated[kind, tyro.conf.subcommand(kind.__name__.lower(), prefix_name=False)]
        for kind in runners
    ]
    union: Any = named[0]
    for kind in named[1:]:
        union = union | kind
    try:
        command = tyro.cli(union, args=arguments, prog="partialbayes", description=EXAMPLES)
        with kept_programs(), _plain_words():
            return runners[type(command)](command)
    except SystemExit as stop:  # --help, or arguments that do not parse
        return int(stop.code or 0)
    except TrainingDivergedError as error:
        return _say(str(error), 1)
    except (TableError, CheckpointError, ValueError, ImportError) as error:
        return _say(" ".join(str(error).split()), 2)
    except OSError as error:  # a file that cannot be read, a folder that cannot be written
        return _say(f"{error.filename}: {error.strerror}." if error.filename else str(error), 2)
    except KeyboardInterrupt:
        return _say("interrupted", 130)


@contextlib.contextmanager
def _plain_words() -> Iterator[None]:
    """Warnings as sentences; what the library logs on Ctrl-C "fit" says itself."""
    logger = logging.getLogger("partialbayes")
    quiet = logging.NullHandler()
    logger.addHandler(quiet)
    with warnings.catch_warnings():
        warnings.showwarning = _show  # type: ignore[assignment]
        yield
    logger.removeHandler(quiet)


def _show(message: Any, *place: Any) -> None:
    _say(str(message), 0)


def _say(sentence: str, code: int) -> int:
    sys.stderr.write(f"partialbayes: {sentence}\n")
    return code

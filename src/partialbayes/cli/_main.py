"""Parse the command line and run one command.

Exit codes: 0 success, 1 training failed, 2 wrong arguments or files, 130 interrupted. An error is one
sentence on standard error, and no file is left half-written.
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

EXAMPLES = """Calibrated predictions from tables, with partial Bayesian neural networks.

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
    """Options for reading text files; defaults are inferred from the file."""

    sep: str | None = None
    """Column separator of a text file, such as ; or tab. Inferred by default."""
    decimal: str | None = None
    """Decimal mark of a text file, . or ,. Inferred by default."""
    encoding: str | None = None
    """Character encoding of a text file, such as cp1252. Inferred by default."""


@dataclass(kw_only=True)
class _Strict:
    strict: bool = False
    """Refuse categories that were not in the training table, and text in place of numbers."""


@dataclass(kw_only=True)
class _Fit(_Reading):
    table: Annotated[tyro.conf.Positional[Path], _A_TABLE]
    """CSV, Parquet, JSON lines, Excel or Feather file."""
    target: str
    """The column to predict."""
    out: Path
    """The folder to write the model to."""
    task: Literal["regression", "classification"] | None = None
    """The kind of problem. Inferred from the target by default."""
    columns: tuple[str, ...] = ()
    """The columns to predict from. Defaults to all but the target."""
    drop: tuple[str, ...] = ()
    """Columns to leave out."""
    categorical: tuple[str, ...] = ()
    """Columns of numbers to treat as categories, such as postal codes."""
    seed: int = 0
    """The random seed. The same seed gives the same model."""
    resume: bool = False
    """Continue a run that was stopped."""
    overwrite: bool = False
    """Replace an existing model."""


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
    """Probability of the interval (regression) or of the set of classes (classification)."""
    conformal: bool = False
    """Compute conformal intervals, or sets of classes, from out-of-fold errors."""
    keep: tuple[str, ...] = ()
    """Columns of the table to copy beside the predictions. Identifiers of rows are always copied."""


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
    """Print JSON instead of text."""


@dataclass(kw_only=True)
class Report(_Reading, _Strict):
    """Write an HTML report on a model: its parts, its training and its scores.

    Example: partialbayes report model held_out.csv --out report.html
    """

    model: Annotated[tyro.conf.Positional[Path], _A_MODEL]
    """Folder that "fit" wrote."""
    table: Annotated[tyro.conf.Positional[Path | None], _A_TABLE] = None
    """File with the target column. Defaults to the training file, of which the held-out rows are
    scored."""
    out: Path = Path("report.html")
    """The HTML file to write."""


@dataclass
class Methods:
    """List the training methods, one line each."""


@dataclass
class Demo:
    """Train on two moons and compare random weights with a point estimate."""

    seed: int = 0
    """The random seed of the data and the training."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command, and return its exit code."""
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
        with kept_programs(), _plain_warnings():
            return runners[type(command)](command)
    except SystemExit as stop:  # --help, or arguments that do not parse
        return int(stop.code or 0)
    except TrainingDivergedError as error:
        return _complain(str(error), 1)
    except (TableError, CheckpointError, ValueError, ImportError) as error:
        return _complain(" ".join(str(error).split()), 2)
    except OSError as error:  # a file that cannot be read, a folder that cannot be written
        return _complain(f"{error.filename}: {error.strerror}." if error.filename else str(error), 2)
    except KeyboardInterrupt:
        return _complain("interrupted", 130)


@contextlib.contextmanager
def _plain_warnings() -> Iterator[None]:
    """Show warnings as sentences, and silence the log messages of the library."""
    logger = logging.getLogger("partialbayes")
    quiet = logging.NullHandler()
    logger.addHandler(quiet)
    with warnings.catch_warnings():
        warnings.showwarning = _show  # type: ignore[assignment]
        yield
    logger.removeHandler(quiet)


def _show(message: Any, *place: Any) -> None:
    _complain(str(message), 0)


def _complain(sentence: str, code: int) -> int:
    sys.stderr.write(f"partialbayes: {sentence}\n")
    return code

"""The command line: a table in a file, a model in a folder, predictions in a file.

Exit codes: 0 all is well, 1 training failed, 2 something about the arguments or files is wrong, 130
interrupted. What is wrong is one sentence on standard error, and nothing is left half-written.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from partialbayes.cli import _commands as commands
from partialbayes.errors import CheckpointError, TableError, TrainingDivergedError

EXAMPLES = """Calibrated predictions from tables, by networks with random weights.

Examples:

partialbayes demo

partialbayes fit houses.csv --target price --out model

partialbayes predict model new.csv --out predictions.csv

partialbayes evaluate model held_out.csv

partialbayes report model held_out.csv --out report.html
"""


@dataclass
class Fit:
    """Train a model on a table.

    Example: partialbayes fit houses.csv --target price --out model
    """

    data: tyro.conf.Positional[Path]
    """CSV or Parquet file."""
    target: str
    """The column to predict."""
    out: Path
    """The folder to write the model to."""
    task: Literal["regression", "classification"] | None = None
    """Guessed from the target if not given."""
    method: str = "ohsmc"
    """How to train; "partialbayes methods" lists them."""
    stochastic: str = "last"
    """Which weights are random: last, first, biases, all, or a pattern such as layers/1/**."""
    epochs: int | None = None
    """How often to go through the rows; as often as makes 2000 steps by default."""
    num_particles: int = 200
    """Samples of the random weights."""
    seed: int = 0
    """The same seed gives the same model."""
    resume: bool = False
    """Go on with a run that was stopped."""
    overwrite: bool = False
    """Replace a model that is there already."""


@dataclass
class Predict:
    """Predict the rows of a table.

    Example: partialbayes predict model new.csv --out predictions.csv
    """

    model: tyro.conf.Positional[Path]
    """Folder that "fit" wrote."""
    data: tyro.conf.Positional[Path]
    """CSV or Parquet file; the target column is not needed."""
    out: Path
    """CSV or Parquet file to write."""
    coverage: float = 0.9
    """Probability inside the interval of a regression."""


@dataclass
class Evaluate:
    """Score a model on a table that has the target.

    Example: partialbayes evaluate model held_out.csv
    """

    model: tyro.conf.Positional[Path]
    """Folder that "fit" wrote."""
    data: tyro.conf.Positional[Path]
    """CSV or Parquet file with the target column."""


@dataclass
class Report:
    """Write a page (HTML) on a model: what was trained, how it went, how good it is.

    Example: partialbayes report model held_out.csv --out report.html
    """

    model: tyro.conf.Positional[Path]
    """Folder that "fit" wrote."""
    data: tyro.conf.Positional[Path | None] = None
    """CSV or Parquet file with the target column, such as held-out rows; the training file if not
    given."""
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
    runners: dict[type, Callable[[Any], int]] = {
        Fit: commands.fit,
        Predict: commands.predict,
        Evaluate: commands.evaluate,
        Report: commands.report,
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
        return runners[type(command)](command)
    except SystemExit as stop:  # --help, or arguments that do not parse
        return int(stop.code or 0)
    except TrainingDivergedError as error:
        return _say(str(error), 1)
    except (TableError, CheckpointError, ValueError, ImportError) as error:
        return _say(str(error), 2)
    except OSError as error:  # a file that cannot be read, a folder that cannot be written
        return _say(f"{error.filename}: {error.strerror}." if error.filename else str(error), 2)
    except KeyboardInterrupt:
        return _say("interrupted", 130)


def _say(sentence: str, code: int) -> int:
    sys.stderr.write(f"partialbayes: {sentence}\n")
    return code

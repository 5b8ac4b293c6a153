"""Tables in files, as people have them: what separates the columns and how letters are written is found.

A text file is read as text throughout; what its cells mean is for `_schema` to say.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from partialbayes._utils.atomic import write_atomically
from partialbayes.errors import TableError
from partialbayes.estimators import _cells as cells

_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars", r"\s+": "spaces"}
_PACKED: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
_EXCEL = (".xlsx", ".xls", ".xlsm", ".xlsb", ".ods")
_PARQUET, _FEATHER = (".parquet", ".pq"), (".feather", ".arrow")
_JSON = (".json", ".jsonl", ".ndjson")
_SAMPLE_LINES = 200
_KNOWN = "CSV, Parquet, JSON lines, Excel and Feather files are read"


class Format(NamedTuple):
    """How a file is to be read; None is found from the file.

    Attributes:
        sep: What separates columns; "tab" is a tab.
        decimal: The decimal mark, "." or ",".
        encoding: How letters are written, such as "utf-8" or "cp1252".
    """

    sep: str | None = None
    decimal: str | None = None
    encoding: str | None = None


class Table(NamedTuple):
    """A table from a file.

    Attributes:
        frame: Its columns.
        decimal: The decimal mark, where it was found or given; None where numbers are numbers already.
        notes: What was found, in sentences.
    """

    frame: Any
    decimal: str | None
    notes: tuple[str, ...]


def read_table(path: str | Path, how: Format | None = None) -> Table:
    """Read a table from a CSV, Parquet, JSON, Excel or Feather file, by the ending of its name.

    Args:
        path: The file; ``.gz``, ``.bz2`` and ``.xz`` after the ending are unpacked.
        how: What is known about a text file.

    Raises:
        TableError: What is wrong, in a sentence.
    """
    path, how = Path(path), how or Format()
    if path.is_dir():
        raise TableError(f"{path} is a folder, not a table; {_KNOWN}.")
    if not path.is_file():
        raise TableError(f"there is no file {path}.")
    if path.stat().st_size == 0:
        raise TableError(f"{path} is empty.")
    if how.decimal not in (None, ".", ","):
        raise TableError(f"decimal must be '.' or ',', not {how.decimal!r}.")
    suffix = path.suffix.lower()
    packed = _PACKED.get(suffix)
    if packed is not None:
        suffix = Path(path.stem).suffix.lower()
    notes: list[str] = []
    decimal = how.decimal
    try:
        if suffix in _PARQUET:
            frame = pd.read_parquet(path)
        elif suffix in _FEATHER:
            frame = pd.read_feather(path)
        elif suffix in _EXCEL:
            frame = _read_excel(path)
        else:
            with (packed or open)(path, "rb") as file:
                content = file.read()
            _refuse_binary(path, content)
            if suffix in _JSON:
                frame = _read_json(path, content)
            else:
                frame, decimal = _read_csv(path, content, how, notes)
    except (TableError, MemoryError):
        raise
    except UnicodeError:
        raise TableError(
            f"{path} cannot be read as {how.encoding or 'utf-8'}; --encoding says how its letters are "
            "written, such as cp1252."
        ) from None
    except LookupError:
        raise TableError(
            f"there is no encoding {how.encoding!r}; try utf-8, cp1252 or utf-16."
        ) from None
    except Exception as error:  # whatever the readers raise, it is the file
        text = (
            str(error).strip().splitlines()[0].rstrip(".")
            if str(error).strip()
            else type(error).__name__
        )
        raise TableError(f"{path} cannot be read as a table ({text}).") from None
    if frame.shape[1] == 0:
        raise TableError(f"{path} has no columns.")
    if len(frame) == 0:
        raise TableError(f"{path} has no rows below its header.")
    frame.columns = [str(name).strip() for name in frame.columns]
    twice = frame.columns[frame.columns.duplicated()]
    if len(twice):
        raise TableError(f"{path} has two columns {twice[0]!r}; rename one.")
    if frame.columns.size > 1 and all(_is_number(name) for name in frame.columns):
        notes.append(
            f"the first line of {path.name} holds numbers alone, and is taken for the names of its "
            "columns; does it lack a header?"
        )
    return Table(frame, decimal, tuple(notes))


def write_table(path: str | Path, frame: Any) -> None:
    """Write a CSV, Parquet or JSON lines file, whole or not at all."""
    path = Path(path)
    content = io.BytesIO()
    suffix = path.suffix.lower()
    if suffix in _PARQUET:
        frame.to_parquet(content, index=False)
    elif suffix in (".jsonl", ".ndjson"):
        frame.to_json(content, orient="records", lines=True, force_ascii=False)
    elif suffix == ".tsv":
        frame.to_csv(content, index=False, sep="\t")
    else:
        frame.to_csv(content, index=False)
    try:
        write_atomically(path, content.getvalue(), mode=0o644)
    except OSError as error:
        raise TableError(f"{path} cannot be written ({error.strerror or error}).") from None


def _read_csv(path: Path, content: bytes, how: Format, notes: list[str]) -> tuple[Any, str | None]:
    """The frame, and the decimal mark if that is settled for the whole file."""
    encoding = how.encoding or _encoding(content)
    text = content.decode(encoding)
    if not text.strip():
        raise TableError(f"{path} holds nothing but white space.")
    sep = {"tab": "\t", "\\t": "\t", "space": r"\s+"}.get(how.sep or "", how.sep) or _separator(text)
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)  # cells beyond the header would be lost
        try:
            frame = pd.read_csv(
                io.StringIO(text),
                sep=sep,
                dtype=str,
                keep_default_na=False,
                skipinitialspace=True,
                engine="c" if len(sep) == 1 else "python",
                index_col=False,
            )
        except pd.errors.ParserWarning:
            raise TableError(
                f"the lines of {path} have more cells than its header; is a name missing, or is a comma "
                "inside a cell without quotes?"
            ) from None
    found = []
    if sep != "," and how.sep is None:
        found.append(f"{_SEPARATORS.get(sep, repr(sep))} between columns")
    columns = [frame[name].to_numpy(object) for name in frame.columns]
    mark = how.decimal or cells.decimal_mark(columns)
    if mark == "," and how.decimal is None:
        found.append("decimal commas")
    if encoding not in ("utf-8", "utf-8-sig") and how.encoding is None:
        found.append(f"letters written as {encoding}")
    if found:
        notes.append(f"{path.name} has {_and(found)}")
    renamed = [
        name for name in frame.columns if name.rpartition(".")[0] in frame.columns and "." in name
    ]
    if renamed and renamed[0] not in text.splitlines()[0]:
        notes.append(
            f"{path.name} has two columns {renamed[0].rpartition('.')[0]!r}; one is {renamed[0]!r}"
        )
    if sep == ";" and mark is None and (unsure := _first_between_marks(columns)):
        notes.append(f"{unsure!r} is read with a decimal comma; --decimal . takes it for thousands")
        return frame, ","
    return frame, how.decimal


def _first_between_marks(columns: list[Any]) -> str | None:
    """The first cell such as 1,234, which is a thousand or a bit more than one."""
    for column in columns:
        for cell in column[:1000]:
            if re.fullmatch(r"-?\d{1,3},\d{3}", cell):
                return str(cell)
    return None


def _read_json(path: Path, content: bytes) -> Any:
    """Records in an array, or one to a line."""
    text = content.decode("utf-8-sig")
    remedy = "write one object with the columns per line, or an array of such objects"
    try:
        if text.lstrip().startswith("["):
            records = json.loads(text)
        else:
            records = [json.loads(line) for line in text.splitlines() if line.strip()]
    except ValueError as error:
        raise TableError(f"{path} is not a table as JSON ({error}); {remedy}.") from None
    if not all(isinstance(record, dict) for record in records):
        raise TableError(f"{path} is not a table as JSON; {remedy}.")
    for record in records:
        for name, cell in record.items():
            if isinstance(cell, list | dict):
                raise TableError(
                    f"column {name!r} of {path} holds lists or objects; make cells of them first."
                )
    return pd.DataFrame(records)


def _read_excel(path: Path) -> Any:
    try:
        return pd.read_excel(path)
    except ImportError as error:
        raise TableError(
            f"{path} is an Excel file, and reading it needs {error.name or 'openpyxl'}: pip install "
            f"{error.name or 'openpyxl'}, or save it as CSV."
        ) from None


def _refuse_binary(path: Path, content: bytes) -> None:
    for start, what in (
        (b"PAR1", "a Parquet file; name it .parquet"),
        (b"PK\x03\x04", "an archive, perhaps an Excel file; name it .xlsx, or unpack it"),
        (b"\x1f\x8b", "packed by gzip; name it .csv.gz"),
        (b"ARROW1", "a Feather file; name it .feather"),
        (b"%PDF", "a PDF, and not a table"),
        (b"\xd0\xcf\x11\xe0", "an old Excel file; name it .xls"),
    ):
        if content.startswith(start):
            raise TableError(f"{path} is {what}.")
    if b"\x00" in content[:4096] and not content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise TableError(f"{path} is not text, and cannot be read as a table; {_KNOWN}.")


def _encoding(content: bytes) -> str:
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return "cp1252" if not set(content) & {0x81, 0x8D, 0x8F, 0x90, 0x9D} else "latin-1"
    return "utf-8-sig" if content.startswith(b"\xef\xbb\xbf") else "utf-8"


def _separator(text: str) -> str:
    """The candidate that cuts the lines into the same number of pieces, and into most."""
    lines = [line for line in text.splitlines()[:_SAMPLE_LINES] if line.strip()]
    best, best_score = ",", (0.0, 0)
    for sep in (",", ";", "\t", "|"):
        widths = [len(row) for row in csv.reader(lines, delimiter=sep) if row]
        width = widths[0]
        # The header has no cells with marks or blanks in them: it says how many columns there are.
        score = (sum(count == width for count in widths) / len(widths), width)
        if width > 1 and score > best_score:
            best, best_score = sep, score
    if (
        best_score[1] == 0
        and len({len(line.split()) for line in lines}) == 1
        and len(lines[0].split()) > 1
    ):
        return r"\s+"
    return best


def _is_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True


def _and(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"

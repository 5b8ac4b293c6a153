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
from partialbayes.estimators._schema import is_number

_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars", r"\s+": "spaces"}
_CANDIDATES = (",", ";", "\t", "|")
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
    if frame.columns.size > 1 and all(is_number(name) for name in frame.columns):
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
    text, said = _without_comments(text, path, notes)
    if not text.strip():
        raise TableError(f"{path} has no columns.")
    given = {"tab": "\t", "\\t": "\t", "space": r"\s+"}.get(how.sep or "", how.sep) or said
    sep = given or _separator(text)
    text = _from_header(text, sep, path, notes)
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
        except pd.errors.ParserError as error:
            if match := re.search(r"EOF inside string starting at row (\d+)", str(error)):
                raise TableError(
                    f"a quotation mark in row {match[1]} of {path} is never closed; close or remove it."
                ) from None
            raise
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


def _without_comments(text: str, path: Path, notes: list[str]) -> tuple[str, str | None]:
    """The text without what spreadsheets and instruments write above a table, and the separator said."""
    said = None
    if match := re.match(r'"?sep=(.)"?\r?\n', text):
        said, text = match[1], text[match.end() :]
    lines = text.splitlines(keepends=True)
    count = next((place for place, line in enumerate(lines) if not line.startswith("#")), 0)
    if count:
        notes.append(f"{path.name} begins with {count} lines of comment, which are left out")
    return "".join(lines[count:]), said


def _from_header(text: str, sep: str, path: Path, notes: list[str]) -> str:
    """The text from its header on, as wide as the lines below it."""
    if len(sep) != 1:
        return text
    lines = text.splitlines(keepends=True)
    above = _above_header(lines, sep)
    if above:
        notes.append(f"the first {above} lines of {path.name} are no header, and are left out")
    lines = lines[above:]
    rows = [row for row in csv.reader(lines[:_SAMPLE_LINES], delimiter=sep) if row]
    width = len(rows[0])
    if len(rows) > 1 and all(len(row) == width + 1 and not row[-1] for row in rows[1:]):
        lines[0] = lines[0].rstrip("\r\n") + sep + "\n"  # every line but the first ends with a separator
    return "".join(lines)


def _above_header(lines: list[str], sep: str) -> int:
    """How many lines there are above the header: a title and blanks, in one cell each."""
    if any(mark in lines[0] for mark in _CANDIDATES):
        return 0
    for place, line in enumerate(lines[:20]):
        row = next(csv.reader([line], delimiter=sep), [])
        if len(row) > 1:
            return 0 if all(is_number(cell.replace(",", ".")) for cell in row) else place
    return 0


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
        elif (columns := _columns_of(text)) is not None:
            return pd.DataFrame(columns)
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


def _columns_of(text: str) -> Any:
    """A single object with a list of cells for each column; None if it is something else."""
    try:
        found = json.loads(text)
    except ValueError:
        return None
    if not isinstance(found, dict) or not all(isinstance(cells, list) for cells in found.values()):
        return None
    lengths = {len(cells) for cells in found.values()}
    return found if len(lengths) == 1 else None


def _read_excel(path: Path) -> Any:
    try:
        return pd.read_excel(path)
    except ImportError:
        needs = {".xls": "xlrd", ".xlsb": "pyxlsb", ".ods": "odfpy"}.get(path.suffix.lower(), "openpyxl")
        raise TableError(
            f"{path} is a spreadsheet, and reading it needs {needs}: pip install {needs}, or save it as "
            "CSV."
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
    best, best_score = ",", (-len(lines), 0.0, 0)
    for sep in _CANDIDATES:
        above = _above_header(lines, sep)
        widths = [len(row) for row in csv.reader(lines[above:], delimiter=sep) if row]
        width = widths[0]
        # The header has no cells with marks or blanks in them: it says how many columns there are.
        score = (-above, sum(count == width for count in widths) / len(widths), width)
        if width > 1 and score > best_score:
            best, best_score = sep, score
    if (
        best_score[2] == 0
        and len({len(line.split()) for line in lines}) == 1
        and len(lines[0].split()) > 1
    ):
        return r"\s+"
    return best


def _and(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"

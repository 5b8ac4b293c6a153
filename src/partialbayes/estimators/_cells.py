"""Cells of a table as people write them: numbers with units, dates, gaps.

A number may carry a unit, a currency, a per-cent sign and separators between thousands; which of comma
and point is the decimal mark is decided by the cells that leave no doubt.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

_WORDS = ("na", "n/a", "n.a.", "nan", "-nan", "none", "null", "nil", "missing", "(missing)")
GAPS = frozenset((*_WORDS, "#n/a", "#na", "<na>", "#value!", "#div/0!", "?", "-", "--", "."))
"""Texts that stand for nothing, in lower case; the empty text is one, too."""
_CURRENCIES = (
    r"[$€£¥₹₩₽₺]|USD|EUR|GBP|CHF|JPY|CNY|SEK|NOK|DKK|PLN|CZK|INR|AUD|CAD|NZD|US\$|kr\.?|zł|Fr\."
)
_DIGITS = r"\d[\d.,'’\s\u00a0\u202f]*|[.,]\d+"
_NUMBER = re.compile(
    rf"(?P<open>\()?(?P<sign>[-+−–]?)\s*(?P<before>{_CURRENCIES})?\s*(?P<sign2>[-+−–]?)"
    rf"(?P<digits>{_DIGITS})(?P<exponent>[eE][-+]?\d+)?\s*"
    r"(?P<after>%|‰|[^\W\d_$€£¥₹₩₽₺][^\s\d,;()]{0,11}[23]?|[°$€£¥₹₩₽₺]\S{0,6})?(?P<close>\))?"
)
_SPACES = re.compile(r"['’\s\u00a0\u202f]")
_SPACED = re.compile(r"\d{1,3}(['’\s\u00a0\u202f]\d{3})+([.,]\d*)?")
_GROUPED = re.compile(r"\d{1,3}([.,])\d{3}(\1\d{3})*")
_TIME = r"(?:[ T]+(\d{1,2}):(\d{2})(?::(\d{2}))?(?:\s?([AaPp])\.?[Mm]\.?)?)?"
_BY_NUMBERS = re.compile(r"(\d{1,2})([./-])(\d{1,2})\2(\d{4}|\d{2})" + _TIME)
_DAY_MONTH = re.compile(r"(\d{1,2})[\s.-]*([A-Za-z]{3,9})[\s.,-]*(\d{4}|\d{2})" + _TIME)
_MONTH_DAY = re.compile(r"([A-Za-z]{3,9})\.?\s+(\d{1,2})(?:st|nd|rd|th)?,?\s+(\d{4})" + _TIME)
_COMPACT = re.compile(r"(?:19|20)\d{6}")
_ISO = re.compile(r"\d{4}[-/]\d{2}(?:[-/]\d{2}(?:[ T]\d{2}:\d{2}.*)?)?")
_MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july", "august"),
    *("september", "october", "november", "december"),
)
_THIS_CENTURY = 70  # a year of two digits below this one is of 2000 to 2069
_SAMPLE = 2000  # cells by which to see whether a column holds dates
_TRUE, _FALSE = ("true", "wahr", "vrai"), ("false", "falsch", "faux")


class Numbers(NamedTuple):
    """Cells read as numbers.

    Attributes:
        values: NaN where there is a gap or something else.
        bad: Where there is something else.
        units: Units, currencies and signs that were taken off, most frequent first.
        grouped: Whether separators between thousands were taken out.
        mark: The decimal mark.
    """

    values: Float[np.ndarray, " row"]
    bad: Bool[np.ndarray, " row"]
    units: tuple[str, ...] = ()
    grouped: bool = False
    mark: str = "."


def gaps(cells: Any) -> Bool[np.ndarray, " row"]:
    """Where nothing is."""
    array = np.asarray(cells)
    if array.dtype.kind == "f":
        return np.isnan(array)
    if array.dtype.kind in "mM":
        return np.isnat(array)
    if array.dtype.kind in "biuc":
        return np.zeros(len(array), bool)
    return np.fromiter((_is_gap(cell) for cell in array), bool, len(array))


def _is_gap(cell: Any) -> bool:
    if isinstance(cell, str):
        text = cell.strip()
        return not text or text.lower() in GAPS
    return cell is None or type(cell).__name__ in ("NAType", "NaTType") or bool(cell != cell)


def read_numbers(cells: Any, mark: str | None = None, fallback: str | None = None) -> Numbers:
    """Cells as numbers.

    Args:
        cells: One column.
        mark: The decimal mark, if it is known.
        fallback: The decimal mark where the cells leave it open, a point by default.
    """
    fallback = fallback or "."
    array = np.asarray(cells)
    missing = gaps(array)
    if array.dtype.kind in "biuf":
        return Numbers(array.astype(float), np.zeros(len(array), bool))
    there = array[~missing]
    values = np.full(len(array), np.nan)
    bad = np.zeros(len(array), bool)
    if len(there) == 0 or array.dtype.kind not in "OUST":
        bad[:] = ~missing
        return Numbers(values, bad, (), False, mark or fallback)
    if mark != ",":
        try:  # plain numbers are most of what there is, and NumPy reads them fast
            plain = np.asarray([str(cell).strip() for cell in there])
            values[~missing] = plain.astype(float)
            return Numbers(values, bad)
        except ValueError:
            pass
    mark = mark or decimal_mark([there], fallback) or fallback
    units: dict[str, int] = {}
    grouped = False
    for place, cell in zip(np.flatnonzero(~missing), there, strict=True):
        if isinstance(cell, str):
            found = _number(cell, mark)
        else:
            try:
                found = (float(cell), "", False)
            except (TypeError, ValueError):
                found = None
        if found is None:
            bad[place] = True
            continue
        values[place], unit, has_groups = found
        grouped |= has_groups
        if unit:
            units[unit] = units.get(unit, 0) + 1
    return Numbers(values, bad, tuple(sorted(units, key=lambda unit: -units[unit])), grouped, mark)


def _number(text: str, mark: str) -> tuple[float, str, bool] | None:
    """The number, its unit, and whether its thousands were set apart; None if it is no number."""
    match = _NUMBER.fullmatch(text.strip())
    if match is None or (match["open"] is None) != (match["close"] is None):
        return None
    digits = match["digits"].strip()
    grouped = bool(_SPACES.search(digits))
    if grouped and not _SPACED.fullmatch(digits):
        return None
    digits = _SPACES.sub("", digits)
    other = "," if mark == "." else "."
    whole, _, fraction = digits.partition(mark)
    if other in whole:
        if not _GROUPED.fullmatch(whole):
            # One mark alone that groups nothing is the decimal one, whatever the file does elsewhere.
            if digits.count(other) > 1 or mark in digits:
                return None
            whole, _, fraction = digits.partition(other)
        else:
            whole, grouped = whole.replace(other, ""), True
    elif mark in fraction:  # 6.204.000 where the point is the mark
        if not _GROUPED.fullmatch(digits):
            return None
        whole, fraction, grouped = digits.replace(mark, ""), "", True
    if other in fraction:
        return None
    try:
        value = float(f"{whole or '0'}.{fraction or '0'}{match['exponent'] or ''}")
    except ValueError:
        return None
    negative = {match["sign"], match["sign2"]} & set("-−–") or match["open"]
    unit = match["before"] or match["after"] or ""
    return (-value if negative else value), unit, grouped


def decimal_mark(columns: Iterable[Any], fallback: str | None = None) -> str | None:
    """The decimal mark by the cells that leave no doubt; the fallback if there are none.

    Args:
        columns: Cells, column by column.
        fallback: What to return if every cell leaves it open.
    """
    votes = {",": 0, ".": 0}
    for column in columns:
        for cell in column[:1000]:
            if isinstance(cell, str) and _BY_NUMBERS.fullmatch(cell.strip()):
                continue  # the points of a date mark nothing
            if isinstance(cell, str) and (match := _NUMBER.fullmatch(cell.strip())):
                digits = _SPACES.sub("", match["digits"])
                marks = [sign for sign in digits if sign in ",."]
                if not marks:
                    continue
                last = marks[-1]
                if len(set(marks)) == 2:
                    votes[last] += 1
                elif len(marks) > 1:
                    votes["." if last == "," else ","] += 1
                elif not _GROUPED.fullmatch(digits) or digits.startswith("0"):
                    votes[last] += 1
    if votes[","] == votes["."]:
        return fallback
    return max(votes, key=lambda sign: votes[sign])


def date_order(cells: Sequence[Any]) -> str | None:
    """How dates are written; None if these are none.

    Returns:
        "iso", which is also 2026-12, 20261231 and dates of Python; "words" for 31 Dec 2026 and
        December 31, 2026; "day first" or "month first" for numbers; "unclear" where these may be either.
    """
    there = [cell for cell in cells if not _is_gap(cell)]
    if not there:
        return None
    if all(isinstance(cell, date | np.datetime64) for cell in there):
        return "iso"
    texts = [_text(cell) for cell in there]
    some = texts[:_SAMPLE]
    enough = 0.9 * len(some)
    for order in ("iso", "words"):
        if sum(_from_text(text, order) is not None for text in some) >= enough:
            return order
    if sum(bool(_BY_NUMBERS.fullmatch(text)) for text in some) < enough:
        return None
    found = [match for text in texts if (match := _BY_NUMBERS.fullmatch(text))]
    by_day, by_month = (
        sum(_from_text(text, order) is not None for text in some) >= enough
        for order in ("day first", "month first")
    )
    if by_day and all(match[2] == "." for match in found):
        return "day first"
    if by_day and any(int(match[1]) > 12 for match in found):
        return "day first"
    if by_month and any(int(match[3]) > 12 for match in found):
        return "month first"
    return "unclear" if by_day and by_month else None


def are_compact_dates(cells: Sequence[Any]) -> bool:
    """Whether whole numbers such as 20261231 are dates, each of them."""
    texts = [_text(cell) for cell in cells]
    return all(_COMPACT.fullmatch(text) and _from_text(text, "iso") for text in texts)


def read_dates(cells: Any, order: str) -> Float[np.ndarray, " row"]:
    """Days since 1970-01-01 in universal time; NaN where there is no date.

    Args:
        cells: One column.
        order: From `date_order`.
    """
    array = np.asarray(cells)
    if array.dtype.kind == "M":
        days = array.astype("datetime64[us]").astype(np.int64) / 86_400_000_000.0
        return np.where(np.isnat(array), np.nan, days)
    return np.asarray([_days(cell, order) for cell in array], float)


def _days(cell: Any, order: str) -> float:
    if _is_gap(cell):
        return np.nan
    found: datetime | None
    if isinstance(cell, np.datetime64):
        return float(cell.astype("datetime64[us]").astype(np.int64) / 86_400_000_000.0)
    if isinstance(cell, datetime):
        found = cell
    elif isinstance(cell, date):
        found = datetime(cell.year, cell.month, cell.day)
    else:
        found = _from_text(_text(cell), order)
    if found is None:
        return np.nan
    if found.tzinfo is None:
        found = found.replace(tzinfo=UTC)
    return found.timestamp() / 86_400.0


def _from_text(text: str, order: str) -> datetime | None:
    """The date in a text that is written in an order of `date_order`; None if there is none."""
    try:
        if _COMPACT.fullmatch(text):
            return datetime.strptime(text, "%Y%m%d")
        if order == "iso":
            if not _ISO.fullmatch(text):
                return None
            return datetime.fromisoformat(text.replace("/", "-") + ("-01" if len(text) == 7 else ""))
        if order == "words":
            return _from_words(text)
        if (match := _BY_NUMBERS.fullmatch(text)) is None:
            return _from_text(text, "iso")
        first, second = int(match[1]), int(match[3])
        day, month = (second, first) if order == "month first" else (first, second)
        return _datetime(match[4], month, day, match.groups()[4:])
    except ValueError:  # no such day
        return None


def _from_words(text: str) -> datetime | None:
    if match := _DAY_MONTH.fullmatch(text):
        day, name, year = match[1], match[2], match[3]
    elif match := _MONTH_DAY.fullmatch(text):
        name, day, year = match[1], match[2], match[3]
    else:
        return None
    fits = [place for place, month in enumerate(_MONTHS, 1) if month.startswith(name.lower())]
    if name.lower() == "sept":
        fits = [9]
    return _datetime(year, fits[0], int(day), match.groups()[3:]) if fits else None


def _datetime(year: str, month: int, day: int, clock: Sequence[str | None]) -> datetime:
    full = int(year)
    if len(year) == 2:
        full += 2000 if full < _THIS_CENTURY else 1900
    hour, minute, seconds = (int(part or 0) for part in clock[:3])
    if clock[3] is not None:
        hour = hour % 12 + (12 if clock[3] in "pP" else 0)
    return datetime(full, month, day, hour, minute, seconds)


def read_flags(cells: Any) -> Float[np.ndarray, " row"] | None:
    """1 for true, 0 for false, NaN for gaps; None if there is anything else."""
    array = np.asarray(cells)
    if array.dtype.kind == "b":
        return array.astype(float)
    if array.dtype.kind not in "OUST":
        return None
    missing = gaps(array)
    values = np.full(len(array), np.nan)
    for place in np.flatnonzero(~missing):
        cell = array[place]
        text = str(cell).strip().lower()
        if not isinstance(cell, bool | np.bool_ | str) or text not in _TRUE + _FALSE:
            return None
        values[place] = float(text in _TRUE)
    return values


def texts(cells: Any) -> list[str | None]:
    """Cells as text, None for gaps; whole numbers without a point."""
    array = np.asarray(cells)
    return [None if gap else _text(cell) for cell, gap in zip(array, gaps(array), strict=True)]


def _text(cell: Any) -> str:
    if isinstance(cell, float | np.floating) and float(cell).is_integer():
        return str(int(cell))
    return str(cell).strip()

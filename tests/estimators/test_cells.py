"""Cells as people write them."""

import datetime

import numpy as np
import pytest

from partialbayes.estimators import _cells as cells


@pytest.mark.parametrize(
    ("text", "mark", "value", "unit"),
    [
        ("155.8 m2", ".", 155.8, "m2"),
        ("12%", ".", 12.0, "%"),
        ("$5.00", ".", 5.0, "$"),
        ("-$4.20", ".", -4.2, "$"),
        ("(5.00)", ".", -5.0, ""),
        ("6,204,000", ".", 6204000.0, ""),
        ("6.204.000", ".", 6204000.0, ""),
        ("1.234,50 €", ",", 1234.5, "€"),
        ("1 234,5", ",", 1234.5, ""),
        ("1'234.50", ".", 1234.5, ""),
        ("EUR 12", ".", 12.0, "EUR"),
        ("12 km/h", ".", 12.0, "km/h"),
        ("21.5 °C", ".", 21.5, "°C"),
        ("−3", ".", -3.0, ""),
        ("1e-3", ".", 0.001, ""),
        ("1.5", ",", 1.5, ""),  # groups nothing, so it is the decimal mark after all
    ],
)
def test_numbers_as_people_write_them(text, mark, value, unit):
    found = cells.read_numbers(np.asarray([text, "x"], object), mark)
    assert found.values[0] == pytest.approx(value)
    assert found.units == ((unit,) if unit else ())
    assert found.bad.tolist() == [False, True]


@pytest.mark.parametrize(
    "text", ["big", "1.5.2", "1,2,3", "1 2 3", "12:30", "2020-01-01", "31.12.2020", "5)"]
)
def test_what_is_no_number(text):
    assert cells.read_numbers(np.asarray([text], object), ".").bad.all()


def test_the_decimal_mark_is_that_of_the_cells_that_leave_no_doubt():
    assert cells.decimal_mark([["1,500", "2,25"]]) == ","
    assert cells.decimal_mark([["1,500", "2.25"]]) == "."
    assert cells.decimal_mark([["1.234,5"]]) == ","
    assert cells.decimal_mark([["6,204,000"]]) == "."
    assert cells.decimal_mark([["0,204"]]) == ","
    assert cells.decimal_mark([["1,500"]]) is None
    assert cells.decimal_mark([["31.12.2024", "01.02.24"]]) is None  # dates say nothing of it
    assert cells.read_numbers(np.asarray(["1,500", "2,25"], object)).values.tolist() == [1.5, 2.25]
    assert cells.read_numbers(np.asarray(["1,500"], object)).values.tolist() == [1500.0]


def test_gaps():
    column = np.asarray(["", " ", "NA", "n/a", "?", None, np.nan, "0", "no"], object)
    assert cells.gaps(column).tolist() == [True] * 7 + [False] * 2
    assert cells.gaps(np.asarray(["NaT", "2020-01-01"], "datetime64[D]")).tolist() == [True, False]


@pytest.mark.parametrize(
    ("texts", "order", "days"),
    [
        (["1970-01-02", "1971-01-01"], "iso", [1.0, 365.0]),
        (["1970-01-02T12:00:00Z", "1970-01-02T12:00:00+06:00"], "iso", [1.5, 1.25]),
        (["02.01.1970", "31.01.1970 06:00"], "day first", [1.0, 30.25]),
        (["02/01/1970", "31/01/1970"], "day first", [1.0, 30.0]),
        (["01/02/1970", "01/31/1970"], "month first", [1.0, 30.0]),
        ([datetime.date(1970, 1, 2)], "iso", [1.0]),
        (["1970-01", "1970-02"], "iso", [0.0, 31.0]),
        (["19700102", 19700103], "iso", [1.0, 2.0]),
        (["2 Jan 1970", "2-Feb-70"], "words", [1.0, 32.0]),
        (["January 2, 1970", "Feb 2nd 1970 6:00 PM"], "words", [1.0, 32.75]),
        (["1/2/70", "1/31/70 12:00 AM"], "month first", [1.0, 30.0]),
        (["02.01.70", "31.01.70"], "day first", [1.0, 30.0]),
        (["02-01-1970", "31-01-1970"], "day first", [1.0, 30.0]),
    ],
)
def test_dates(texts, order, days):
    assert cells.date_order(texts) == order
    assert cells.read_dates(np.asarray(texts, object), order).tolist() == days


def test_dates_that_may_be_either_are_not_guessed():
    assert cells.date_order(["01/02/1970", "03/04/1970"]) == "unclear"
    assert cells.date_order(["1.5", "2.5"]) is None
    assert cells.date_order(["13/14/2020", "14/15/2020"]) is None
    assert cells.date_order(["12 Monkeys 1995", "9 Songs 2004"]) is None
    assert not cells.are_compact_dates([20201301, 20200101])


def test_flags_and_texts():
    assert cells.read_flags(np.asarray(["true", "False", "TRUE"], object)).tolist() == [1.0, 0.0, 1.0]
    assert np.isnan(cells.read_flags(np.asarray([True, None], object))[1])
    assert cells.read_flags(np.asarray(["true", "maybe"], object)) is None
    assert cells.texts(np.asarray([1.0, np.nan, 2.5])) == ["1", None, "2.5"]

"""What the columns of a table are, and what becomes of them."""

import json

import numpy as np
import pandas as pd
import pytest

from partialbayes.errors import TableError
from partialbayes.estimators._encode import encode
from partialbayes.estimators._learn import learn
from partialbayes.estimators._schema import Schema
from partialbayes.estimators._target import learn_target, targets_of

RNG = np.random.default_rng(0)
ROWS = 60
GAPPY = np.where(np.arange(ROWS) % 7 == 0, np.nan, np.arange(ROWS) % 5)
TABLE = pd.DataFrame(
    {
        "Unnamed: 0": range(ROWS),
        "house_id": RNG.permutation(ROWS) + 1000,
        "size": [f"{value:.1f} m2" for value in RNG.normal(100, 20, ROWS)],
        "gap": GAPPY,
        "town": RNG.choice(["Oslo", "Bergen"], ROWS),
        "zip": RNG.choice(["0123", "5003"], ROWS),
        "sold": pd.date_range("2024-01-01", periods=ROWS, freq="5D"),
        "new": RNG.choice([True, False], ROWS),
        "level": pd.Categorical(RNG.integers(0, 3, ROWS)),
        "same": 1,
        "nearly": [1] * (ROWS - 1) + [2],
        "empty": None,
        "remark": [f"text {row}" for row in range(ROWS)],
        "price": [f"{value:,.0f}" for value in RNG.lognormal(13, 1, ROWS)],
    }
)
SCHEMA = learn(TABLE, skip=["price"])
BY_NAME = {column.name: column for column in SCHEMA.columns}


def test_what_is_left_out_or_taken_for_something_else_is_said():
    table = {
        "x": [str(value) for value in range(30)] + ["about 3"],
        "weight": [f"{value % 3} kg" for value in range(20)] + [f"{value % 3} g" for value in range(11)],
        "key": [10**18 + value % 4 for value in range(31)],
        "day": [20240101 + value % 28 for value in range(31)],
        "y": ["a", "b"] * 15 + ["c"],
    }
    schema = learn(table, skip=["y"])
    said = " ".join(schema.notes)
    assert "'x' holds 'about 3' among its numbers, counted as a gap" in said
    assert "'weight' mixes units ('kg', 'g')" in said
    assert "'key' is left out: it holds numbers that differ only after their 15th digit" in said
    assert "'day' holds dates" in said
    assert encode(table, schema).values[30, :2].tolist() == [14.5, 1.0]
    assert "class 'c' of 'y' has a single row" in learn_target(table, "y").notes[0]
    with pytest.raises(TableError, match="does it lack a header"):
        learn_target({"1": [0.5, 1.5], "2": [1.0, 2.0]}, "y")


def test_every_column_is_something():
    kinds = {name: column.kind for name, column in BY_NAME.items()}
    assert kinds == {
        "Unnamed: 0": "dropped",
        "house_id": "dropped",
        "size": "number",
        "gap": "number",
        "town": "category",
        "zip": "category",
        "sold": "date",
        "new": "flag",
        "level": "category",
        "same": "dropped",
        "nearly": "dropped",
        "empty": "dropped",
        "remark": "dropped",
    }
    assert SCHEMA.ids == ("Unnamed: 0", "house_id")
    assert "is '1' in every row" in BY_NAME["same"].why
    assert "the same in all but 1 rows" in BY_NAME["nearly"].why
    assert any("'size' holds numbers in 'm2'" in note for note in SCHEMA.notes)


def test_gaps_are_filled_by_the_median_and_a_column_says_where():
    names = [feature.name for feature in SCHEMA.features()]
    values = encode(TABLE, SCHEMA).values
    place = names.index("gap")
    assert names[place + 1] == "gap is missing"
    missing = np.isnan(GAPPY)
    assert values[:, place][missing].tolist() == [np.nanmedian(GAPPY)] * missing.sum()
    np.testing.assert_array_equal(values[:, place][~missing], GAPPY[~missing])
    np.testing.assert_array_equal(values[:, place + 1], missing)


def test_features_say_what_they_are():
    features = {feature.name: feature for feature in SCHEMA.features()}
    assert (features["size"].kind, features["size"].cardinality) == ("number", 0)
    assert (features["new"].kind, features["new"].cardinality) == ("flag", 2)
    # Two towns, one level for those never seen, one for gaps.
    assert (features["town"].kind, features["town"].cardinality) == ("category", 4)
    assert features["sold, year sine"].source == "sold"
    values = encode(TABLE, SCHEMA).values
    assert values.shape == (ROWS, len(features))
    town = values[:, list(features).index("town")]
    np.testing.assert_array_equal(town, (TABLE["town"] == "Oslo").astype(float))
    one_hot = encode(TABLE, SCHEMA, one_hot=True)
    assert one_hot.values.shape == (ROWS, len(SCHEMA.features(one_hot=True)))
    names = [feature.name for feature in one_hot.features]
    np.testing.assert_array_equal(one_hot.values[:, names.index("town is Oslo")], town)


def test_dates_become_places_in_time():
    days = ["2024-01-01", "2024-06-29", "2024-12-30", None] * 5  # a Monday, a Saturday, a Monday
    schema = learn({"day": days, "x": range(3, 23)})
    encoded = encode({"day": days, "x": range(3, 23)}, schema)
    found = dict(zip([feature.name for feature in encoded.features], encoded.values[:4].T, strict=True))
    assert found["day, weekend"].tolist()[:3] == [0.0, 1.0, 0.0]
    assert found["day is missing"].tolist() == [0.0, 0.0, 0.0, 1.0]
    assert np.ptp(found["day, time"][:3]) == 364.0
    assert found["day, year cosine"][1] < -0.98 < 0.98 < found["day, year cosine"][0]


def test_what_was_never_seen_gets_a_level_of_its_own():
    new = TABLE.astype(object).copy()
    new.loc[3, "town"] = "Rome"
    new.loc[4, "size"] = "big"
    new.loc[5, "town"] = None
    encoded = encode(new, SCHEMA)
    names = [feature.name for feature in encoded.features]
    assert encoded.values[[3, 5], names.index("town")].tolist() == [2.0, 3.0]
    assert encoded.values[4, names.index("size")] == BY_NAME["size"].fill
    assert "not there in training in 1 row ('Rome')" in "".join(encoded.notes)
    assert "should hold numbers but does not in 1 row (row 5: 'big')" in "".join(encoded.notes)
    one_hot = encode(new, SCHEMA, one_hot=True)
    places = [place for place, one in enumerate(one_hot.features) if one.source == "town"]
    assert not one_hot.values[np.ix_([3, 5], places)].any()  # neither was learned about
    for column in ("town", "size"):
        with pytest.raises(TableError, match=f"column '{column}'"):
            encode(
                new[[*new.columns]].assign(**{c: TABLE[c] for c in {"town", "size"} - {column}}),
                SCHEMA,
                strict=True,
            )


def test_rare_categories_share_a_level_that_is_learned():
    towns = ["a"] * 10 + ["b"] * 10 + ["c", "d"]
    schema = learn({"town": towns, "x": np.arange(22) % 7})
    column = schema.columns[0]
    assert (column.levels, column.has_rare) == (("a", "b"), True)
    one_hot = encode({"town": ["c", "new", "a"], "x": [1, 2, 3]}, schema, one_hot=True, strict=True)
    names = [feature.name for feature in one_hot.features]
    assert one_hot.values[:, names.index("town is (other)")].tolist() == [1.0, 1.0, 0.0]


def test_asked_for_columns():
    wanted = learn(TABLE, columns=["house_id", "size"])
    assert [column.name for column in wanted.used] == ["house_id", "size"]
    dropped = learn(TABLE, skip=["price"], drop=["size"])
    assert "size" not in [column.name for column in dropped.used]
    codes = learn({"code": [1, 2, 3] * 9, "x": np.arange(27) % 5}, categorical=["code"])
    assert codes.columns[0].levels == ("1", "2", "3")
    kept = learn(TABLE, skip=["price"], leave_out_ids=False)
    assert "house_id" in [column.name for column in kept.used]


def test_years_are_no_identifiers():
    table = {"year": np.arange(1990, 2020), "step": np.arange(30), "count": np.arange(30)}
    assert [column.name for column in learn(table).used] == ["year", "step"]


def test_it_goes_through_json():
    back = Schema.from_json(json.loads(json.dumps(SCHEMA.to_json())))
    assert back == SCHEMA


def test_tables_without_pandas():
    columns = {"size": ["1,5", "2,5", "3"], "town": ["a", "b", "a"]}
    structured = np.asarray([(1.0, "a"), (2.0, "b"), (3.0, "a")], [("size", float), ("town", "U1")])
    objects = np.asarray([[1.0, "a"], [2.0, "b"], [3.0, "a"]], object)
    for table in (columns, structured, objects):
        schema = learn(table)
        assert [column.kind for column in schema.columns] == ["number", "category"]
        assert encode(table, schema).values.shape == (3, 2)
    assert encode(columns, learn(columns)).values[:, 0].tolist() == [1.5, 2.5, 3.0]


def test_another_decimal_mark_in_a_later_table():
    schema = learn({"x": ["1,5", "2,25", "3,5"]})
    assert schema.columns[0].mark == ","
    assert encode({"x": ["1.5", "2.25"]}, schema).values[:, 0].tolist() == [1.5, 2.25]
    assert encode({"x": ["1,500", "2,250"]}, schema).values[:, 0].tolist() == [1.5, 2.25]
    with pytest.raises(TableError, match="in 'ft', but in training they were in 'm'"):
        encode({"x": ["4 ft"]}, learn({"x": ["1 m", "2 m"]}))


def test_targets():
    target = learn_target(TABLE, "price")
    assert (target.task, len(target.notes)) == ("regression", 1)
    rows, values = targets_of(TABLE, target)
    assert len(rows) == ROWS
    assert values[0] == float(TABLE["price"][0].replace(",", ""))
    assert learn_target({"y": ["yes", "no"] * 5}, "y").task == "classification"
    assert learn_target({"y": [True, False] * 5}, "y").task == "classification"
    assert learn_target({"y": [1, 2, 3] * 5}, "y").task == "classification"
    assert learn_target({"y": ["1%", "2%", "3%"] * 5}, "y").task == "regression"
    labels = learn_target({"y": ["10", "9", None] * 5}, "y")
    assert targets_of({"y": ["10", "9", None] * 5}, labels)[1].tolist() == [10, 9] * 5

"""Columns of a table as numbers."""

import numpy as np
import pandas as pd

from partialbayes.estimators._tables import encode, learn_schema

FRAME = pd.DataFrame({"size": [1.0, np.nan, 2.0, 90.0], "price": [0.1, 0.2, 0.3, 0.4]})
SCHEMA = learn_schema(FRAME, "price", "regression")


def test_gaps_are_filled_by_the_median():
    assert SCHEMA.numeric == {"size": 2.0}
    assert encode(FRAME, SCHEMA)[:, 0].tolist() == [1.0, 2.0, 2.0, 90.0]


def test_a_column_says_where_the_gaps_were():
    assert SCHEMA.gaps == ["size"]
    assert encode(FRAME, SCHEMA)[:, 1].tolist() == [0.0, 1.0, 0.0, 0.0]

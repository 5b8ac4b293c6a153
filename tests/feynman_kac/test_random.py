"""Normal rows for the moves of a cloud come in opposite pairs."""

import jax
import numpy as np
import pytest

from partialbayes.feynman_kac._random import antithetic


@pytest.mark.parametrize("rows", [1, 6, 7])
def test_antithetic_rows_come_in_opposite_pairs(rows):
    draws = antithetic(jax.random.key(3), (rows, 4), "float32")
    assert draws.shape == (rows, 4)
    even = 2 * (rows // 2)
    np.testing.assert_array_equal(draws[0:even:2], -draws[1:even:2])
    assert len(np.unique(np.abs(draws))) == 4 * ((rows + 1) // 2)

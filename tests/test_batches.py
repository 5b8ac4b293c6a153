"""Every row is used once an epoch, in batches of one static shape."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partialbayes.batches import num_batches, permutation, take, whole


def epoch(rows, batch_size, seed=0):
    batches = num_batches(rows, batch_size)
    data = whole(jnp.arange(rows, dtype=float)[:, None], jnp.arange(rows))
    order = permutation(jax.random.key(seed), rows)
    return [take(data, order, jnp.asarray(index), batches) for index in range(batches)]


@settings(max_examples=15, deadline=None)
@given(rows=st.integers(1, 60), data=st.data())
def test_every_row_once_and_the_scale_adds_up(rows, data):
    batch_size = data.draw(st.integers(1, rows))
    batches = epoch(rows, batch_size)
    seen = np.concatenate([np.asarray(batch.targets)[np.asarray(batch.mask)] for batch in batches])
    assert sorted(seen) == list(range(rows))
    sizes = [int(batch.mask.sum()) for batch in batches]
    assert max(sizes) - min(sizes) <= 1
    assert max(sizes) <= batch_size
    assert len({batch.mask.shape for batch in batches}) == 1
    for batch, size in zip(batches, sizes, strict=True):
        np.testing.assert_allclose(batch.scale, rows / size, rtol=1e-6)


def test_inputs_and_targets_stay_together():
    for batch in epoch(23, 5):
        assert np.array_equal(batch.inputs[:, 0], batch.targets)


def test_each_epoch_has_its_own_order():
    assert not np.array_equal(permutation(jax.random.key(0), 30), permutation(jax.random.key(1), 30))


def test_batch_size_above_the_data():
    with pytest.raises(ValueError, match="batch_size is 31, but there are only 30 rows"):
        num_batches(30, 31)
    assert num_batches(30, None) == 1

"""Every row is used once an epoch, in batches of one static shape."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partialbayes._engine.epochs import num_batches, permutation, take
from partialbayes.model._batch import full_batch

compiled_take = jax.jit(take, static_argnames=("batches",))


def epoch(rows, batch_size, seed=0):
    batches = num_batches(rows, batch_size)
    data = full_batch(jnp.arange(rows, dtype=float)[:, None], jnp.arange(rows))
    order = jax.jit(permutation)(jax.random.key(seed), data.mask)
    return [compiled_take(data, order, jnp.asarray(index), batches) for index in range(batches)]


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
    assert not np.array_equal(
        *(permutation(jax.random.key(seed), jnp.ones(30, bool)) for seed in (0, 1))
    )


def test_batch_size_above_the_data():
    with pytest.raises(ValueError, match="batch_size is 31, but there are only 30 rows"):
        num_batches(30, 31)
    assert num_batches(30, None) == 1


@pytest.mark.parametrize(("counted", "batch_size"), [(17, 5), (32, 8), (20, 32), (18, 2)])
def test_rows_that_do_not_count_change_nothing_but_the_shape(counted, batch_size):
    """Padded to 32 rows: every row that counts once an epoch, and N/M in their number."""
    batches = num_batches(32, batch_size)
    data = full_batch(jnp.arange(32.0)[:, None], jnp.arange(32))._replace(mask=jnp.arange(32) < counted)
    order = permutation(jax.random.key(0), data.mask)
    taken = [compiled_take(data, order, jnp.asarray(index), batches) for index in range(batches)]
    seen = np.concatenate([np.asarray(batch.targets)[np.asarray(batch.mask)] for batch in taken])
    assert sorted(seen) == list(range(counted))
    for batch in taken:
        np.testing.assert_allclose(batch.scale * batch.mask.sum(), counted, rtol=1e-6)

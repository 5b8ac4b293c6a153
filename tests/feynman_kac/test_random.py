"""The fast normal draws: Threefry's own words, the right law, opposite pairs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from jax.extend.random import threefry_2x32

from partialbayes.feynman_kac._random import antithetic, normal, threefry


def test_the_words_are_threefrys():
    keys = jax.random.bits(jax.random.key(0), (2,), "uint32")
    counters = jax.random.bits(jax.random.key(1), (2, 50), "uint32")
    ours = threefry(keys[0], keys[1], counters[0], counters[1])
    # Theirs takes the first half of the counts as x and the second as y.
    np.testing.assert_array_equal(jnp.concatenate(ours), threefry_2x32(keys, counters.ravel()))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_draws_are_standard_normal(dtype):
    with jax.enable_x64(dtype == "float64"):
        draws = np.asarray(normal(jax.random.key(0), (1000, 1000), dtype))
    assert draws.dtype == dtype
    flat = np.sort(draws.ravel().astype(float))
    assert scipy.stats.kstest(flat, "norm").pvalue > 1e-3
    # The tails by themselves, where a coarse uniform would show: a thousand draws below −3.09.
    tail = flat[: int(scipy.stats.norm.cdf(-3.0) * 2e6) // 2]
    shares = scipy.stats.norm.cdf(tail) / scipy.stats.norm.cdf(tail[-1])
    assert scipy.stats.kstest(shares[:-1], "uniform").pvalue > 1e-3
    for moment, expected in ((1, 0.0), (2, 1.0), (3, 0.0), (4, 3.0)):
        values = flat**moment
        assert abs(values.mean() - expected) < 5 * values.std() / 1000


def test_draws_of_neighboring_counters_and_keys_are_uncorrelated():
    first = np.asarray(normal(jax.random.key(0), (500, 400), "float32"), float)
    second = np.asarray(normal(jax.random.key(1), (500, 400), "float32"), float)
    pairs = {
        "columns": (first[:, 1:], first[:, :-1]),
        "rows": (first[1:], first[:-1]),
        "keys": (first, second),
        "squares": (first[:, 1:] ** 2 - 1, first[:, :-1] ** 2 - 1),
    }
    for name, (a, b) in pairs.items():
        products = (a * b).ravel()
        assert abs(products.mean()) < 4.5 * products.std() / np.sqrt(products.size), name


def test_the_largest_draws_are_finite():
    extremes = jnp.array([0, 2**32 - 1], jnp.uint32)
    from partialbayes.feynman_kac._random import _quantile, _symmetric_single

    low, high = _quantile(_symmetric_single(extremes))
    assert -5.6 < low < -5.0
    assert low == -high


@pytest.mark.parametrize("rows", [1, 6, 7])
def test_antithetic_rows_come_in_opposite_pairs(rows):
    draws = antithetic(jax.random.key(3), (rows, 4), "float32")
    assert draws.shape == (rows, 4)
    even = 2 * (rows // 2)
    np.testing.assert_array_equal(draws[0:even:2], -draws[1:even:2])
    assert len(np.unique(np.abs(draws))) == 4 * ((rows + 1) // 2)


def test_too_many_draws_of_one_key_are_refused():
    with pytest.raises(ValueError, match="more than 2³² draws"):
        jax.eval_shape(lambda: normal(jax.random.key(0), (2**17, 2**16), "float32"))

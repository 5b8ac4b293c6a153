"""Methods as a user gets them against closed forms; their own error bar decides."""

import jax
import numpy as np
import pytest
from benchmarks.calibration import by_smc, linear, tempered


def errors(run, dim, runs):
    """log Ẑ − log Z of independent runs, and the standard error each of them reports."""
    problem = linear(dim)
    with jax.debug_key_reuse(False):
        one = jax.jit(lambda key: run(key, problem)[:2])
        found = [one(key) for key in jax.random.split(jax.random.key(1), runs)]
    log_evidences, reported = np.asarray(found, float).T
    return log_evidences - problem.log_evidence, reported


@pytest.mark.slow
@pytest.mark.parametrize(
    ("run", "dim", "runs"),
    [
        (tempered(), 10, 20),
        (tempered(), 50, 10),
        (tempered(), 105, 4),
        (by_smc(), 10, 20),
        (by_smc(), 50, 8),
    ],
    ids=["tempered, 10", "tempered, 50", "tempered, 105", "smc, 10", "smc, 50"],
)
def test_the_evidence_is_right_to_its_own_error(run, dim, runs):
    error, reported = errors(run, dim, runs)
    ratios = np.exp(error)
    assert abs(ratios.mean() - 1.0) < 4.0 * ratios.std(ddof=1) / runs**0.5
    # Of runs that keep their promise in 95 of 100 cases, as few as this are one in a thousand.
    assert np.sum(np.abs(error) > 1.96 * reported) <= 1 + runs // 5

"""The warning when particles or moves have stopped doing anything: once, with what to change."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partialbayes as pb
from partialbayes.diagnostics import CollapseWarning, remedy, warn_of_collapse
from tests.oracles import conjugate

ORACLE = conjugate()
PARTICLES = pb.Particles(jnp.zeros((1000, 2)), jnp.zeros(1000))


def fit_with(kernel: pb.Move, epochs: int = 40):
    algorithm = pb.ohsmc(ORACLE.model, num_particles=200, kernel=kernel)
    data = (ORACLE.inputs, ORACLE.targets)
    return pb.fit(algorithm, data, epochs=epochs, batch_size=10, progress=False)


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (pb.random_walk(1e6), "effective sample size has stayed below 2 of 200 .* use a larger|smaller"),
        (pb.random_walk_metropolis(1e6), "acceptance has stayed below 0.02 .* adapted_metropolis"),
    ],
    ids=["ess", "acceptance"],
)
def test_warns_once_and_says_what_to_change(kernel, message):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit_with(kernel)
    ours = [warning for warning in caught if warning.category is CollapseWarning]
    assert len(ours) == 1
    with pytest.warns(CollapseWarning, match=message):
        warnings.warn_explicit(ours[0].message, CollapseWarning, "", 0)


def test_a_healthy_run_is_quiet():
    fit_with(pb.random_walk(0.01))  # warnings are errors here


def test_only_what_stays_collapsed():
    ess = np.full(100, 1.0)
    ess[80] = 500.0
    assert not warn_of_collapse({"ess": ess}, 100, PARTICLES)
    assert not warn_of_collapse({"ess": np.full(100, 1.0)}, 49, PARTICLES)
    with pytest.warns(CollapseWarning):
        assert warn_of_collapse({"ess": np.full(100, 1.0)}, 100, PARTICLES)
    with pytest.warns(CollapseWarning):
        assert warn_of_collapse({"acceptance": np.full(100, np.nan)}, 60, PARTICLES)


def test_one_particle_has_nothing_to_collapse_to():
    single = jax.tree.map(lambda leaf: leaf[:1], PARTICLES)
    assert not warn_of_collapse({"ess": np.full(100, 1.0)}, 100, single)


def test_remedies():
    assert "smaller learning rate" in remedy({"loss": np.full(3, np.nan)}, 2)
    factors = np.array([1.0, -2.5])
    assert "Raise log_c by more than 2.5" in remedy({"smallest_factor": factors}, 1)
    assert "learning rate" in remedy({"smallest_factor": factors}, 0)

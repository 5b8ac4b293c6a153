"""The warning when particles or moves have stopped doing anything: once, with what to change."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partialbayes as pb
from partialbayes._engine import host as driver
from partialbayes.errors import CollapseWarning
from partialbayes.training._diagnostics import remedy, warn_of_collapse
from tests.oracles import conjugate
from tests.recorders import scripted

ORACLE = conjugate()
PARTICLES = pb.types.Particles(jnp.zeros((1000, 2)), jnp.zeros(1000))


def test_a_run_warns_once_and_says_what_to_change():
    algorithm = pb.ohsmc(ORACLE.model, num_particles=200, kernel=pb.kernels.random_walk(1e6))
    with pytest.warns(CollapseWarning) as caught:
        pb.fit(algorithm, (ORACLE.inputs, ORACLE.targets), epochs=40, batch_size=10, progress=False)
    (warning,) = caught
    message = str(warning.message)
    assert "effective sample size has stayed below 2 of 200 particles for 50 steps" in message
    assert "smaller batches, more particles" in message


def test_a_run_warns_once_in_however_many_pieces(monkeypatch):
    monkeypatch.setattr(driver, "_SECONDS_PER_PIECE", 0.0)
    algorithm = scripted(jnp.ones(53), num_particles=200, ess=1.0)
    with pytest.warns(CollapseWarning) as caught:
        pb.fit(algorithm, (jnp.ones((1, 1)), jnp.zeros(1)), epochs=53, progress=False)
    assert len(caught) == 1


def test_only_what_stays_collapsed():
    ess = np.full(100, 1.0)
    ess[80] = 500.0
    assert not warn_of_collapse({"ess": ess}, 100, PARTICLES)
    assert not warn_of_collapse({"ess": np.full(100, 1.0)}, 49, PARTICLES)
    with pytest.warns(CollapseWarning):
        assert warn_of_collapse({"ess": np.full(100, 1.0)}, 100, PARTICLES)
    for acceptance in (0.01, np.nan):
        with pytest.warns(CollapseWarning, match=r"acceptance has stayed .* adapted_metropolis"):
            assert warn_of_collapse({"acceptance": np.full(100, acceptance)}, 60, PARTICLES)


def test_one_particle_has_nothing_to_collapse_to():
    single = jax.tree.map(lambda leaf: leaf[:1], PARTICLES)
    assert not warn_of_collapse({"ess": np.full(100, 1.0)}, 100, single)


def test_remedies():
    assert "smaller learning rate" in remedy({"loss": np.full(3, np.nan)}, 2)
    factors = np.array([1.0, -2.5])
    assert "Raise log_c by more than 2.5" in remedy({"smallest_factor": factors}, 1)
    assert "learning rate" in remedy({"smallest_factor": factors}, 0)

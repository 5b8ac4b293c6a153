"""The warning when particles or moves have stopped doing anything: once, with what to change."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partialbayes as pb
from partialbayes._engine import host
from partialbayes._engine.diagnostics import remedy, warn_of_collapse
from partialbayes.errors import CollapseWarning, SteepPathWarning
from tests.oracles import conjugate
from tests.recorders import scripted

ORACLE = conjugate()
PARTICLES = pb.types.Particles(jnp.zeros((1000, 2)), jnp.zeros(1000))


def test_a_run_warns_once_and_says_what_to_change():
    algorithm = pb.ohsmc(ORACLE.model, num_particles=200, kernel=pb.kernels.random_walk(1e6))
    with pytest.warns(CollapseWarning) as caught:
        pb.fit(algorithm, (ORACLE.inputs, ORACLE.targets), epochs=40, batch_size=10)
    (warning,) = caught
    message = str(warning.message)
    assert "effective sample size has stayed below 2 of 200 particles for 50 steps" in message
    assert "smaller batches, more particles" in message


def test_a_run_warns_once_in_however_many_pieces(monkeypatch):
    monkeypatch.setattr(host, "_SECONDS_PER_PIECE", 0.0)
    algorithm = scripted(jnp.ones(53), num_particles=200, ess=1.0)
    with pytest.warns(CollapseWarning) as caught:
        pb.fit(algorithm, (jnp.ones((1, 1)), jnp.zeros(1)), epochs=53)
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


def test_a_path_that_is_too_steep_warns():
    assert not warn_of_collapse({"min_ess": np.full(100, 400.0)}, 100, PARTICLES)
    assert not warn_of_collapse({"min_ess": np.full(100, 2.0)}, 4, PARTICLES)
    sometimes = np.full(100, 2.0)
    sometimes[8] = 300.0
    assert not warn_of_collapse({"min_ess": sometimes}, 10, PARTICLES)
    with pytest.warns(SteepPathWarning, match="fell to 2 of 1000 particles in each of the last 10"):
        assert warn_of_collapse({"min_ess": np.full(100, 2.0)}, 10, PARTICLES)


def test_a_run_of_smc_along_a_steep_path_warns_and_one_at_its_defaults_does_not():
    """Noise of variance 1e-3: all rows at once leave hardly any particle with weight."""
    sharp = conjugate(num_data=8, dim=2, noise=1e-3)
    data = (sharp.inputs, sharp.targets)
    at_once = pb.smc(sharp.model, num_particles=100, schedule=pb.annealing.tempering([1.0]))
    with pytest.warns(SteepPathWarning):
        pb.fit(at_once, data, epochs=5)
    steps = pb.fit(pb.smc(sharp.model, num_particles=100), data, epochs=5)
    assert steps.history.metrics["min_ess"].min() > 20.0


def test_methods_say_how_many_rows_they_want():
    data = (ORACLE.inputs, ORACLE.targets)
    with pytest.raises(ValueError, match=r"all rows at every step.*sgsmc"):
        pb.fit(pb.smc(ORACLE.model, num_particles=4), data, epochs=1, batch_size=10)
    forgetful = pb.ohsmc(ORACLE.model, num_particles=90, kernel=pb.kernels.forgetting())
    with pytest.warns(CollapseWarning, match="all rows are in one batch"):
        pb.fit(forgetful, data, epochs=1)
    pb.fit(forgetful, data, epochs=1, batch_size=10)


def test_remedies():
    assert "smaller learning rate" in remedy({"loss": np.full(3, np.nan)}, 2)
    factors = np.array([1.0, -2.5])
    assert "Raise log_c by more than 2.5" in remedy({"smallest_factor": factors}, 1)
    assert "learning rate" in remedy({"smallest_factor": factors}, 0)

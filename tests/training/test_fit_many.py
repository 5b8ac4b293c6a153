"""Many runs at once are the same runs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partialbayes as pb
from tests.oracles import conjugate

ORACLE = conjugate()
DATA = (ORACLE.inputs, ORACLE.targets)
SETTINGS = {"epochs": 2, "batch_size": 8, "validation": DATA}


@pytest.fixture(autouse=True)
def _no_key_checks():
    # The checker of key reuse gives a false alarm on a loop under vmap.
    with jax.debug_key_reuse(False):
        yield


def build(variance):
    return pb.ohsmc(ORACLE.model, num_particles=8, kernel=pb.kernels.random_walk(variance))


def test_seeds_equal_single_runs():
    algorithm = build(0.01)
    settings = SETTINGS | {"validation": pb.Validation(DATA, rows=20, particles=3)}
    runs = pb.fit_many(algorithm, DATA, repeats=3, key=4, **settings)
    assert len(runs) == 3
    for index, run in enumerate(runs):
        alone = pb.fit(algorithm, DATA, key=jax.random.fold_in(jax.random.key(4), index), **settings)
        np.testing.assert_allclose(run.history.validation_nlpd, alone.history.validation_nlpd, rtol=1e-3)
        np.testing.assert_allclose(run.history.metrics["loss"], alone.history.metrics["loss"], rtol=1e-4)
        assert run.history.best_step == alone.history.best_step
        np.testing.assert_allclose(
            run.posterior.particles.values, alone.posterior.particles.values, rtol=1e-3, atol=1e-4
        )


def test_hyperparameters_and_data_sets():
    halves = [(ORACLE.inputs[:15], ORACLE.targets[:15]), (ORACLE.inputs[15:], ORACLE.targets[15:])]
    variances = jnp.array([0.01, 1.0])
    runs = pb.fit_many(build, halves, hyperparameters=variances, **SETTINGS)
    spread = [float(run.posterior.particles.values.std(axis=0).mean()) for run in runs]
    assert spread[1] > spread[0]
    alone = pb.fit(build(1.0), halves[1], key=jax.random.fold_in(jax.random.key(0), 1), **SETTINGS)
    np.testing.assert_allclose(runs[1].history.metrics["loss"], alone.history.metrics["loss"], rtol=1e-4)


def test_a_run_that_diverges_does_not_stop_the_others():
    import optax

    def map_at(rate):
        return pb.map_estimate(ORACLE.model, optimizer=optax.sgd(rate))

    rates = jnp.array([1e-4, 1e9])
    with pytest.warns(pb.errors.DivergedWarning, match=r"1 of 2 runs diverged: \[1\]") as caught:
        runs = pb.fit_many(map_at, DATA, hyperparameters=rates, **SETTINGS | {"epochs": 10})
    assert caught[0].filename == __file__
    assert np.isfinite(runs[0].history.metrics["loss"]).all()
    assert not np.isfinite(runs[1].history.metrics["loss"]).all()


def test_patience_ends_each_run_by_its_own_scores():
    settings = SETTINGS | {"epochs": 40, "validation": pb.Validation(DATA, every=1, patience=3)}
    keys = jax.random.split(jax.random.key(0), 3)
    runs = pb.fit_many(build(0.01), DATA, key=keys, **settings)
    lengths = [len(run.history.metrics["loss"]) for run in runs]
    for key, run, length in zip(keys, runs, lengths, strict=True):
        alone = pb.fit(build(0.01), DATA, key=key, **settings)
        assert len(alone.history.metrics["loss"]) == length == run.history.best_step + 3 < 160
        assert run.history.best_step == alone.history.best_step
        assert not run.interrupted
    assert len(set(lengths)) > 1


def test_a_run_that_diverges_does_not_keep_the_others_waiting():
    import optax

    def map_at(rate):
        return pb.map_estimate(ORACLE.model, optimizer=optax.sgd(rate))

    settings = SETTINGS | {"epochs": 10_000, "validation": pb.Validation(DATA, every=1, patience=2)}
    with pytest.warns(pb.errors.DivergedWarning):
        runs = pb.fit_many(map_at, DATA, hyperparameters=jnp.array([1e-3, 1e30]), **settings)
    assert all(len(run.history.metrics["loss"]) < 40_000 for run in runs)
    assert not any(run.interrupted for run in runs)


def test_second_stage_runs_for_each():
    staged = pb.two_stage(pb.map_estimate(ORACLE.model), pb.samplers.laplace(num_particles=6))
    runs = pb.fit_many(staged, DATA, repeats=2, **SETTINGS)
    assert all(run.posterior.particles.values.shape == (6, 3) for run in runs)
    assert all(run.reports for run in runs)


def test_errors():
    with pytest.raises(ValueError, match="set the number of runs"):
        pb.fit_many(build(0.1), DATA, **SETTINGS)
    with pytest.raises(ValueError, match="repeats has 3, data has 2"):
        pb.fit_many(build(0.1), [DATA, DATA], repeats=3, **SETTINGS)
    short = (ORACLE.inputs[:4], ORACLE.targets[:4])
    with pytest.raises(ValueError, match="same shapes in every run"):
        pb.fit_many(build(0.1), [DATA, short], **SETTINGS | {"batch_size": 2})
    for name, value in (("callbacks", [print]), ("mesh", pb.parallel.mesh())):
        with pytest.raises(ValueError, match=f"{name} of run is for a single run"):
            pb.fit_many(build(0.1), DATA, repeats=2, run=pb.Run(**{name: value}), **SETTINGS)

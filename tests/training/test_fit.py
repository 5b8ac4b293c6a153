"""The driver: pieces, validation, best state, failures."""

import copy

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import partialbayes as pb
from partialbayes._engine import compiled, host
from tests.oracles import conjugate
from tests.recorders import numbered, recorder, scripted

ORACLE = conjugate()
DATA = (ORACLE.inputs, ORACLE.targets)
ALGORITHM = pb.ohsmc(ORACLE.model, num_particles=16, kernel=pb.kernels.random_walk(0.01))


def test_best_posterior_is_the_one_with_the_lowest_validation_nlpd():
    validation = (ORACLE.inputs[:9], ORACLE.targets[:9])
    trained = pb.fit(
        ALGORITHM,
        DATA,
        epochs=4,
        batch_size=10,
        validation=pb.Validation(validation, every=2),
    )
    history = trained.history
    assert list(history.eval_steps) == [2, 4, 6, 8, 10, 12]
    assert history.best_step == history.eval_steps[np.argmin(history.validation_nlpd)]
    score = -pb.prediction.log_predictive_density(ORACLE.model, trained.posterior, validation).mean()
    np.testing.assert_allclose(score, history.validation_nlpd.min(), rtol=1e-5)


def test_patience_ends_a_run_at_the_same_step_however_it_is_cut(monkeypatch, tmp_path):
    settings = {"epochs": 40, "batch_size": 10}
    patient = pb.fit(ALGORITHM, DATA, validation=pb.Validation(DATA, every=1), **settings)
    assert patient.end == "epochs"
    scores = patient.history.validation_nlpd
    settings["validation"] = pb.Validation(DATA, every=1, patience=3)
    saved = pb.Run(checkpoint=tmp_path / "run.safetensors")
    hasty = pb.fit(ALGORITHM, DATA, run=saved, **settings)
    best, seen = 0, 0
    for step, score in enumerate(scores):  # what patience means, spelled out
        seen = step
        if score < scores[best]:
            best = step
        elif step - best >= 3:
            break
    assert seen < len(scores) - 1
    assert hasty.end == "patience"
    assert hasty.history.best_step == best + 1
    assert len(hasty.history.metrics["loss"]) == seen + 1
    np.testing.assert_array_equal(hasty.history.validation_nlpd, scores[: seen + 1])
    monkeypatch.setattr(host, "_SECONDS_PER_PIECE", 0.0)
    for run in (None, saved._replace(resume=True)):
        again = pb.fit(ALGORITHM, DATA, run=run, **settings)
        assert again.end == hasty.end
        jax.tree.map(np.testing.assert_array_equal, again[:3], hasty[:3])


def test_without_validation_there_is_no_score_and_the_last_posterior_is_returned():
    trained = pb.fit(ALGORITHM, DATA, epochs=3, batch_size=10)
    assert trained.history.best_step == 9
    assert trained.history.validation_nlpd.size == 0
    assert np.isfinite(trained.history.metrics["loss"]).all()


def test_result_does_not_depend_on_how_the_run_is_cut(monkeypatch):
    settings = {"epochs": 4, "batch_size": 7, "validation": DATA}
    whole_run = pb.fit(ALGORITHM, DATA, **settings)
    monkeypatch.setattr(host, "_SECONDS_PER_PIECE", 0.0)
    in_single_steps = pb.fit(ALGORITHM, DATA, **settings)
    for a, b in zip(
        jax.tree.leaves(whole_run.posterior), jax.tree.leaves(in_single_steps.posterior), strict=True
    ):
        assert np.array_equal(a, b)
    assert np.array_equal(whole_run.history.metrics["ess"], in_single_steps.history.metrics["ess"])


def test_training_compiles_once():
    algorithm = pb.ohsmc(ORACLE.model, num_particles=12, kernel=pb.kernels.random_walk(0.01))
    before = compiled.compiled_run._cache_size()
    for key in range(2):
        pb.fit(algorithm, DATA, epochs=30, batch_size=10, validation=DATA, key=key)
    assert compiled.compiled_run._cache_size() == before + 1


def test_nan_stops_the_run_naming_the_step_and_keeps_the_best():
    def poisoned(key, state, batch):
        new_state, info = ALGORITHM.step(key, state, batch)
        count = new_state.kernel
        bad = count == 7
        return new_state._replace(kernel=count + 1), info | {
            "loss": jnp.where(bad, jnp.nan, info["loss"])
        }

    def init(key):
        return ALGORITHM.init(key)._replace(kernel=jnp.zeros((), jnp.int32))

    algorithm = ALGORITHM._replace(init=init, step=poisoned)
    with pytest.raises(
        pb.errors.TrainingDivergedError, match="NaN or infinite at step 8; the best"
    ) as caught:
        pb.fit(algorithm, DATA, epochs=10, batch_size=10, validation=DATA)
    kept = caught.value.fit
    assert kept is not None
    assert 0 < kept.history.best_step <= 7
    assert len(kept.history.validation_nlpd) == 2
    assert len(kept.history.metrics["loss"]) == 7
    assert np.isfinite(kept.history.metrics["loss"]).all()
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(kept.posterior))


ONE = (jnp.ones((1, 1)), jnp.zeros(1))


def test_validation_rows_that_do_not_count_are_not_scored():
    targets = jnp.array([1.0, 3.0, 100.0, 100.0])
    padded = pb.types.Batch(jnp.ones((4, 1)), targets, jnp.arange(4) < 2, jnp.ones(()))
    trained = pb.fit(scripted(jnp.array([0.0, 1.0])), ONE, epochs=2, validation=padded)
    expected = 0.5 * np.log(2 * np.pi) + 0.5 * np.array([(1 + 9) / 2, (0 + 4) / 2])
    np.testing.assert_allclose(trained.history.validation_nlpd, expected, rtol=1e-5)


def test_an_improvement_on_the_last_evaluation_of_patience_counts():
    values = jnp.array([2.0, 3.0, 3.0, 1.0, 3.0, 3.0, 3.0, 0.0, 0.0])
    settings = {"epochs": 9, "validation": pb.Validation(ONE, patience=3)}
    history = pb.fit(scripted(values), ONE, **settings).history
    assert history.best_step == 4
    assert len(history.validation_nlpd) == 7


def test_epochs_go_through_all_rows_in_orders_of_their_own():
    trained = pb.fit(recorder(10), numbered(10), epochs=2, batch_size=3)
    first, second = trained.history.metrics["rows"].reshape(2, 4)
    assert first.sum() == second.sum() == 2**10 - 1
    assert not np.array_equal(first, second)


def test_a_rate_far_too_high_diverges_loudly():
    algorithm = pb.map_estimate(ORACLE.model, optimizer=optax.sgd(1e8))
    with pytest.raises(pb.errors.TrainingDivergedError, match="smaller learning rate"):
        pb.fit(algorithm, DATA, epochs=20)


def test_progress_goes_to_the_error_stream_and_by_default_to_a_terminal_alone(capsys, monkeypatch):
    for progress in (None, False):
        pb.fit(ALGORITHM, DATA, epochs=1, batch_size=10, run=pb.Run(progress=progress))
        assert capsys.readouterr() == ("", "")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    pb.fit(ALGORITHM, DATA, epochs=1, batch_size=10)
    assert "step" in capsys.readouterr().err
    monkeypatch.undo()
    pb.fit(ALGORITHM, DATA, epochs=1, batch_size=10, run=pb.Run(progress=True))
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "step" in shown.err


def test_never_a_finite_score_is_an_error_and_not_the_untrained_start():
    far = (ORACLE.inputs, ORACLE.targets + 1e30)
    with pytest.raises(
        pb.errors.TrainingDivergedError,
        match=r"^no evaluation gave a finite score.*Check the validation data",
    ) as caught:
        pb.fit(ALGORITHM, DATA, epochs=1, batch_size=10, validation=far)
    assert caught.value.fit is None
    assert caught.value.step == 3


def test_errors_come_whole_from_other_processes():
    diverged = pb.errors.TrainingDivergedError(12, None, "Try a smaller learning rate.")
    unscored = pb.errors.TrainingDivergedError(12, None, "Look at it.", "no score.")
    stalled = pb.errors.StalledError(np.array([0.1, 0.2]), "Allow more steps.")
    for error in (diverged, unscored, stalled):
        sent = copy.copy(error)  # made anew from its arguments, as pickle does
        assert str(sent) == str(error)
    assert "step 12; it was before the first evaluation" in str(diverged)
    assert str(unscored) == "no score. Look at it."
    assert sent.temperatures.tolist() == [0.1, 0.2]


def test_moves_that_are_never_accepted_are_reported_as_such():
    kernel = pb.kernels.random_walk_metropolis(1e8)
    schedule = pb.annealing.tempering([0.5, 1.0])
    algorithm = pb.smc(ORACLE.model, num_particles=16, schedule=schedule, kernel=kernel)
    trained = pb.fit(algorithm, DATA, epochs=1)
    assert trained.history.metrics["acceptance"][0] < 0.05


def test_a_second_stage_that_stalls_raises_and_keeps_the_first():
    staged = pb.two_stage(
        ALGORITHM, pb.samplers.tempered_smc(num_particles=16, max_steps=2, target_ess=0.95)
    )
    with pytest.raises(
        pb.errors.StalledError, match=r"stalled at temperature .* raise max_steps"
    ) as caught:
        pb.fit(staged, DATA, epochs=1, batch_size=10)
    assert caught.value.fit.posterior.particles.values.shape == (16, 3)


def test_a_callback_that_returns_true_ends_the_run_and_its_result_is_kept(tmp_path):
    values = jnp.arange(1.0, 10.0)

    class StopAt:
        def next_stop(self, done):
            return 4

        def __call__(self, progress):
            return progress.begin + len(progress.infos["loss"]) >= 4

    run = pb.Run(callbacks=[StopAt()], checkpoint=tmp_path / "run.safetensors")
    stopped = pb.fit(scripted(values), ONE, epochs=9, run=run)
    assert stopped.end == "callback"
    assert not stopped.interrupted
    assert stopped.history.best_step == len(stopped.history.metrics["loss"]) == 4
    assert float(stopped.posterior.particles.values[0, 0]) == 4.0
    rest = pb.fit(scripted(values), ONE, epochs=9, run=run._replace(callbacks=(), resume=True))
    assert rest.history.best_step == 9


def test_inside_a_transformation_it_says_what_to_use_instead():
    def train(key):
        return pb.fit(scripted(jnp.ones(2)), ONE, epochs=2, key=key).posterior

    for transformed in (jax.jit(train), lambda key: jax.vmap(train)(key[None])):
        with pytest.raises(TypeError, match=r"fit was called inside jax.jit.* use fit_many"):
            transformed(jax.random.key(0))

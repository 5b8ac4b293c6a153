"""The default of the estimators: groups of members, folds, calibration, conformal predictions."""

import os
import pickle
import subprocess
import sys
import textwrap
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import partialbayes as pb
from partialbayes.errors import TrainingDivergedError
from partialbayes.estimators import _crossfit, _folds, _recipe, _stacking
from partialbayes.estimators._base import _copies
from partialbayes.estimators._target import has_long_tail
from partialbayes.prediction import TargetScale
from partialbayes.types import Posterior

ROOT = Path(__file__).parents[2]
RNG = np.random.default_rng(0)
X = RNG.normal(size=(240, 3))
NOISE = 1.0 + 3.0 * (X[:, 0] > 0)
Y = 100.0 + 10.0 * X[:, 1] + NOISE * RNG.normal(size=240)
LABELS = np.where(X[:, 1] + 0.3 * RNG.normal(size=240) > 0, "yes", "no")
SMALL = {"hidden_layer_sizes": (16,), "n_folds": 4, "max_iter": 60, "random_state": 0}
REGRESSOR = pb.PartialBNNRegressor(**SMALL)


@pytest.fixture(scope="module")
def regressor():
    return clone(REGRESSOR).fit(X[:200], Y[:200])


@pytest.fixture(scope="module")
def classifier():
    return pb.PartialBNNClassifier(**SMALL).fit(X[:200], LABELS[:200])


def copied_between_processes(estimator):
    return pickle.loads(pickle.dumps(estimator))  # noqa: S301


CHECKS = """
    import warnings, sys
    from unittest import SkipTest
    warnings.simplefilter("ignore")
    import partialbayes as pb
    from sklearn.utils.estimator_checks import estimator_checks_generator

    def checks(name):
        made = getattr(pb, name)(hidden_layer_sizes=(8,), n_folds=2, effort="fast", n_replays=1)
        made.set_params(num_particles=1, learning_rate=0.02, batch_size=8)
        return [(check.func.__name__, made, check) for made, check in estimator_checks_generator(made)]

    done = {name for other in sys.argv[2:] for name, _, _ in checks(other)}
    passed = 0
    for name, made, check in checks(sys.argv[1]):
        if name not in done:
            try:
                check(made)
            except SkipTest:
                continue
            passed += 1
    print(passed)
"""


@pytest.mark.parametrize(
    ("names", "least"),
    [
        (["PartialBNNRegressor"], 50),
        (["PartialBNNClassifier", "PartialBNNRegressor"], 9),  # those that the regressor has not
        pytest.param(["PartialBNNClassifier"], 50, marks=pytest.mark.slow),
    ],
)
def test_scikit_learns_own_checks(names, least):
    """In a process of their own, where warnings are no errors and types are not checked."""
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-c", textwrap.dedent(CHECKS), *names]
    shown = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr[-2000:]
    assert int(shown.stdout) >= least


def test_noise_is_that_of_the_row(regressor):
    mean, std = regressor.predict(X, return_std=True)
    assert np.corrcoef(mean, Y)[0, 1] > 0.9
    assert std[X[:, 0] > 0.5].mean() > 1.5 * std[X[:, 0] < -0.5].mean()
    quantiles = regressor.predict_quantiles(X, [0.1, 0.5, 0.9])
    np.testing.assert_array_equal(regressor.predict_dist(X).quantile(0.5), quantiles[:, 1])
    assert quantiles.shape == (240, 3)
    assert np.all(np.diff(quantiles, axis=1) > 0)
    np.testing.assert_array_equal(regressor.predict(X, quantiles=[0.1, 0.5, 0.9]), quantiles)


def test_a_group_never_sees_its_fold():
    """The target of a row does not reach what is predicted for it out of fold."""
    changed = Y[:60].copy()
    changed[7] += 1000.0
    one = clone(REGRESSOR).set_params(max_iter=3)
    predicted = []
    for targets in (Y[:60], changed):
        # In units of its own: scales are those of all the training rows.
        model = clone(one)
        model._set_scales = lambda inputs, targets, model=model: _fixed_scales(model)
        predicted.append(model.fit(X[:60], targets).oof_predictive_)
    of_row = predicted[0].folds[np.argsort(predicted[0].source)]
    # What each member predicts; the shares of the views are those of all rows.
    each = [predictive.components().mean for predictive in predicted]
    assert each[0].shape == (2 * 4, 60)  # networks and kernel machines, four members
    same = np.isclose(*each, rtol=1e-6).all(axis=0)
    assert same[of_row == of_row[7]].all()
    assert not same[of_row != of_row[7]].any()


def _fixed_scales(model):
    model.input_shift_, model.input_scale_ = np.zeros(3), np.ones(3)
    model.target_scale_ = pb.prediction.TargetScale(np.float64(100.0), np.float64(10.0))


def test_out_of_fold_predictions_are_those_of_the_groups_without_the_fold(regressor):
    out = regressor.oof_predictive_
    recipe = regressor._settings
    assert (recipe.num_views, recipe.num_groups, recipe.num_particles) == (3, 12, 2)
    row = 11
    place = int(np.flatnonzero(out.source == row)[0])
    fold = out.folds[place]
    row_of_inputs = jnp.asarray(out.inputs[place][None])
    parameters = [
        jax.vmap(lambda phi, psi=psi: regressor.model_.parameters(phi, psi, row_of_inputs))(
            out.posterior.particles.values[group]
        )
        for group in (fold, fold + 4, fold + 8)
        for psi in [jax.tree.map(lambda leaf, group=group: leaf[group], out.posterior.psi)]
    ]
    weights = np.exp(out.posterior.particles.log_weights[np.array([fold, fold + 4, fold + 8])])
    means = np.stack([part.location[:, 0] for part in parameters])
    expected = regressor.target_scale_.shift + regressor.target_scale_.scale * np.sum(
        weights / weights.sum() * means
    )
    np.testing.assert_allclose(out.mean[row], expected, rtol=1e-5)
    low, high = out.interval(0.9)
    assert 0.83 < np.mean((low <= Y[:200]) & (Y[:200] <= high)) < 0.97
    assert regressor.oof_score_ == pytest.approx(1 - np.mean((out.mean - Y[:200]) ** 2) / Y[:200].var())
    # What the history says is their density, in units of training.
    units = np.log(regressor.target_scale_.scale)
    density = out.log_density(Y[:200]).mean() + units
    assert regressor.history_.validation_nlpd[0] == pytest.approx(-density, abs=1e-3)
    np.testing.assert_allclose(out.cdf(out.quantile(0.3)), 0.3, atol=1e-3)


def test_folds_keep_equal_rows_and_groups_together_and_spread_classes():
    rows = np.repeat(np.arange(40.0), 2)[:, None]
    labels = np.repeat(np.arange(40) % 2, 2)
    folds = _folds.make_folds(rows, labels, 5, None, True, seed=0).of_row
    assert np.all(folds[::2] == folds[1::2])
    # Equal inputs with other targets are another row, which a new row may be, too.
    noisy = _folds.make_folds(np.zeros((80, 1)), np.arange(80.0), 5, None, False, seed=0).of_row
    assert np.all(np.bincount(noisy) == 16)
    assert np.all(np.bincount(folds[labels == 1], minlength=5) == 8)
    by_group = _folds.make_folds(rows, labels, 5, np.arange(80) // 10, False, seed=0)
    assert all(len(set(by_group.of_row[begin : begin + 10])) == 1 for begin in range(0, 80, 10))
    for fold in range(5):
        train = by_group.train[fold][: by_group.counts[fold]]
        assert sorted(train) == np.flatnonzero(by_group.of_row != fold).tolist()
    # With too few to hold out, every group has all rows.
    alone = _folds.make_folds(rows[:3], labels[:3], 5, None, False, seed=0)
    assert alone.of_row.tolist() == [-1, -1, -1]
    assert alone.counts.tolist() == [3] * 5


def test_the_better_view_gets_the_weight():
    rng = np.random.default_rng(0)
    worse = rng.normal(size=500)
    shares = _stacking._shares(np.stack([worse, worse + 1.0]))
    assert shares[1] > 0.99
    assert shares.sum() == pytest.approx(1.0)
    equal = _stacking._shares(np.stack([worse, rng.permutation(worse)]))
    assert 0.3 < equal[0] < 0.7


def test_bins_by_the_size_of_the_table():
    bins = [_recipe.bins_for(*table) for table in ((93, 7, False), (500, 13, False), (9000, 4, False))]
    assert bins == [0, 8, 64]
    assert _recipe.bins_for(5000, 36, True) == 10
    assert _recipe.bins_for(5000, 0, True) == 0  # a table of flags has no column to cut
    flags = RNG.integers(2, size=(240, 3)).astype(float)
    model = clone(REGRESSOR).set_params(max_iter=1).fit(flags, Y)
    assert model._settings.num_trained_views == 1


def test_a_value_that_occurs_often_takes_one_bin():
    column = np.concatenate([np.zeros(900), np.arange(1.0, 101.0)])
    edges = _crossfit.spread_quantiles(column, 9)
    assert edges[0] == 0.0
    assert edges[-1] == 100.0
    assert len(np.unique(edges)) == 9  # quantiles of the rows have but two: nine tenths are zeros
    assert np.ptp(np.diff(edges)) <= 15.0
    few = _crossfit.spread_quantiles(np.repeat([1.0, 2.0, 5.0], [3, 50, 1]), 5)
    np.testing.assert_array_equal(few, [1.0, 2.0, 5.0, 5.0, 5.0])


def test_results_do_not_depend_on_n_jobs(regressor):
    alone = clone(REGRESSOR).set_params(n_jobs=1).fit(X[:200], Y[:200])
    np.testing.assert_array_equal(alone.predict(X), regressor.predict(X))
    with pytest.raises(ValueError, match="n_jobs must be a whole number"):
        clone(REGRESSOR).set_params(n_jobs=0).fit(X, Y)


def test_logarithms_are_taken_where_they_predict_better():
    prices = np.exp(2.0 * X[:, 1] + 0.1 * RNG.normal(size=240))
    model = clone(REGRESSOR).fit(X[:200], prices[:200])
    assert model.target_scale_.log
    for method in ("bayesian", "conformal", "centered"):
        low, high = model.predict_interval(X[200:], 0.9, method=method)
        assert np.all(low > 0.0)
        assert np.mean((low <= prices[200:]) & (prices[200:] <= high)) > 0.75
    # By densities in the prices' own units: a hundredth of a nat decides, either way.
    scales = TargetScale.of(prices), TargetScale.of(prices, log=True)
    even = np.log(scales[0].scale) - np.log(scales[1].scale) - np.mean(np.log(prices))
    for more in (0.01, -0.01):
        other = clone(REGRESSOR)

        def train(schedule, run, of=other, more=more):
            nlpd = float(even) + more if of.target_scale_.log else 0.0
            return _crossfit.Trained(_stacking.Stacked(None, nlpd), np.zeros(1), False)

        other._choose_target_scale(prices, _recipe.Schedule(10, 8, None), pb.Run(), train)
        assert other.target_scale_.log == (more < 0)
    told = clone(REGRESSOR).set_params(log_targets=False, max_iter=1).fit(X, prices)
    assert not told.target_scale_.log
    assert not has_long_tail(Y)
    assert not has_long_tail(-prices)


def test_each_view_is_taken_from_its_best_snapshot():
    assert [_stacking._best(scores) for scores in ([1.0, 3.0, 2.0], [2.0, 2.0], [np.nan, -5.0])] == [
        1,
        1,
        1,
    ]
    early, late = (Posterior(jnp.full(4, value), jnp.arange(4.0) + value) for value in (0.0, 10.0))
    joined = _stacking._joined([early, late], [1, 0], num_folds=2)
    assert joined.psi.tolist() == [10.0, 10.0, 0.0, 0.0]
    assert joined.particles.tolist() == [10.0, 11.0, 2.0, 3.0]


def test_pure_noise_is_not_learned_by_heart():
    """Rows out of fold choose an early snapshot: the end of training knows the labels by heart."""
    noise = np.random.default_rng(3).integers(2, size=240)
    model = pb.PartialBNNClassifier(**SMALL, learning_rate=0.02).fit(X, noise)
    assert model.history_.metrics["loss"][-20:].mean() < 0.5
    assert np.abs(model.predict_proba(X)[:, 0] - 0.5).mean() < 0.15


def test_conformal_intervals_and_sets(regressor, classifier):
    # What a fold predicts at a row is what the score of the row was made with.
    out = regressor.oof_predictive_
    rows = np.arange(200)
    folds = out.folds[np.argsort(out.source)]
    mean, std = regressor._of_folds(X[:200])
    np.testing.assert_allclose(mean[folds, rows], out.mean, rtol=1e-5)
    np.testing.assert_allclose(std[folds, rows], out.std, rtol=1e-4)
    low, high = regressor.predict_interval(X[200:], 0.8, method="conformal")
    assert 0.6 < np.mean((low <= Y[200:]) & (Y[200:] <= high)) < 0.95
    centered = regressor.predict_interval(X[200:], 0.8, method="centered")
    assert np.mean(centered[1] - centered[0]) < np.mean(high - low)
    wide = regressor.predict_interval(X[200:], 0.95, method="conformal")
    assert np.all(wide[0] <= low)
    assert np.all(wide[1] >= high)
    sets = classifier.predict_set(X[200:], 0.9)
    own = sets[np.arange(40), np.searchsorted(classifier.classes_, LABELS[200:])]
    assert own.mean() > 0.8
    assert np.all(classifier.predict_set(X[200:], 0.999))
    with pytest.raises(ValueError, match=r'method must be "bayesian", "conformal" or "centered"'):
        regressor.predict_interval(X, method="both")
    by_another = pb.PartialBNNRegressor((4,), method="map_estimate", max_iter=1).fit(X[:30], Y[:30])
    with pytest.raises(ValueError, match="need out-of-fold scores"):
        by_another.predict_interval(X, method="conformal")


def test_probabilities_are_calibrated_out_of_fold(classifier):
    assert classifier.oof_score_ > 0.8
    probabilities = classifier.oof_predictive_.probabilities
    own = probabilities[np.arange(200), np.searchsorted(classifier.classes_, LABELS[:200])]
    assert -np.log(own).mean() < 0.45
    assert "log_temperature" in classifier.posterior_.psi.likelihood["calibration"]
    assert classifier.predict_proba(X).shape == (240, 2)


def test_weights_of_rows_are_repetitions():
    weights = np.arange(60) % 3
    one = clone(REGRESSOR).set_params(max_iter=3)
    weighted = clone(one).fit(X[:60], Y[:60], sample_weight=weights)
    repeated = clone(one).fit(np.repeat(X[:60], weights, axis=0), np.repeat(Y[:60], weights))
    np.testing.assert_allclose(weighted.predict(X), repeated.predict(X))
    assert np.isnan(weighted.oof_predictive_.mean[0])
    uneven = clone(one).fit(X[:60], Y[:60], sample_weight=np.where(X[:60, 0] > 0, 1.5, 1e-6))
    assert np.isfinite(uneven.predict(X)).all()
    with pytest.raises(ValueError, match=r'need method="crossfit"'):
        pb.PartialBNNRegressor(method="ohsmc").fit(X[:60], Y[:60], sample_weight=weights)
    with pytest.raises(ValueError, match="at least one non-zero"):
        clone(one).fit(X[:60], Y[:60], sample_weight=np.zeros(60))
    # On a stream, too; a fraction is the probability of once more.
    streams = [clone(one).set_params(n_replays=1) for _ in range(2)]
    streams[0].partial_fit(X[:60], Y[:60], sample_weight=weights)
    streams[1].partial_fit(np.repeat(X[:60], weights, axis=0), np.repeat(Y[:60], weights))
    np.testing.assert_array_equal(streams[0].predict(X), streams[1].predict(X))
    copies = np.mean([_copies(np.array([0.25, 1.5]), np.random.default_rng(k)) for k in range(400)], 0)
    np.testing.assert_allclose(copies, [0.25, 1.5], atol=0.1)


def test_metadata_are_routed():
    weights, groups = 1 + np.arange(60) % 2, np.arange(60) // 6
    one = clone(REGRESSOR).set_params(max_iter=2)
    direct = clone(one).fit(X[:60], Y[:60], sample_weight=weights, groups=groups)
    with sklearn.config_context(enable_metadata_routing=True):
        asking = clone(one).set_fit_request(sample_weight=True, groups=True)
        asking.set_score_request(sample_weight=True).set_partial_fit_request(sample_weight=True)
        piped = make_pipeline(FunctionTransformer(), asking)
        piped.fit(X[:60], Y[:60], sample_weight=weights, groups=groups)
        score = piped.score(X[:60], Y[:60], sample_weight=weights)
    np.testing.assert_array_equal(piped.predict(X), direct.predict(X))
    assert score == direct.score(X[:60], Y[:60], weights)


def test_effort_sets_steps_and_seconds():
    fast, default, best = (
        _recipe.schedule_for(500, effort, False).num_steps for effort in ("fast", "default", "best")
    )
    assert fast < default < best
    folds = [_recipe.folds_for(100, effort) for effort in ("fast", "default", "best", 60.0)]
    assert folds == [8, 16, 16, 16]
    assert [_recipe.folds_for(1000, effort) for effort in ("default", "best")] == [8, 16]
    model = clone(REGRESSOR).set_params(max_iter=None, effort=0.01).fit(X[:60], Y[:60])
    assert len(model.history_.metrics["loss"]) == 150  # two pieces to measure, and the fewest after
    with pytest.raises(ValueError, match="effort must be"):
        clone(REGRESSOR).set_params(effort="hard").fit(X, Y)
    with pytest.raises(ValueError, match="effort in seconds must be positive"):
        clone(REGRESSOR).set_params(effort=-1.0).fit(X, Y)


def test_divergence_is_an_error():
    broken = clone(REGRESSOR).set_params(learning_rate=1e30, max_iter=5)
    with pytest.raises(TrainingDivergedError, match=r"training diverged within .*Try a lower"):
        broken.fit(X[:60], Y[:60])


def test_weights_from_before_a_divergence_are_used(monkeypatch):
    calls = []
    taken = _crossfit._posterior

    def last_one_broken(algorithm, parts):
        calls.append(taken(algorithm, parts))
        particles = calls[-1].particles
        values = particles.values * (np.nan if len(calls) > 2 else 1.0)
        return calls[-1]._replace(particles=particles._replace(values=values))

    monkeypatch.setattr(_crossfit, "_posterior", last_one_broken)
    model = clone(REGRESSOR).set_params(max_iter=20)
    with pytest.warns(ConvergenceWarning, match="earlier weights are used"):
        model.fit(X[:60], Y[:60])
    assert np.isfinite(model.predict(X)).all()


def test_stream_after_fit_and_pipeline(regressor):
    piped = make_pipeline(StandardScaler(), clone(REGRESSOR).set_params(max_iter=3)).fit(X[:60], Y[:60])
    mean, std = piped.predict(X, return_std=True)
    assert mean.shape == std.shape == (240,)
    assert piped.predict(X, quantiles=[0.5]).shape == (240, 1)
    going_on = copied_between_processes(regressor).set_params(n_replays=20)
    before = going_on.predict(X).mean()
    for _ in range(10):
        going_on.partial_fit(X[:200], Y[:200] + 20.0)
    assert going_on.predict(X).mean() > before + 8.0


def test_saved_pickled_and_exported(tmp_path, regressor, classifier):
    copied = copied_between_processes(regressor)
    np.testing.assert_array_equal(copied.predict(X), regressor.predict(X))
    np.testing.assert_array_equal(copied.oof_predictive_.mean, regressor.oof_predictive_.mean)
    regressor.save(tmp_path / "model")
    code = f"""
        import numpy as np, partialbayes as pb
        model = pb.PartialBNNRegressor.load({str(tmp_path / "model")!r})
        x = np.load({str(tmp_path / "x.npy")!r})
        ends = model.predict_interval(x, 0.8, "conformal")
        np.save({str(tmp_path / "y.npy")!r}, [model.predict(x), *ends])
        assert model.oof_predictive_ is None
        print(model.oof_score_)
    """
    np.save(tmp_path / "x.npy", X)
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    shown = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], env=environment, capture_output=True, text=True
    )
    assert shown.returncode == 0, shown.stderr[-2000:]
    assert float(shown.stdout) == pytest.approx(regressor.oof_score_)
    expected = [regressor.predict(X), *regressor.predict_interval(X, 0.8, "conformal")]
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), expected, rtol=1e-6)
    classifier.export(tmp_path / "predictor")
    exported = pb.io.load_predictor(tmp_path / "predictor")(X.astype(np.float32))["mean"]
    np.testing.assert_allclose(exported, classifier.predict_proba(X)[:, 1], rtol=1e-4, atol=1e-6)


def test_settings_of_numpy_are_saved_as_numbers(tmp_path):
    sizes = {"num_particles": np.int64(2), "max_iter": np.int32(2), "random_state": np.int64(3)}
    rates = {"learning_rate": np.float32(0.01), "weight_decay": np.float64(0.1), "effort": np.float64(3)}
    flags = {"log_targets": np.False_, "verbose": np.False_}
    model = clone(REGRESSOR).set_params(**sizes, **rates, **flags).fit(X[:60], Y[:60])
    model.save(tmp_path / "model")
    back = pb.PartialBNNRegressor.load(tmp_path / "model")
    assert back.random_state == 3
    assert back.learning_rate == np.float32(0.01)
    np.testing.assert_allclose(back.predict(X), model.predict(X), rtol=1e-6)


def test_what_it_cannot_do_is_said():
    with pytest.raises(ValueError, match="stochastic is what"):
        pb.PartialBNNRegressor(stochastic="last").fit(X, Y)
    with pytest.raises(ValueError, match="n_folds must be at least 2"):
        pb.PartialBNNRegressor(n_folds=1).fit(X, Y)
    with pytest.raises(ValueError, match="writes no checkpoint"):
        pb.PartialBNNRegressor().fit(X, Y, run=pb.Run(resume=True))

"""Predictions of the training rows by members that have not seen them, in memory and after load."""

import json

import numpy as np
import pytest

import partialbayes as pb
from partialbayes.estimators import _crossfit as crossfit
from partialbayes.io._model_folder import _digest
from partialbayes.io._pytree_file import read_file, save_tree

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(60, 2))
Y = X[:, 0] + 0.3 * RANDOM.normal(size=60)
SMALL = {"max_iter": 3, "n_folds": 3, "random_state": 0}


@pytest.fixture(scope="module")
def fitted():
    return pb.PartialBNNRegressor((8,), **SMALL).fit(X, Y)


def test_every_score_takes_them(fitted):
    out = fitted.oof_predictive_
    scores = pb.metrics.evaluate(out, Y)
    assert scores["nlpd"] == pytest.approx(-np.mean(out.log_density(Y)))
    assert scores["r2"] == pytest.approx(fitted.oof_score_, abs=1e-5)
    low, high = out.interval(0.9)
    assert scores["coverage"] == pytest.approx(np.mean((low <= Y) & (high >= Y)))
    assert 0 < scores["crps"] < scores["mae"]
    np.testing.assert_allclose(np.square(out.std), out.variance)
    mean, _, log_weights = out.components()
    middle = np.average(mean, axis=0, weights=np.exp(log_weights))
    between = np.average((mean - middle) ** 2, axis=0, weights=np.exp(log_weights))
    np.testing.assert_allclose(out.epistemic_variance, between, rtol=1e-3)
    assert out.quantile([0.1, 0.5, 0.9]).shape == (3, 60)
    assert out.sample(0, 5).shape == (5, 60)


def test_they_are_known_after_load_and_after_a_second_save(fitted, tmp_path):
    fitted.save(tmp_path / "first")
    pb.PartialBNNRegressor.load(tmp_path / "first").save(tmp_path / "second")
    loaded = pb.PartialBNNRegressor.load(tmp_path / "second")
    assert loaded._knows_folds(60)
    assert not loaded._knows_folds(59)
    again = loaded._out_of_fold(X, np.arange(60))
    np.testing.assert_allclose(again.log_density(Y), fitted.oof_predictive_.log_density(Y), rtol=1e-5)
    rows = np.array([5, 50, 7])
    few = loaded._out_of_fold(X[rows], rows)
    np.testing.assert_allclose(few.mean, fitted.oof_predictive_.mean[rows], rtol=1e-5)
    loaded.partial_fit(X[:4], Y[:4])  # now every member has seen these
    assert not loaded._knows_folds(60)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda kept, arrays: kept["conformity"]["scores"].__setitem__(0, -1.0),
            "negative, NaN or infinite",
        ),
        (
            lambda kept, arrays: kept["conformity"]["scores"].__setitem__(0, float("nan")),
            "negative, NaN or infinite",
        ),
        (lambda kept, arrays: kept["conformity"]["scores"].pop(), "one number per fold"),
        (lambda kept, arrays: kept["conformity"]["folds"].__setitem__(0, 3), "numbered from 0"),
        (lambda kept, arrays: arrays.update(_two(arrays, "extra/out_of_fold/folds")), "per row"),
        (
            lambda kept, arrays: arrays.update(_two(arrays, "target_scale/shift")),
            "target scale per output",
        ),
        (
            lambda kept, arrays: kept["settings"].update(num_particles=2.0),
            "num_particles must be a whole number",
        ),
        (lambda kept, arrays: kept["settings"].update(num_centers=7), "groups than its posterior"),
        (lambda kept, arrays: kept["settings"].update(num_folds=2), "groups than its posterior"),
    ],
)
def test_what_was_altered_is_refused(fitted, tmp_path, change, message):
    folder = tmp_path / "model"
    fitted.save(folder)
    path = folder / "model.json"
    description = json.loads(path.read_text())
    file = folder / description["arrays"]
    arrays, _ = read_file(file)
    change(description["metadata"], arrays)
    text = json.dumps(description)
    path.write_text(text)
    save_tree(file, arrays, {"description": _digest(text)})
    with pytest.raises(pb.errors.CheckpointError, match=message):
        pb.PartialBNNRegressor.load(folder)


def _two(arrays, name):
    return {name: np.stack([arrays[name]] * 2)}


def test_another_rate_or_decay_compiles_nothing(fitted):
    compiled = [part._cache_size() for part in (crossfit._start, crossfit._run)]
    other = pb.PartialBNNRegressor((8,), learning_rate=0.02, weight_decay=0.5, **SMALL).fit(X, Y)
    assert [part._cache_size() for part in (crossfit._start, crossfit._run)] == compiled
    assert other.model_ is fitted.model_ or other.model_ == fitted.model_
    assert not np.allclose(other.predict(X), fitted.predict(X))

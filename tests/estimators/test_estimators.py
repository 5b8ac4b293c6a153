"""The scikit-learn estimators: its own checks, and what it cannot check."""

import copy
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

import partialbayes as pb
from partialbayes.types import Particles

ROOT = Path(__file__).parents[2]
RNG = np.random.default_rng(0)
X = RNG.normal(size=(90, 3))
Y = 100.0 + 10.0 * X[:, 0] + RNG.normal(size=90)
LABELS = np.where(X[:, 1] + 0.3 * RNG.normal(size=90) > 0, "yes", "no")
SMALL = {"hidden_layer_sizes": (8,), "num_particles": 30, "epochs": 150, "random_state": 0}
REGRESSOR = pb.PartialBNNRegressor(**SMALL)
CLASSIFIER = pb.PartialBNNClassifier(**SMALL)


@pytest.fixture(scope="module")
def regressor():
    return clone(REGRESSOR).fit(X, Y)


@pytest.fixture(scope="module")
def classifier():
    return clone(CLASSIFIER).fit(X, LABELS)


CHECKS = """
    import warnings, sys
    warnings.simplefilter("ignore")
    import partialbayes as pb
    from sklearn.utils.estimator_checks import check_estimator
    made = getattr(pb, sys.argv[1])(
        hidden_layer_sizes=(4,), num_particles=20, epochs=60, learning_rate=0.03, n_replays=1
    )
    print(sum(result["status"] == "passed" for result in check_estimator(made, on_skip=None)))
"""


@pytest.mark.parametrize("name", ["PartialBNNRegressor", "PartialBNNClassifier"])
def test_scikit_learns_own_checks(name):
    """In a process of their own, where warnings are no errors and types are not checked."""
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-c", textwrap.dedent(CHECKS), name]
    shown = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr[-2000:]
    assert int(shown.stdout) > 45


def test_regressor_in_original_units(regressor):
    mean, std = regressor.predict(X, return_std=True)
    assert regressor.score(X, Y) > 0.9
    assert 0.5 < std.mean() < 4.0
    low, high = regressor.predict_interval(X, 0.9)
    assert 0.8 < np.mean((low < Y) & (high > Y)) <= 1.0
    np.testing.assert_allclose(regressor.predictive(X).mean, mean, rtol=1e-5)
    draws = regressor.sample_posterior(X[:5], n_samples=400)
    assert draws.shape == (400, 5)
    np.testing.assert_allclose(draws.mean(axis=0), mean[:5], atol=1.0)
    # Standardized by the training rows: a change of units changes nothing.
    other = clone(regressor).fit(X * [1e3, 1e-3, 1.0] + 7.0, Y * 1e4)
    np.testing.assert_allclose(other.predict(X * [1e3, 1e-3, 1.0] + 7.0), mean * 1e4, rtol=1e-2)


def test_scales_are_those_of_the_training_rows_alone(regressor):
    train, held_out = regressor._divide(Y, regressor._seed)
    assert len(held_out) > 0
    np.testing.assert_allclose(regressor.input_shift_, X[train].mean(axis=0))
    np.testing.assert_allclose(regressor.input_scale_, X[train].std(axis=0))
    np.testing.assert_allclose(regressor.target_scale_.shift, Y[train].mean(), rtol=1e-5)


def test_functions_are_drawn_by_weight(regressor):
    values = regressor.posterior_.particles.values
    # All but zero: in place of a particle of weight zero stands the heaviest.
    alone = np.where(np.arange(len(values)) == 3, 0.0, -60.0).astype(np.float32)
    certain = copy.copy(regressor)
    certain.posterior_ = regressor.posterior_._replace(particles=Particles(values, alone))
    draws = certain.sample_posterior(X[:2], n_samples=20)
    np.testing.assert_allclose(draws, np.tile(certain.predict(X[:2]), (20, 1)), rtol=1e-5)
    assert np.ptp(regressor.sample_posterior(X[:2], n_samples=20), axis=0).min() > 0.0


def test_a_hundred_rows_of_a_sine_are_learned_by_default():
    rng = np.random.default_rng(1)
    x = rng.uniform(-2.0, 2.0, (600, 1))
    y = np.sin(3.0 * x[:, 0]) + 0.1 * rng.normal(size=600)
    model = pb.PartialBNNRegressor(random_state=0).fit(x[:100], y[:100])
    assert model.score(x[100:], y[100:]) > 0.9
    low, high = model.predict_interval(x[100:], 0.9)
    assert 0.75 < np.mean((low <= y[100:]) & (y[100:] <= high)) < 0.99


def test_classifier_with_string_labels(classifier):
    assert classifier.classes_.tolist() == ["no", "yes"]
    assert classifier.score(X, LABELS) > 0.8
    probabilities = classifier.predict_proba(X)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    assert classifier.sample_posterior(X[:4], 10).shape == (10, 4)
    three = clone(CLASSIFIER).fit(X, np.digitize(X[:, 0], [-0.5, 0.5]))
    assert three.predict_proba(X).shape == (90, 3)
    with pytest.raises(ValueError, match="only one class"):
        clone(CLASSIFIER).fit(X, np.full(90, "same"))


def test_tools_of_scikit_learn_and_pandas(regressor):
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    piped = make_pipeline(MinMaxScaler(), clone(REGRESSOR))
    assert cross_val_score(piped, frame, Y, cv=2).mean() > 0.8
    grid = GridSearchCV(clone(REGRESSOR), {"learning_rate": [0.01, 1e-5]}, cv=2).fit(frame, Y)
    assert grid.best_params_ == {"learning_rate": 0.01}
    assert grid.best_estimator_.feature_names_in_.tolist() == ["a", "b", "c"]
    assert clone(regressor).get_params() == regressor.get_params()


def test_any_method_and_any_subset():
    settings = SMALL | {"epochs": 2}
    for method in ("map_estimate+laplace", lambda model: pb.ohsmc(model, num_particles=5)):
        made = pb.PartialBNNRegressor(**settings | {"method": method, "stochastic": "layers/0/kernel"})
        assert made.fit(X, Y).model_.split.dim == 24
    with pytest.raises(ValueError, match=r"method must be one of ohsmc, .* not 'magic'"):
        pb.PartialBNNRegressor(method="magic").fit(X, Y)
    with pytest.raises(ValueError, match="matches no weight"):
        pb.PartialBNNRegressor(stochastic="layers/9/*").fit(X, Y)


def test_partial_fit_goes_on_from_the_particles(regressor):
    going_on = clone(REGRESSOR).set_params(n_replays=10).fit(X, Y)
    for _ in range(15):
        going_on.partial_fit(X, Y + 30.0)  # the world has changed
    assert going_on.stream_info_["ess"].shape == (11,)
    shift = np.mean(going_on.predict(X) - regressor.predict(X))
    assert 15.0 < shift < 35.0
    labels = clone(CLASSIFIER).partial_fit(X[:45], LABELS[:45], classes=["no", "yes"])
    for _ in range(20):
        labels.partial_fit(X[45:], LABELS[45:])
    assert labels.score(X, LABELS) > 0.8
    with pytest.raises(ValueError, match="none of the classes"):
        labels.partial_fit(X[:1], ["maybe"])


def test_saved_and_exported(tmp_path, regressor, classifier):
    for estimator, method in ((regressor, "predict"), (classifier, "predict_proba")):
        folder = tmp_path / type(estimator).__name__
        estimator.save(folder, notes={"why": "test"})
        back = type(estimator).load(folder)
        np.testing.assert_allclose(getattr(back, method)(X), getattr(estimator, method)(X), rtol=1e-6)
        assert back.get_params() == {**estimator.get_params(), "hidden_layer_sizes": [8]}
    assert back.predict(X[:3]).tolist() == classifier.predict(X[:3]).tolist()
    back.partial_fit(X, LABELS)
    with pytest.raises(ValueError, match="holds a PartialBNNClassifier, not a PartialBNNRegressor"):
        pb.PartialBNNRegressor.load(tmp_path / "PartialBNNClassifier")
    import jax

    regressor.export(tmp_path / "predictor")
    predictor = jax.export.deserialize(bytearray((tmp_path / "predictor").read_bytes()))
    exported = predictor.call(X.astype(np.float32))["mean"]
    np.testing.assert_allclose(exported, regressor.predict(X), rtol=1e-4)

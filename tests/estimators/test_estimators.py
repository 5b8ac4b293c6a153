"""The scikit-learn estimators by any method; the default has a file of its own."""

import copy
import threading

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

import partialbayes as pb
from partialbayes.estimators import _base
from partialbayes.types import Particles
from tests.io.test_model_folder import forge

RNG = np.random.default_rng(0)
X = RNG.normal(size=(90, 3))
Y = 100.0 + 10.0 * X[:, 0] + RNG.normal(size=90)
LABELS = np.where(X[:, 1] + 0.3 * RNG.normal(size=90) > 0, "yes", "no")
SMALL = {
    "hidden_layer_sizes": (8,),
    "method": "ohsmc",
    "num_particles": 30,
    "max_iter": 150,
    "random_state": 0,
}
REGRESSOR = pb.PartialBNNRegressor(**SMALL)
CLASSIFIER = pb.PartialBNNClassifier(**SMALL)


@pytest.fixture(scope="module")
def regressor():
    return clone(REGRESSOR).fit(X, Y)


@pytest.fixture(scope="module")
def classifier():
    return clone(CLASSIFIER).fit(X, LABELS)


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


def test_a_constant_column_ruins_nothing():
    """0.1 has a computed spread of 1e-17, and 5e6 has no spread of its own to go by."""
    constants = np.tile([0.1, 5e6, 0.0], (90, 1))
    model = clone(REGRESSOR).fit(np.hstack([X, constants]), Y)
    assert np.all(model.input_scale_[3:] == [0.1, 5e6, 1.0])
    rows = np.hstack([X[:5], constants[:5]])
    moved = rows + np.array([0, 0, 0, 1e-6, 50.0, 1e-6])
    np.testing.assert_allclose(model.predict(moved), model.predict(rows), atol=0.1)
    with pytest.raises(ValueError, match=r"X holds 1e\+30 in row 2, column 1, a billion spreads"):
        model.predict(np.where(np.eye(5, 6, -1) * (np.arange(5) == 2)[:, None], 1e30, rows))
    # A constant target is what is predicted.
    flat = clone(REGRESSOR).fit(X, np.full(90, 0.1))
    np.testing.assert_allclose(flat.predict(X), 0.1, atol=0.3)


@pytest.mark.parametrize(("shift", "scale"), [(1e9, 1.0), (0.0, 1e30)])
def test_offset_and_large_targets_are_learned_as_others(regressor, shift, scale):
    other = clone(REGRESSOR).fit(X, shift + scale * Y)
    mean, std = regressor.predict(X, return_std=True)
    found, spread = other.predict(X, return_std=True)
    np.testing.assert_allclose((found - shift) / scale, mean, atol=1e-3 * Y.std())
    np.testing.assert_allclose(spread / scale, std, rtol=1e-3)


def test_wide_tables_are_not_made_nonsense_of():
    """Ten thousand columns: steps as long as those of a few went far beyond what they aimed at."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20, 10_000))
    y = x[:, 0] + 0.1 * rng.normal(size=20)
    settings = SMALL | {"num_particles": 20, "max_iter": 60}
    model = pb.PartialBNNRegressor(**settings).fit(x, y)
    mean, std = model.predict(x, return_std=True)
    assert np.sqrt(np.mean((mean - y) ** 2)) < 3 * std.mean()


def test_functions_are_drawn_by_weight(regressor):
    values = regressor.posterior_.particles.values
    # All but zero: in place of a particle of weight zero stands the heaviest.
    alone = np.where(np.arange(len(values)) == 3, 0.0, -60.0).astype(np.float32)
    certain = copy.copy(regressor)
    certain.posterior_ = regressor.posterior_._replace(particles=Particles(values, alone))
    draws = certain.sample_posterior(X[:2], n_samples=20)
    np.testing.assert_allclose(draws, np.tile(certain.predict(X[:2]), (20, 1)), rtol=1e-5)
    assert np.ptp(regressor.sample_posterior(X[:2], n_samples=20), axis=0).min() > 0.0


@pytest.mark.slow
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
    settings = SMALL | {"max_iter": 2}
    for method in ("map_estimate+laplace", lambda model: pb.ohsmc(model, num_particles=5)):
        made = pb.PartialBNNRegressor(**settings | {"method": method, "stochastic": "layers/0/kernel"})
        assert made.fit(X, Y).model_.split.dim == 24
    with pytest.raises(ValueError, match=r"method must be crossfit or one of ohsmc, .* not 'magic'"):
        pb.PartialBNNRegressor(method="magic").fit(X, Y)
    with pytest.raises(ValueError, match="matches no weight"):
        pb.PartialBNNRegressor(method="ohsmc", stochastic="layers/9/*").fit(X, Y)


def test_partial_fit_goes_on_from_the_particles(regressor):
    going_on = clone(REGRESSOR).set_params(n_replays=10).fit(X, Y)
    for _ in range(15):
        going_on.partial_fit(X, Y + 30.0)  # the world has changed
    assert going_on.stream_info_["loss"].shape == (11,)
    shift = np.mean(going_on.predict(X) - regressor.predict(X))
    assert 15.0 < shift < 35.0
    labels = clone(CLASSIFIER).partial_fit(X[:45], LABELS[:45], classes=["no", "yes"])
    for _ in range(20):
        labels.partial_fit(X[45:], LABELS[45:])
    assert labels.score(X, LABELS) > 0.8
    with pytest.raises(ValueError, match="none of the classes"):
        labels.partial_fit(X[:1], ["maybe"])


def test_one_row_does_not_destroy_a_stream():
    stream = clone(REGRESSOR).set_params(n_replays=2).partial_fit(X[:60], Y[:60])
    before, seen = stream.predict(X[:3]), stream._online.seen
    for bad, message in ((1e30, r"y holds 1e\+30 in row 0"), (1e300, "y holds"), (1e10, "is refused")):
        with pytest.raises((pb.errors.TrainingDivergedError, ValueError), match=message):
            stream.partial_fit(X[:1], [bad])
        np.testing.assert_array_equal(stream.predict(X[:3]), before)
    assert stream.partial_fit(X[60:], Y[60:])._online.seen == seen + 30
    assert np.isfinite(stream.predict(X)).all()


def test_threads_take_turns():
    """Each read the state and wrote its own over that of the other: half of the rows were lost."""
    stream = clone(REGRESSOR).set_params(n_replays=0, window_size=200).partial_fit(X[:30], Y[:30])
    threads = [
        threading.Thread(target=lambda: [stream.partial_fit(X[:2], Y[:2]) for _ in range(15)])
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert stream._online.seen == 30 + 3 * 15 * 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda metadata: metadata["settings"]["sizes"].pop(1), "another network"),
        (lambda metadata: metadata["params"].update(hidden_layer_sizes=[9]), "another network"),
        (lambda metadata: metadata["params"].update(learning_rate=-1.0), "learning_rate must be posit"),
        (lambda metadata: metadata["params"].update(color="red"), "params are not those"),
        (lambda metadata: metadata["settings"].update(stochastic="all"), "another network"),
        (lambda metadata: metadata["settings"].update(likelihood="bernoulli"), "likelihood is 'bern"),
        (lambda metadata: metadata["input_scale"].pop(), "one finite number per column"),
        (lambda metadata: metadata["input_scale"].__setitem__(0, 0.0), "input_scale is not positive"),
        (lambda metadata: metadata.pop("input_shift"), "'input_shift' is not what was written"),
        (lambda metadata: metadata.update(feature_names=["a"]), "one name per column"),
        (lambda metadata: metadata.update(params=None), "'params' is not what was written"),
    ],
)
def test_a_folder_whose_parts_do_not_belong_together(tmp_path, regressor, change, message):
    regressor.save(tmp_path / "model")
    forge(tmp_path / "model", lambda description: change(description["metadata"]))
    with pytest.raises(pb.errors.CheckpointError, match=message):
        pb.PartialBNNRegressor.load(tmp_path / "model")


def mixed(rows=90):
    """A table of every kind of column, and its target."""
    return pd.DataFrame(
        {
            "town": pd.Categorical(np.where(X[:rows, 1] > 0, "Oslo", "Bergen")),
            "garden": X[:rows, 2] > 0,
            "size": np.where(np.arange(rows) % 9 == 0, np.nan, X[:rows, 0]),
            "sold": pd.date_range("2024-01-01", periods=rows, freq="3D"),
            "same": 1,
        }
    )


def test_tables_as_they_come(tmp_path):
    table = mixed()
    with pytest.warns(pb.errors.TableWarning, match="'same' is left out: it is '1' in every row"):
        model = clone(REGRESSOR).fit(table, Y)
    assert model.score(table, Y) > 0.7
    assert model.n_features_in_ == 5
    assert model.feature_names_in_.tolist() == list(table)
    model.save(tmp_path / "model")
    back = pb.PartialBNNRegressor.load(tmp_path / "model")
    np.testing.assert_allclose(back.predict(table), model.predict(table), rtol=1e-6)
    new = table.astype(object)
    new.loc[0, "town"] = "Rome"
    with pytest.warns(pb.errors.TableWarning, match=r"'town' holds a category .* \('Rome'\)"):
        assert np.isfinite(back.predict(new)).all()
    as_dictionary = {name: table[name].to_numpy() for name in table}
    np.testing.assert_allclose(back.predict(as_dictionary), model.predict(table), rtol=1e-6)
    gaps = np.where(np.arange(270).reshape(90, 3) % 11 == 0, np.nan, X)
    assert clone(CLASSIFIER).set_params(max_iter=40).fit(gaps, LABELS).score(gaps, LABELS) > 0.7


def test_a_stream_goes_on_after_load_as_if_it_had_never_stopped(tmp_path, regressor):
    quick = {"n_replays": 3}
    for number, going_on in enumerate((clone(regressor).set_params(**quick).fit(X, Y), None)):
        if going_on is None:
            going_on = clone(REGRESSOR).set_params(**quick).partial_fit(X[:40], Y[:40])
        going_on.save(tmp_path / str(number))
        back = pb.PartialBNNRegressor.load(tmp_path / str(number))
        for one in (going_on, back):
            one.partial_fit(X[40:60], Y[40:60] + 3.0).partial_fit(X[60:80], Y[60:80] + 3.0)
        np.testing.assert_array_equal(going_on.predict(X), back.predict(X))


def test_scorers(regressor, classifier):
    score = pb.estimators.negative_nlpd(regressor, X, Y)
    assert score == pytest.approx(np.mean(np.asarray(regressor.predictive(X).log_density(Y))), rel=1e-5)
    assert -2.0 < pb.estimators.negative_crps(regressor, X, Y) < 0.0
    proba = classifier.predict_proba(X)[np.arange(90), (LABELS == "yes").astype(int)]
    assert pb.estimators.negative_nlpd(classifier, X, LABELS) == pytest.approx(
        np.log(proba).mean(), abs=1e-4
    )
    with pytest.raises(ValueError, match="not there in training"):
        pb.estimators.negative_nlpd(classifier, X[:1], ["maybe"])
    piped = make_pipeline(MinMaxScaler(), clone(REGRESSOR).set_params(max_iter=2))
    assert np.isfinite(cross_val_score(piped, X, Y, cv=2, scoring=pb.estimators.negative_nlpd)).all()


FRAME = pd.DataFrame({"a": X[:, 0], "b": X[:, 1]})
# What is set, what is passed, and the sentence; every one is refused by `fit`.
BAD = {
    "a width": (
        {"hidden_layer_sizes": 50},
        (X, Y),
        r"hidden_layer_sizes must be a sequence of whole numbers, such as \(50, 50\)",
    ),
    "no width": ({"hidden_layer_sizes": (0,)}, (X, Y), "hidden_layer_sizes must be a whole number"),
    "no batch": ({"batch_size": 0}, (X, Y), "batch_size must be a whole number of at least 1"),
    "half a batch": ({"batch_size": 0.5}, (X, Y), "batch_size must be a whole number of at least 1"),
    "no particles": ({"num_particles": 0}, (X, Y), "num_particles must be a whole number"),
    "no epochs": ({"max_iter": 0}, (X, Y), "max_iter must be a whole number"),
    "no patience": ({"n_iter_no_change": 0}, (X, Y), "n_iter_no_change must be a whole number"),
    "no memory": ({"window_size": 0}, (X, Y), "window_size must be a whole number"),
    "no learning": ({"learning_rate": -1.0}, (X, Y), "learning_rate must be positive"),
    "negative decay": ({"weight_decay": -1.0}, (X, Y), "weight_decay must be a finite number"),
    "all held out": (
        {"validation_fraction": 0.999},
        (X, Y),
        "validation_fraction must lie between 0 and 0.9",
    ),
    "no method": ({"method": "magic"}, (X, Y), "method must be crossfit or one of ohsmc"),
    "no weights": ({"stochastic": "layers/9/*"}, (X, Y), "matches no weight"),
    "logs of negatives": ({"log_targets": True}, (X, Y - 200.0), "targets must be positive"),
    "infinite targets": ({}, (X, np.where(X[:, 0] > 2, np.inf, Y)), "infinity|infinite"),
    "text as targets": (
        {},
        (X, LABELS),
        "could not convert string to float|must be numeric|Unable to convert",
    ),
    "rows that differ": (
        {},
        (FRAME.assign(c=["u", "v"] * 45), Y[:5]),
        "inconsistent numbers of samples",
    ),
    "infinite inputs": (
        {},
        (FRAME.assign(c=np.where(X[:, 0] == X[0, 0], np.inf, 1.5 * X[:, 0]), d=["u", "v"] * 45), Y),
        "'c' holds an infinite number in row 1",
    ),
    "nothing to learn from": (
        {},
        (pd.DataFrame({"a": ["u"] * 90}), Y),
        "no column is left to predict from",
    ),
    "half words": (
        {},
        (FRAME.assign(c=["1", "2", "big"] * 30), Y),
        "'c' should hold numbers, but row 3 holds 'big'",
    ),
    "one name twice": (
        {},
        (pd.concat([FRAME, FRAME.astype(str)], axis=1), Y),
        "there are two columns 'a'",
    ),
    "no rows": ({}, (FRAME[:0], Y[:0]), "0 sample"),
    "one dimension": ({}, (Y, Y), "Expected 2D array"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_wrong_is_named(case):
    settings, data, sentence = BAD[case]
    with pytest.raises(ValueError, match=sentence):
        pb.PartialBNNRegressor(**SMALL).set_params(**settings).fit(*data)


def test_what_a_fitted_estimator_refuses(regressor, classifier):
    with pytest.raises(ValueError, match="3 features"):
        regressor.predict(X[:, :2])
    with pytest.raises(ValueError, match="y holds 'maybe', which is none of the classes"):
        clone(classifier).partial_fit(X[:9], np.repeat(["maybe"], 9), classes=["no", "yes"])
    assert len(BAD) >= 20


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
    regressor.export(tmp_path / "predictor")
    exported = pb.io.load_predictor(tmp_path / "predictor")(X.astype(np.float32))["mean"]
    np.testing.assert_allclose(exported, regressor.predict(X), rtol=1e-4)
    far = copy.copy(regressor)
    far.input_shift_ = regressor.input_shift_ + np.array([0.0, 1e9, 0.0])
    with pytest.raises(ValueError, match=r"column 1 lies so far .* single precision"):
        far.export(tmp_path / "predictor")


def test_smc_takes_all_rows_at_every_step_and_is_not_sgsmc(monkeypatch):
    class ToldError(Exception):
        """What was to be trained, and in batches of how many rows; nothing is compiled."""

    def tell(algorithm, data, *, batch_size, **settings):
        raise ToldError(algorithm.wants == "all rows", batch_size >= len(x))

    monkeypatch.setattr(_base, "fit", tell)
    x = np.linspace(-1.0, 1.0, 40)[:, None]
    settings = SMALL | {"batch_size": 10, "validation_fraction": 0.0}
    for method, all_rows in (("smc", True), ("sgsmc", False)):
        with pytest.raises(ToldError) as caught:
            pb.PartialBNNRegressor(**settings | {"method": method}).fit(x, np.sin(x[:, 0]))
        assert caught.value.args == (all_rows, all_rows)

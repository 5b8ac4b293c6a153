"""Bad inputs and settings, one after another: what does the library say to each?

``python tests/bad_inputs.py`` tries every case of the table, without the type checks of the tests, and
prints as JSON what happened. A case is a clear error, of a kind that is meant and with the name of
what is wrong in it; or, where there is a right answer, that answer. Nothing may pass silently.
"""

import json
import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

import partialbayes as pb

RNG = np.random.default_rng(0)
X = RNG.normal(size=(20, 2))
Y = X[:, 0] + 0.1 * X[:, 1]
LABELS = (X[:, 0] > 0).astype(int)
NETWORK = pb.mlp([2, 4, 1])
MODEL = pb.partial_bnn(NETWORK, "layers/0/*", pb.gaussian())
CLASSES = pb.partial_bnn(NETWORK, "layers/0/*", pb.bernoulli())
COUNTS = pb.partial_bnn(NETWORK, "layers/0/*", pb.likelihoods.poisson())
OHSMC = pb.ohsmc(MODEL, num_particles=4)
FOLDER = Path(tempfile.mkdtemp(prefix="bad-inputs-"))


def posterior(model: Any = MODEL) -> Any:
    """Any posterior, made without compiling."""
    shapes = jax.eval_shape(lambda key: model.init(key).psi, jax.random.key(0))
    psi = jax.tree.map(lambda leaf: jnp.asarray(np.ones(leaf.shape), leaf.dtype), shapes)
    values = jnp.asarray(RNG.normal(size=(4, model.split.dim)), jnp.float32)
    weights = jnp.asarray(np.full(4, np.log(0.25)), jnp.float32)
    return pb.types.Posterior(psi, pb.types.Particles(values, weights))


class Case(NamedTuple):
    """One thing that a user may do.

    Attributes:
        name: What it is.
        act: Do it.
        says: What the error must say; None where there is a right answer, and ``act`` tells whether.
    """

    name: str
    act: Callable[[], Any]
    says: str | None


def fit(data: Any, algorithm: Any = OHSMC, **settings: Any) -> Any:
    """Train as little as can be."""
    return pb.fit(algorithm, data, **({"epochs": 1} | settings))


def changed(array: Any, value: Any, row: int = 3) -> Any:
    """The array with one value in it."""
    array = np.array(array, float)
    array[row] = value
    return array


def _fit_cases() -> list[Case]:
    ids = np.arange(20)[:, None] + np.array([[2**40 + 3, 5]])
    masked = np.ma.masked_greater(X, 1.0)
    data = {
        "a target too few": ((X, Y[:-1]), "20 rows of inputs but 19 of targets"),
        "no rows": ((X[:0], Y[:0]), "has no rows"),
        "NaN in inputs": ((changed(X, np.nan), Y), "inputs contains NaN .*row 3"),
        "infinite inputs": ((changed(X, np.inf), Y), "inputs contains an infinite"),
        "inputs of 1e300": ((changed(X, 1e300), Y), "inputs contains values above"),
        "NaN in targets": ((X, changed(Y, np.nan)), "targets contains NaN"),
        "infinite targets": ((X, changed(Y, -np.inf)), "targets contains an infinite"),
        "targets of 1e300": ((X, changed(Y, 1e300)), "targets contains values above"),
        "targets around 1e9": ((X, Y + 1e9), "targets lie between .* single precision"),
        "targets around 1e7": ((X, Y + 1e7), "targets lie between .* single precision"),
        "inputs around 1e9": ((X + np.array([0, 1e9]), Y), "inputs lie between .* column 1"),
        "large identifiers": ((ids, Y), "inputs holds the whole number 10995"),
        "negative ones": ((-ids, Y), "inputs holds the whole number -10995"),
        "identifiers of uint64": ((ids.astype(np.uint64) + 2**63, Y), "whole number 9223"),
        "identifiers of uint32": ((np.full((20, 2), 2**32, np.uint64), Y), "4294967296, which does"),
        "a masked array": ((masked, Y), "inputs has masked entries"),
        "masked targets": ((X, np.ma.masked_greater(Y, 0.0)), "targets has masked entries"),
        "complex inputs": ((X + 1j, Y), "inputs must be real numbers, not complex128"),
        "complex targets": ((X, Y + 1j), "targets must be real numbers, not complex128"),
        "dates": ((X.astype("M8[s]"), Y), "inputs must be numbers, not datetime64.*days"),
        "durations": ((X.astype("m8[s]"), Y), "inputs must be numbers, not timedelta64"),
        "targets that are dates": ((X, Y.astype("M8[s]")), "targets must be numbers, not datetime"),
        "text": ((X.astype(str), Y), "inputs must be numbers, not <U.*encode text"),
        "objects": ((X.astype(object), Y), "inputs must be numbers, not object"),
        "bytes": ((X.astype("S8"), Y), "inputs must be numbers"),
        "targets that are text": ((X, Y.astype(str)), "targets must be numbers"),
        "targets that are objects": ((X, Y.astype(object)), "targets must be numbers"),
        "a list of targets": ((X, Y.tolist()), "targets must be an array"),
        "a scalar": ((3.0, Y), "inputs must be an array with one row"),
        "nothing": (None, "data must be a pair"),
        "no targets": (X, "data must be a pair"),
        "three arrays": ((X, Y, Y), "not a tuple of 3"),
        "a dictionary": ({"x": X, "y": Y}, "data must be a pair .* not a dict"),
        "an empty pair": (({}, Y), "inputs holds no array"),
        "too few columns": ((X[:, :1], Y), "takes .examples, 2"),
        "one axis": ((X[:, 0], Y), "takes .examples, 2"),
        "three axes": ((X[:, :, None], Y), "takes .examples, 2"),
        "two targets each": ((X, np.stack([Y, Y], 1)), "targets have shape .20, 2"),
    }
    labels = {
        "labels from one": ((X, LABELS + 1), "labels from 1 to 2"),
        "negative labels": ((X, LABELS - 1), "labels from -1 to 0"),
        "fractions for labels": ((X, LABELS + 0.5), "some are fractions"),
        "text for labels": ((X, np.array(["a", "b"] * 10)), "targets must be integer class labels"),
        "labels that are NaN": ((X, changed(LABELS, np.nan)), "targets contains NaN"),
        "labels that wrap": ((X, LABELS.astype(np.int64) + 2**32), "targets hold 4294967297, too"),
    }
    counts = {
        "negative counts": ((X, LABELS - 1), "counts from 0 up"),
        "fractional counts": ((X, LABELS + 0.5), "fractions"),
        "counts that wrap": ((X, LABELS.astype(np.int64) + 2**32), "targets hold 4294967297, too"),
    }
    pair = (X, Y)
    settings: dict[str, tuple[dict[str, Any], str]] = {
        "no epochs": ({"epochs": 0}, "epochs must be a whole number"),
        "half an epoch": ({"epochs": 0.5}, "epochs must be a whole number"),
        "epochs that are text": ({"epochs": "3"}, "epochs must be a whole number"),
        "epochs that are true": ({"epochs": True}, "epochs must be a whole number"),
        "empty batches": ({"batch_size": 0}, "batch_size must be a whole number"),
        "negative batches": ({"batch_size": -4}, "batch_size must be a whole number"),
        "batches of more than all": ({"batch_size": 21}, "batch_size is 21, but there are only 20"),
        "fractional batches": ({"batch_size": 2.5}, "batch_size must be a whole number"),
        "text for a key": ({"key": "x"}, "key must be"),
        "a long key": ({"key": 2**70}, "key must be a whole number from"),
        "a key that wraps": ({"key": 2**40 + 3}, "key must be a whole number from"),
        "a fractional key": ({"key": 1.5}, "key must be"),
        "no key": ({"key": None}, "key must be"),
        "an array for a key": ({"key": jnp.zeros(2, jnp.uint32)}, "key must be .* uint32"),
        "validation without targets": ({"validation": X}, "validation must be a pair"),
        "validation of another width": ({"validation": (X[:, :1], Y)}, "takes .examples, 2"),
        "validation with NaN": (
            {"validation": (X, changed(Y, np.nan))},
            "validation: targets contains NaN",
        ),
        "an algorithm that is none": ({"algorithm": MODEL}, "algorithm must be a Algorithm"),
    }
    return [
        *(Case(f"fit: {name}", lambda d=d: fit(d), says) for name, (d, says) in data.items()),
        *(
            Case(f"fit: {name}", lambda d=d: fit(d, pb.ohsmc(CLASSES, num_particles=4)), says)
            for name, (d, says) in labels.items()
        ),
        *(
            Case(f"fit: {name}", lambda d=d: fit(d, pb.ohsmc(COUNTS, num_particles=4)), says)
            for name, (d, says) in counts.items()
        ),
        *(
            Case(f"fit: {name}", lambda given=given: fit(pair, **given), says)
            for name, (given, says) in settings.items()
        ),
    ]


def _model_cases() -> list[Case]:
    made: dict[str, tuple[Callable[[], Any], str]] = {
        "one size": (lambda: pb.mlp([2]), "sizes must name at least"),
        "a number for sizes": (lambda: pb.mlp(5), "sizes must name at least"),
        "text for sizes": (lambda: pb.mlp("23"), "sizes must name at least"),
        "a size of zero": (lambda: pb.mlp([2, 0, 1]), "every entry of sizes"),
        "a negative size": (lambda: pb.mlp([2, -3, 1]), "every entry of sizes"),
        "a fractional size": (lambda: pb.mlp([2, 2.7, 1]), "every entry of sizes"),
        "text for a size": (lambda: pb.mlp([2, "3", 1]), "every entry of sizes"),
        "an activation that is none": (lambda: pb.mlp([2, 3, 1], 7), "activation must be .* not 7"),
        "an activation by name": (lambda: pb.mlp([2, 3, 1], "relu"), "activation must be"),
        "an activation that sums": (lambda: pb.mlp([2, 3, 1], jnp.sum), "activation must be .* gives"),
        "an activation of two": (lambda: pb.mlp([2, 3, 1], jnp.add), "activation must be .* raises"),
        "a negative bias": (lambda: pb.mlp([2, 1], initial_bias=-1.0), "initial_bias"),
        "a bias that is NaN": (lambda: pb.mlp([2, 1], initial_bias=float("nan")), "initial_bias"),
        "no such weight": (
            lambda: pb.partial_bnn(NETWORK, "layer/0", pb.gaussian()),
            "matches no weight",
        ),
        "no weight at all": (
            lambda: pb.partial_bnn(NETWORK, lambda leaf: False, pb.gaussian()),
            "selects no weight",
        ),
        "a layer too far": (
            lambda: pb.partial_bnn(NETWORK, pb.subsets.layer(7), pb.gaussian()),
            "layer",
        ),
        "a fraction of two": (
            lambda: pb.partial_bnn(NETWORK, pb.subsets.random_fraction(2.0), pb.gaussian()),
            "fraction",
        ),
        "a variance of zero": (lambda: pb.gaussian(0.0), "must be positive and finite"),
        "a negative variance": (lambda: pb.gaussian(-1.0), "must be positive and finite"),
        "a variance that is NaN": (lambda: pb.gaussian(float("nan")), "must be positive and finite"),
        "an infinite variance": (lambda: pb.gaussian(float("inf")), "must be positive and finite"),
        "text for a variance": (lambda: pb.gaussian("x"), "must be positive and finite"),
        "a learned variance of -1": (lambda: pb.learned(-1.0), "must be positive and finite"),
        "a prior of scale 0": (lambda: pb.priors.normal(scale=0.0), "scale must be positive"),
        "no particles": (lambda: pb.ohsmc(MODEL, num_particles=0), "num_particles must be"),
        "fractional particles": (lambda: pb.ohsmc(MODEL, num_particles=2.5), "num_particles must be"),
        "particles that are true": (lambda: pb.ohsmc(MODEL, num_particles=True), "num_particles must"),
        "a random walk of 0": (lambda: pb.kernels.random_walk(0.0), "must be positive and finite"),
        "a network for a model": (lambda: fit((X, Y), pb.ohsmc(NETWORK)), "model must be a Model"),
    }
    return [Case(f"models: {name}", act, says) for name, (act, says) in made.items()]


def _estimator_cases() -> list[Case]:
    small = {"hidden_layer_sizes": (3,), "max_iter": 1, "num_particles": 4, "method": "ohsmc"}
    settings: dict[str, tuple[dict[str, Any], str]] = {
        "a negative learning rate": ({"learning_rate": -1}, "learning_rate must be positive"),
        "a learning rate of 0": ({"learning_rate": 0.0}, "learning_rate must be positive"),
        "text for a learning rate": ({"learning_rate": "x"}, "learning_rate must be positive"),
        "a learning rate that is NaN": ({"learning_rate": float("nan")}, "learning_rate must be pos"),
        "two learning rates": ({"learning_rate": [0.1, 0.2]}, "learning_rate must be one number"),
        "no folds": ({"n_folds": 0}, "n_folds must be a whole number"),
        "one fold": ({"n_folds": 1}, "n_folds must be at least 2"),
        "fractional folds": ({"n_folds": 2.5}, "n_folds must be a whole number"),
        "folds that are NaN": ({"n_folds": float("nan")}, "n_folds must be a whole number"),
        "text for folds": ({"n_folds": "5"}, "n_folds must be a whole number"),
        "more folds than rows": ({"n_folds": 21, "method": "crossfit"}, "(n_samples=20)"),
        "an unknown effort": ({"effort": "hard"}, 'effort must be "fast"'),
        "no effort": ({"effort": None}, 'effort must be "fast"'),
        "several efforts": ({"effort": [1.0]}, 'effort must be "fast"'),
        "an effort that is true": ({"effort": True}, 'effort must be "fast"'),
        "an effort of 0": ({"effort": 0}, "effort in seconds must be positive and finite"),
        "an effort that is NaN": ({"effort": float("nan")}, "effort in seconds must be positive"),
        "an endless effort": ({"effort": float("inf")}, "effort in seconds must be positive and finite"),
        "text for logarithms": ({"log_targets": "no"}, "log_targets must be True, False or None"),
        "a number for logarithms": ({"log_targets": 2}, "log_targets must be True, False or None"),
        "text for a bar": ({"verbose": "no"}, "verbose must be True or False"),
        "a bar that is NaN": ({"verbose": float("nan")}, "verbose must be True or False"),
        "no cores": ({"n_jobs": 0}, "n_jobs must be a whole number"),
        "fractional cores": ({"n_jobs": 1.5}, "n_jobs must be a whole number"),
        "a subset for groups": ({"stochastic": "last", "method": "crossfit"}, "stochastic is what"),
        "a rate of 1e30": ({"learning_rate": 1e30, "method": "crossfit"}, "training diverged within"),
        "a negative decay": ({"weight_decay": -1}, "weight_decay must be a finite number"),
        "text for a decay": ({"weight_decay": "x"}, "weight_decay must be a finite number"),
        "a fractional width": ({"hidden_layer_sizes": (2.7,)}, "every entry of hidden_layer_sizes"),
        "a number for the widths": ({"hidden_layer_sizes": 5}, "hidden_layer_sizes must be a sequence"),
        "text for the widths": ({"hidden_layer_sizes": "50"}, "hidden_layer_sizes must be a sequence"),
        "a width of 0": ({"hidden_layer_sizes": (3, 0)}, "every entry of hidden_layer_sizes"),
        "empty batches": ({"batch_size": 0}, "batch_size must be a whole number"),
        "fractional batches": ({"batch_size": 1.5}, "batch_size must be a whole number"),
        "no epochs": ({"max_iter": 0}, "max_iter must be a whole number"),
        "fractional epochs": ({"max_iter": 1.5}, "max_iter must be a whole number"),
        "no particles": ({"num_particles": 0}, "num_particles must be a whole number"),
        "text for particles": ({"num_particles": "9"}, "num_particles must be a whole number"),
        "all rows held out": ({"validation_fraction": 1.0}, "validation_fraction must lie between 0"),
        "a negative share": ({"validation_fraction": -0.1}, "validation_fraction must be a finite"),
        "text for a share": ({"validation_fraction": "x"}, "validation_fraction must be a finite"),
        "no patience": ({"n_iter_no_change": 0}, "n_iter_no_change must be a whole number"),
        "no memory": ({"window_size": 0}, "window_size must be a whole number"),
        "negative replays": ({"n_replays": -1}, "n_replays must be a whole number"),
        "an unknown method": ({"method": "magic"}, "method must be crossfit or one of"),
        "no method": ({"method": None}, "method must be crossfit or one of"),
        "an unknown subset": ({"stochastic": "layers/9/*"}, "matches no weight"),
        "text for a seed": ({"random_state": "x"}, "random_state: 'x'"),
        "a negative seed": ({"random_state": -1}, "random_state: Seed must be"),
    }
    regressor = pb.PartialBNNRegressor
    tables: dict[str, tuple[Any, Any, str]] = {
        "masked X": (np.ma.masked_greater(X, 0.0), Y, "X has masked entries"),
        "masked y": (X, np.ma.masked_greater(Y, 0.0), "y has masked entries"),
        "complex X": (X + 1j, Y, "X must be real numbers"),
        "complex y": (X, Y + 1j, "y must be real numbers"),
        "dates in X": (X.astype("M8[s]"), Y, "X must be numbers, not datetime64"),
        "durations in y": (X, Y.astype("m8[s]"), "y must be numbers, not timedelta64"),
        "infinite X": (changed(X, np.inf), Y, "Input X contains infinity"),
        "NaN in y": (X, changed(Y, np.nan), "Input y contains NaN"),
        "text in y": (X, Y.astype(str).astype(object) + "a", "could not convert string"),
        "one axis": (X[:, 0], Y, "Expected 2D array"),
        "no rows": (X[:0], Y[:0], "0 sample"),
        "no columns": (X[:, :0], Y, "0 feature"),
        "a target too few": (X, Y[:-1], "inconsistent numbers of samples"),
    }
    gaps = np.where(X > 1.0, np.nan, X)
    for name, (_, y, says) in list(tables.items()):
        if name in ("masked y", "complex y", "durations in y", "NaN in y"):
            tables[f"{name} beside a table"] = (gaps, y, says)
    classifier = pb.PartialBNNClassifier
    no_labels = np.where(LABELS > 0, "yes", None)
    trained = _fitted()

    def in_groups(groups: Any) -> Any:
        return regressor(**small | {"method": "crossfit"}).fit(X, Y, groups=groups)

    after: dict[str, tuple[Callable[[], Any], str]] = {
        "another width at prediction": (lambda: trained.predict(X[:, :1]), "has 1 features"),
        "NaN at prediction": (lambda: trained.predict(changed(X, np.nan)), "Input X contains NaN"),
        "1e30 at prediction": (lambda: trained.predict(changed(X, 1e30)), "X holds 1e.30 in row 3"),
        "1e300 at prediction": (lambda: trained.predict(changed(X, 1e300)), "X holds 1e.300 in row 3"),
        "masked at prediction": (lambda: trained.predict(np.ma.masked_less(X, 0)), "X has masked"),
        "complex at prediction": (lambda: trained.predict(X + 1j), "X must be real"),
        "a target of 1e30 in a stream": (lambda: trained.partial_fit(X[:1], [1e30]), "y holds 1e.30"),
        "a target of 1e300 in a stream": (lambda: trained.partial_fit(X[:1], [1e300]), "y holds 1e.300"),
        "inputs of 1e30 in a stream": (lambda: trained.partial_fit(1e30 * X[:1], [0.0]), "X holds"),
        "NaN in a stream": (lambda: trained.partial_fit(X[:1], [np.nan]), "Input y contains NaN"),
        "text for a coverage": (lambda: trained.predict_interval(X, "x"), "coverage must lie"),
        "no coverage": (lambda: trained.predict_interval(X, None), "coverage must lie"),
        "text for levels": (lambda: trained.predict(X, quantiles="x"), "levels must lie"),
        "groups too few": (lambda: in_groups(np.zeros(19)), "one label for each of the 20 rows"),
        "text for groups": (lambda: in_groups("x"), "one label for each of the 20 rows"),
        "groups of nothing": (lambda: in_groups([None] * 20), "groups contains NaN: row 0"),
        "groups with NaN": (lambda: in_groups(changed(Y, np.nan)), "groups contains NaN: row 3"),
        "text for weights": (
            lambda: regressor(**small | {"method": "crossfit"}).fit(X, Y, sample_weight="x"),
            "sample_weight must be one number per row",
        ),
        "a coverage of 90": (lambda: trained.predict_interval(X, 90), "coverage must lie"),
        "before it is fitted": (lambda: regressor().predict(X), "not fitted yet"),
        "one class alone": (lambda: classifier(**small).fit(X, np.zeros(20, int)), "only one class"),
        "rows without a label": (
            lambda: classifier(**small).fit(X, no_labels),
            "y contains NaN: row . has no label",
        ),
        "the same of pandas": (
            lambda: classifier(**small).fit(X, pd.Series(no_labels, dtype="string")),
            "y contains NaN: row . has no label",
        ),
        "masked labels beside a table": (
            lambda: classifier(**small).fit(gaps, np.ma.masked_less(LABELS, 1)),
            "y has masked entries",
        ),
        "numbers for classes": (lambda: classifier(**small).fit(X, Y), "Unknown label type"),
        "no classes in a stream": (
            lambda: classifier(**small).partial_fit(X, LABELS),
            "classes must be",
        ),
        "one class in a stream": (
            lambda: classifier(**small).partial_fit(X, LABELS, classes=[1]),
            "only one class",
        ),
        "an unknown class": (
            lambda: classifier(**small).partial_fit(X, LABELS + 5, classes=[0, 1]),
            "none of the classes",
        ),
    }
    return [
        *(
            Case(
                f"estimators: {name}",
                lambda given=given: regressor(**(small | given)).fit(X, Y),
                says,
            )
            for name, (given, says) in settings.items()
        ),
        *(
            Case(f"estimators: {name}", lambda x=x, y=y: regressor(**small).fit(x, y), says)
            for name, (x, y, says) in tables.items()
        ),
        *(Case(f"estimators: {name}", act, says) for name, (act, says) in after.items()),
        Case("estimators: a stream refused keeps its posterior", lambda: _kept(trained), None),
    ]


def _fitted() -> Any:
    """An estimator as if it had been trained."""
    made = pb.PartialBNNRegressor((3,), num_particles=4, n_replays=0, method="ohsmc")
    made.n_features_in_ = 2
    made._set_scales(X, Y)
    made.algorithm_ = made._algorithm(X, Y)
    made.model_ = made.algorithm_.model
    made.posterior_ = posterior(made.model_)
    made._seed, made._recent, made._online = 0, None, None
    return made


def _kept(trained: Any) -> bool:
    before = trained.posterior_
    try:
        trained.partial_fit(X[:1], [1e30])
    except ValueError:
        return trained.posterior_ is before
    return False


def _prediction_cases() -> list[Case]:
    given = posterior()
    scale = pb.prediction.TargetScale
    predictive = pb.predict(MODEL, given, X)
    classes = pb.predict(CLASSES, posterior(CLASSES), X)
    acts: dict[str, tuple[Callable[[], Any], str]] = {
        "a model to save for a posterior": (
            lambda: pb.save(FOLDER / "no", MODEL, MODEL),
            "posterior must be a Posterior, not .*pass what fit returned",
        ),
        "particles to refine": (lambda: pb.refine(MODEL, given.particles, (X, Y)), "posterior must be"),
        "particles to go on from": (
            lambda: pb.online.start(OHSMC, (X, Y), posterior=given.particles),
            "posterior must be a Posterior",
        ),
        "NaN": (lambda: pb.predict(MODEL, given, changed(X, np.nan)), "inputs contains NaN"),
        "no rows": (lambda: pb.predict(MODEL, given, X[:0]), "inputs has no rows"),
        "text": (lambda: pb.predict(MODEL, given, X.astype(str)), "inputs must be numbers"),
        "complex": (lambda: pb.predict(MODEL, given, X + 1j), "inputs must be real numbers"),
        "dates": (lambda: pb.predict(MODEL, given, X.astype("M8[s]")), "inputs must be numbers"),
        "masked": (lambda: pb.predict(MODEL, given, np.ma.masked_less(X, 0)), "inputs has masked"),
        "identifiers": (lambda: pb.predict(MODEL, given, np.full((3, 2), 2**40)), "inputs holds the"),
        "1e300": (lambda: pb.predict(MODEL, given, X * 1e300), "inputs contains values above"),
        "a scale of 0": (lambda: pb.predict(MODEL, given, X, target_scale=scale(0.0, 0.0)), "positive"),
        "a scale that is NaN": (
            lambda: pb.predict(MODEL, given, X, target_scale=scale(0.0, np.nan)),
            "target_scale.scale must be positive",
        ),
        "a shift that is NaN": (
            lambda: pb.predict(MODEL, given, X, target_scale=scale(np.nan, 1.0)),
            "target_scale.shift must be finite",
        ),
        "a scale for classes": (
            lambda: pb.predict(CLASSES, posterior(CLASSES), X, target_scale=scale(0.0, 1.0)),
            "target_scale is for real-valued",
        ),
        "a level of 0": (lambda: predictive.quantile(0.0), "strictly between 0 and 1"),
        "a level of 2": (lambda: predictive.quantile([0.5, 2.0]), "strictly between 0 and 1"),
        "a level that is NaN": (lambda: predictive.quantile(np.nan), "strictly between 0 and 1"),
        "a coverage of 1": (lambda: predictive.interval(1.0), "coverage must lie"),
        "no samples": (lambda: predictive.sample(0, 0), "num must be a whole number"),
        "a sample by text": (lambda: predictive.sample("x", 1), "key must be"),
        "probabilities of numbers": (lambda: predictive.probabilities, "for classifications"),
        "quantiles of classes": (lambda: classes.quantile(0.5), "these are classes"),
        "densities of too few targets": (lambda: predictive.log_density(Y[:-1]), "20 rows of inputs"),
        "chunks that are a number": (lambda: pb.predict(MODEL, given, X, chunks=7), "chunks must be"),
        "scales of no targets": (lambda: scale.of(Y[:0]), "targets has no rows"),
        "scales of text": (lambda: scale.of(Y.astype(str)), "targets must be numbers"),
        "scales of infinity": (lambda: scale.of(changed(Y, np.inf)), "targets contains an infinite"),
        "scales of nothing": (lambda: scale.of(np.full(9, np.nan)), "missing .NaN. in every row"),
        "errors of another shape": (lambda: pb.metrics.rmse(X, Y), "they must be the same"),
    }
    return [
        *(Case(f"prediction: {name}", act, says) for name, (act, says) in acts.items()),
        Case(
            "prediction: a constant of 0.1", lambda: bool(scale.of(np.full(90, 0.1)).scale == 1.0), None
        ),
        Case(
            "prediction: targets around 1e9",
            lambda: bool(np.isclose(scale.of(1e9 + Y).scale, Y.std(), rtol=1e-5)),
            None,
        ),
        Case(
            "prediction: targets of 1e200",
            lambda: bool(np.isclose(scale.of(1e200 * Y).scale, 1e200 * Y.std(), rtol=1e-5)),
            None,
        ),
        Case(
            "prediction: far units come back",
            lambda: bool(np.allclose(scale(1e9, 1.0).restore(np.float32([0.25])) - 1e9, 0.25)),
            None,
        ),
    ]


def _io_cases() -> list[Case]:
    given = posterior()
    (FOLDER / "file").write_text("")
    (FOLDER / "thesis").mkdir()
    (FOLDER / "thesis" / "thesis.txt").write_text("years of work")
    (FOLDER / "empty").mkdir()
    (FOLDER / "deep").mkdir()
    (FOLDER / "deep" / "model.json").write_text("[" * 100_000)
    pb.save(FOLDER / "model", MODEL, given)
    values = given.particles.values
    broken = given._replace(particles=given.particles._replace(values=values.at[0].set(jnp.nan)))
    heavy = given._replace(particles=given.particles._replace(log_weights=jnp.zeros(4)))
    scale = pb.prediction.TargetScale(1e9, 1.0)
    acts: dict[str, tuple[Callable[[], Any], str]] = {
        "over a model": (lambda: pb.save(FOLDER / "model", MODEL, given), "exists already"),
        "over a thesis": (
            lambda: pb.save(FOLDER / "thesis", MODEL, given, overwrite=True),
            "is not a saved model",
        ),
        "over a file": (lambda: pb.save(FOLDER / "file", MODEL, given, overwrite=True), "not a saved"),
        "below a file": (lambda: pb.save(FOLDER / "file" / "model", MODEL, given), "cannot be written"),
        "a network for a model": (lambda: pb.save(FOLDER / "new", NETWORK, given), "model must be"),
        "a fit for a posterior": (lambda: pb.save(FOLDER / "new", MODEL, MODEL), "posterior must be"),
        "a posterior of NaN": (lambda: pb.save(FOLDER / "new", MODEL, broken), "NaN or infinity"),
        "weights of 4": (lambda: pb.save(FOLDER / "new", MODEL, heavy), "sum to 4"),
        "notes that are no JSON": (
            lambda: pb.save(FOLDER / "new", MODEL, given, metadata={"when": object()}),
            "metadata must contain only JSON",
        ),
        "loading nothing": (lambda: pb.load(FOLDER / "absent"), "does not exist"),
        "a name too long": (lambda: pb.load(FOLDER / ("x" * 5000)), "does not exist"),
        "loading an empty folder": (lambda: pb.load(FOLDER / "empty"), "is not a saved model"),
        "loading a file": (lambda: pb.load(FOLDER / "file"), "is not a saved model"),
        "loading what is nested": (lambda: pb.load(FOLDER / "deep"), "not readable as JSON"),
        "an estimator of a model": (
            lambda: pb.PartialBNNRegressor.load(FOLDER / "model"),
            "holds a model, not a PartialBNNRegressor",
        ),
        "a predictor that is none": (
            lambda: pb.io.load_predictor(FOLDER / "file"),
            "is not a predictor",
        ),
        "a predictor that is absent": (lambda: pb.io.load_predictor(FOLDER / "no"), "missing, incomp"),
        "exporting below a file": (
            lambda: pb.export(FOLDER / "file" / "p", MODEL, given, X),
            "could not be written to",
        ),
        "exporting no rows": (
            lambda: pb.export(FOLDER / "p", MODEL, given, X[:0]),
            "inputs has no rows",
        ),
        "exporting far units": (
            lambda: pb.export(FOLDER / "p", MODEL, given, X, target_scale=scale),
            "target_scale is .* single precision",
        ),
        "a report below a file": (
            lambda: pb.reporting._html.write_page(FOLDER / "file" / "page.html", "t", []),
            "page.html could not be written",
        ),
        "a checkpoint that is none": (
            lambda: pb.fit(OHSMC, (X, Y), epochs=1, run=pb.Run(checkpoint=FOLDER / "file", resume=True)),
            "is not a readable checkpoint",
        ),
    }
    return [
        *(Case(f"io: {name}", act, says) for name, (act, says) in acts.items()),
        Case("io: the thesis is still there", lambda: (FOLDER / "thesis" / "thesis.txt").exists(), None),
        Case("io: nothing half-written", lambda: not (FOLDER / "new").exists(), None),
    ]


def _online_cases() -> list[Case]:
    from partialbayes.online import blank_state

    online = pb.online
    blank = blank_state(OHSMC, pb.model._batch.as_batch(MODEL, (X, Y), "data"), 30, posterior(), 0)
    acts: dict[str, tuple[Callable[[], Any], str]] = {
        "no memory": (lambda: online.start(OHSMC, (X, Y), window_size=0), "window_size must be"),
        "a fractional memory": (lambda: online.start(OHSMC, (X, Y), window_size=2.5), "window_size"),
        "no algorithm": (lambda: online.start(MODEL, (X, Y)), "algorithm must be"),
        "a key that is text": (lambda: online.start(OHSMC, (X, Y), key="x"), "key must be"),
        "first rows with NaN": (lambda: online.start(OHSMC, (changed(X, np.nan), Y)), "contains NaN"),
        "no state": (lambda: online.update(OHSMC, (X, Y)), "online must be a OnlineState"),
        "NaN": (lambda: online.update(blank, (changed(X, np.nan), Y)), "new_data inputs contains NaN"),
        "targets of 1e300": (
            lambda: online.update(blank, (X, changed(Y, 1e300))),
            "new_data: targets contains values above",
        ),
        "identifiers": (lambda: online.update(blank, (np.full((3, 2), 2**40), Y[:3])), "whole number"),
        "too many rows": (
            lambda: online.update(blank, (np.tile(X, (2, 1)), np.tile(Y, 2))),
            "new_data has 40 rows, but the memory holds 30",
        ),
        "negative replays": (
            lambda: online.update(blank, (X, Y), num_replays=-1),
            "num_replays must be",
        ),
        "fractional replays": (
            lambda: online.update(blank, (X, Y), num_replays=1.5),
            "num_replays must",
        ),
        "empty batches": (lambda: online.update(blank, (X, Y), batch_size=0), "batch_size must be"),
        "too few columns": (lambda: online.update(blank, (X[:, :1], Y)), "takes .examples, 2"),
        "a target of 1e30": (
            lambda: online.update(blank, (X, changed(Y, 1e30)), num_replays=0),
            "the update is refused",
        ),
    }
    return [Case(f"online: {name}", act, says) for name, (act, says) in acts.items()]


def cases() -> list[Case]:
    """All of them."""
    return [
        *_fit_cases(),
        *_model_cases(),
        *_estimator_cases(),
        *_prediction_cases(),
        *_io_cases(),
        *_online_cases(),
    ]


def main() -> int:
    """Try every case, and print what happened."""
    warnings.simplefilter("ignore")
    meant = (ValueError, TypeError, pb.errors.CheckpointError, pb.errors.TrainingDivergedError)
    found = {}
    for case in cases():
        try:
            answer = case.act()
        except Exception as error:  # whatever it is, it is what is to be found out
            kind = "error" if isinstance(error, meant) else "raw"
            found[case.name] = (kind, f"{type(error).__name__}: {error}", case.says)
        else:
            right = case.says is None and answer is True
            found[case.name] = ("right" if right else "silent", repr(answer)[:80], case.says)
    sys.stdout.write(json.dumps(found))
    sys.stdout.flush()
    shutil.rmtree(FOLDER)
    os._exit(0)  # the threads of what was tried do not matter


if __name__ == "__main__":
    sys.exit(main())

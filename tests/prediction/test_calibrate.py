"""Numbers that correct a spread, and conformal predictions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partialbayes as pb
from partialbayes.likelihoods._calibrated import adjust
from partialbayes.likelihoods._gaussian import Normal
from partialbayes.likelihoods._student_t import StudentT
from partialbayes.prediction._calibrate import find_numbers
from partialbayes.prediction._conformal import (
    Conformity,
    Spread,
    centered_intervals,
    class_sets,
    intervals,
)
from partialbayes.types import Particles, Posterior

RNG = np.random.default_rng(0)


def numbers_of(found):
    return {name: jnp.asarray(value, jnp.float32) for name, value in found.items()}


def test_the_scale_that_the_rows_have_is_found():
    """Errors three times as large as the noise says: k² s² + f² = 9 s²."""
    y = jnp.asarray(3.0 * RNG.normal(size=4000), jnp.float32)
    base = Normal(jnp.zeros((1, 4000)), jnp.ones((1, 4000)))
    found = find_numbers(pb.gaussian(), base, y, jnp.zeros((1, 1)), jnp.ones(4000, bool))
    variance = adjust(base, numbers_of(found)).variance
    np.testing.assert_allclose(variance, 9.0, rtol=0.08)


def test_a_floor_is_told_from_a_factor():
    """Noise that the network takes for nothing on half of the rows, and gets right on the others."""
    scale = np.where(np.arange(6000) % 2, 0.01, 1.0)
    y = np.hypot(scale, 0.3) * RNG.normal(size=6000)
    base = Normal(jnp.zeros((1, 6000)), jnp.asarray(scale**2, jnp.float32)[None])
    found = find_numbers(
        pb.gaussian(), base, jnp.asarray(y, jnp.float32), jnp.zeros((1, 1)), jnp.ones(6000, bool)
    )
    assert found["floor"] == pytest.approx(0.3, rel=0.1)
    assert np.exp(found["log_factor"]) == pytest.approx(1.0, rel=0.1)


def test_tails_keep_a_variance():
    y = RNG.standard_t(2.5, size=4000)
    ones = jnp.ones((1, 4000))
    base = StudentT(0.0 * ones, ones, 30.0 * ones)
    found = find_numbers(
        pb.likelihoods.student_t(30.0),
        base,
        jnp.asarray(y, jnp.float32),
        jnp.zeros((1, 1)),
        jnp.ones(4000, bool),
    )
    corrected = adjust(base, numbers_of(found))
    assert 2.0 < corrected.degrees_of_freedom[0, 0] < 3.2
    heavy = base._replace(degrees_of_freedom=1.5 * ones)
    assert adjust(heavy, numbers_of(found)).degrees_of_freedom[0, 0] == 1.5


def test_rows_that_do_not_count_do_not():
    y = jnp.asarray(np.where(np.arange(400) < 200, RNG.normal(size=400), 1e6), jnp.float32)
    base = Normal(jnp.zeros((1, 400)), jnp.ones((1, 400)))
    found = find_numbers(pb.gaussian(), base, y, jnp.zeros((1, 1)), jnp.arange(400) < 200)
    assert np.exp(found["log_factor"]) < 1.3


def a_classifier(temperature):
    """Logits x, while the labels have logits x / temperature; an ensemble of two equal members."""
    x = RNG.normal(size=(4000, 1)) * 4.0
    labels = (RNG.uniform(size=4000) < 1.0 / (1.0 + np.exp(-x[:, 0] / temperature))).astype(int)
    network = pb.from_params({"w": jnp.ones((1, 1))}, lambda params, x: x @ params["w"])
    model = pb.partial_bnn(network, "w", pb.bernoulli())
    psi = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), model.init(jax.random.key(0)).psi)
    particles = Particles(jnp.ones((2, 1, 1)), jnp.full((2, 1), -jnp.log(2.0)))
    return model, Posterior(psi, particles), x.astype(np.float32), labels


def test_a_temperature_goes_into_an_ordinary_posterior(tmp_path):
    model, posterior, x, labels = a_classifier(2.5)
    better, calibrated = pb.calibrate(model, posterior, (x, labels))
    numbers = calibrated.psi.likelihood["calibration"]
    np.testing.assert_allclose(np.exp(numbers["log_temperature"]), 2.5, rtol=0.1)
    predictive = pb.predict(better, calibrated, x)
    np.testing.assert_allclose(
        predictive.mean,
        1.0 / (1.0 + np.exp(-x[:, 0] / np.exp(numbers["log_temperature"][0]))),
        rtol=1e-4,
    )
    assert predictive.log_density(labels).mean() > (
        pb.predict(model, posterior, x).log_density(labels).mean() + 0.05
    )
    pb.save(tmp_path / "model", better, calibrated)
    counts = pb.partial_bnn(pb.mlp([1, 2, 1]), "layers/0/*", pb.likelihoods.poisson())
    start = pb.map_estimate(counts)
    posterior = start.posterior(start.init(jax.random.key(0)))
    with pytest.raises(ValueError, match="but not this likelihood"):
        pb.calibrate(counts, posterior, (x, labels))


def test_training_leaves_the_numbers_alone():
    model = pb.partial_bnn(
        pb.mlp([1, 3, 1]), "layers/0/*", pb.likelihoods.calibrated(pb.gaussian(pb.learned(1.0)))
    )
    x = jnp.linspace(-1.0, 1.0, 16)[:, None]
    trained = pb.fit(pb.map_estimate(model), (x, x), epochs=3)
    assert all(value == 0.0 for value in trained.posterior.psi.likelihood["calibration"].values())
    assert trained.posterior.psi.likelihood["base"] != 0.0


def test_intervals_are_order_statistics():
    scores = np.arange(1.0, 20.0)  # 19 of them: the 18th smallest at 90 %
    spread = Spread(np.array([[5.0, 0.0]]), np.array([[1.0, 2.0]]))
    low, high = intervals(spread, Conformity(scores, np.zeros(19, int)), 0.9)
    np.testing.assert_allclose([low, high], [[5.0 - 18.0, -36.0], [5.0 + 18.0, 36.0]])
    low, high = intervals(spread, Conformity(scores, np.zeros(19, int)), 0.99)
    assert np.all(np.isinf(low) & np.isinf(high))
    # Each score with the model of its own fold.
    two = Spread(np.array([[0.0], [100.0]]), np.ones((2, 1)))
    low, high = intervals(two, Conformity(np.ones(40), np.repeat([0, 1], 20)), 0.9)
    assert (low[0], high[0]) == (-1.0, 101.0)
    with pytest.raises(ValueError, match="coverage must lie"):
        intervals(spread, Conformity(scores, np.zeros(19, int)), 1.0)


def test_coverage_is_exact_on_exchangeable_rows():
    """P(covered) = ⌈(1 − α)(k + 1)⌉ / (k + 1) for split conformal intervals: here 0.9."""
    draws = np.abs(RNG.standard_cauchy(size=(4000, 20)))
    covered = [
        draw[19] <= intervals(Spread(np.zeros((1, 1)), np.ones((1, 1))),
                              Conformity(draw[:19], np.zeros(19, int)), 0.9)[1][0]
        for draw in draws
    ]  # fmt: skip
    error = np.sqrt(0.9 * 0.1 / 4000)
    assert abs(np.mean(covered) - 0.9) < 4 * error


def test_centered_intervals_cover_what_is_asked_for():
    """Eight models of equal errors: the mean errs by less, which CV+ does not know."""
    folds = np.repeat(np.arange(8), 250)
    scores = np.abs(np.sqrt(0.25 + 0.25) * RNG.normal(size=2000))  # of noise, and of a model
    rows = 20_000
    means = 0.5 * RNG.normal(size=(8, rows))
    targets = 0.5 * RNG.normal(size=rows)
    spread = Spread(means, np.ones((8, rows)))
    covered = {}
    for make in (centered_intervals, intervals):
        low, high = make(spread, Conformity(scores, folds), 0.9)
        covered[make] = np.mean((low <= targets) & (targets <= high))
    assert covered[intervals] > 0.95
    assert abs(covered[centered_intervals] - 0.9) < 0.04  # the disagreement of eight is noisy
    # One model has nothing to disagree with: split conformal.
    one = Spread(means[:1], spread.std[:1])
    of_one = Conformity(scores, np.zeros(2000, int))
    np.testing.assert_allclose(centered_intervals(one, of_one, 0.9), intervals(one, of_one, 0.9))
    assert np.all(np.isinf(centered_intervals(one, Conformity(scores[:5], folds[:5]), 0.9)))


def test_sets_hold_what_is_as_probable_as_known_rows():
    conformity = Conformity(np.linspace(0.0, 0.9, 10), np.zeros(10, int))
    sets = class_sets(np.array([[[0.95, 0.05], [0.5, 0.5]]]), conformity, 0.5)
    # Scores 0.05, 0.95 and 0.5: shares of (9 + 1), (0 + 1) and (5 + 1) of 11 above 0.5.
    assert sets.tolist() == [[True, False], [True, True]]


def test_conformal_predictions_of_predictives():
    x = jnp.linspace(-1.0, 1.0, 64)[:, None]
    model = pb.partial_bnn(pb.mlp([1, 3, 1]), "layers/0/*", pb.gaussian(0.01))
    algorithm = pb.map_estimate(model)
    predictive = pb.predict(model, algorithm.posterior(algorithm.init(jax.random.key(0))), x)
    wanted = np.asarray(predictive.mean) + RNG.normal(size=64)
    low, high = pb.prediction.conformal_interval(predictive, predictive, wanted, 0.9)
    assert np.mean((low <= wanted) & (wanted <= high)) >= 0.9
    classes, posterior, x, labels = a_classifier(1.0)
    predictive = pb.predict(classes, posterior, x[:500])
    sets = pb.prediction.conformal_sets(predictive, predictive, labels[:500], 0.9)
    assert sets[np.arange(500), labels[:500]].mean() >= 0.9
    with pytest.raises(ValueError, match="use conformal_sets"):
        pb.prediction.conformal_interval(predictive, predictive, labels[:500])

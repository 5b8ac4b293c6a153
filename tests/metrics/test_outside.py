"""Scores of strangeness and of abstaining, against scikit-learn and by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_curve

import partialbayes as pb

RNG = np.random.default_rng(0)
INSIDE, OUTSIDE = RNG.normal(size=200).round(1), RNG.normal(1.0, size=90).round(1)  # with ties


def test_aupr_and_fpr95_are_those_of_scikit_learn():
    truth = np.r_[np.zeros(200), np.ones(90)]
    scores = np.r_[INSIDE, OUTSIDE]
    wanted = average_precision_score(truth, scores)
    np.testing.assert_allclose(pb.metrics.aupr(INSIDE, OUTSIDE), wanted, rtol=1e-5)
    # usual inputs as positives, by their familiarity
    false_rates, true_rates, _ = roc_curve(1 - truth, -scores, drop_intermediate=False)
    wanted = false_rates[np.argmax(true_rates >= 0.95)]
    np.testing.assert_allclose(pb.metrics.fpr95(INSIDE, OUTSIDE), wanted, rtol=1e-5)


def test_risk_coverage_answers_ties_together():
    doubts, losses = np.array([0.2, 0.1, 0.2, 0.9]), np.array([1.0, 0.0, 0.0, 1.0])
    curve = pb.metrics.risk_coverage(doubts, losses)
    np.testing.assert_allclose(curve.coverage, [0.25, 0.75, 0.75, 1.0])
    np.testing.assert_allclose(curve.risk, [0.0, 1 / 3, 1 / 3, 0.5], rtol=1e-6)
    np.testing.assert_allclose(pb.metrics.aurc(doubts, losses), (2 / 3 + 0.5) / 4, rtol=1e-6)
    rule = pb.metrics.selective(doubts, losses, risk=0.4)
    np.testing.assert_allclose(rule, (0.2, 0.75, 1 / 3), rtol=1e-6)
    assert pb.metrics.selective(doubts, np.ones(4), risk=0.4) == (-np.inf, 0.0, 0.0)


def test_density_of_features_is_that_of_the_normal_laws():
    features = RNG.normal(size=(4000, 2)) @ np.array([[2.0, 0.5], [0.0, 1.0]])
    labels = np.arange(4000) % 2
    features[labels == 1] += 10.0
    found = pb.metrics.feature_density(features, labels)(
        np.array([[0.0, 0.0], [10.0, 10.0], [5.0, 5.0]])
    )
    # at a mean: −log ½ + ½ log((2π)² |C|), |C| = 4
    np.testing.assert_allclose(found[:2], np.log(2.0) + np.log(2.0 * np.pi) + np.log(2.0), atol=0.1)
    assert found[2] > found[0] + 5.0


def test_energy_is_that_of_the_mean_logits():
    network = pb.types.Network(lambda key: {"w": jnp.zeros((1, 3))}, lambda p, x: x @ p["w"])
    model = pb.partial_bnn(network, "w", pb.categorical())
    values = jnp.asarray(RNG.normal(size=(2, 3)), jnp.float32)
    log_weights = jnp.log(jnp.array([0.25, 0.75]))
    psi = model.init(jax.random.key(0)).psi
    posterior = pb.types.Posterior(psi, pb.types.Particles(values, log_weights))
    found = pb.metrics.energy(pb.predict(model, posterior, jnp.array([[1.0], [2.0]])))
    mean = 0.25 * np.asarray(values)[0] + 0.75 * np.asarray(values)[1]
    wanted = -np.log(np.exp(mean * np.array([[1.0], [2.0]])).sum(-1))
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    numbers = pb.partial_bnn(network, "w", pb.gaussian())
    with pytest.raises(ValueError, match="class logits"):
        pb.metrics.energy(pb.predict(numbers, posterior, jnp.ones((1, 1))))


def test_combined_adds_the_logarithms_of_tail_probabilities():
    strangeness = pb.metrics.combined(np.array([3.0, 1.0, 2.0]), 10.0 * np.arange(4.0))
    found = strangeness(np.array([2.0, 9.0, -9.0]), np.array([15.0, -1.0, 99.0]))
    wanted = -np.log([[3 / 4, 1 / 4, 1.0], [3 / 5, 1.0, 1 / 5]]).sum(0)
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    with pytest.raises(ValueError, match="1 uncertainties are given, but 2"):
        strangeness(np.ones(2))
    with pytest.raises(ValueError, match="known is empty"):
        pb.metrics.combined()


@pytest.mark.parametrize("name", ["aupr", "fpr95", "risk_coverage"])
def test_shapes_are_checked(name):
    with pytest.raises(ValueError, match="shape"):
        getattr(pb.metrics, name)(np.ones(0), np.ones(0))

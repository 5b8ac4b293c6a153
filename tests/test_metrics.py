import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partialbayes as pb


def ece_by_definition(probabilities, labels, bins):
    """Σ_b (n_b / n) |accuracy_b − confidence_b|, bin by bin, with bins (a, b]."""
    confidence, chosen = probabilities.max(axis=1), probabilities.argmax(axis=1)
    total = 0.0
    for lower, upper in zip(np.arange(bins) / bins, np.arange(1, bins + 1) / bins, strict=True):
        inside = (confidence > np.float32(lower)) & (confidence <= np.float32(upper))
        if inside.any():
            gap = np.mean(chosen[inside] == labels[inside]) - np.mean(confidence[inside])
            total += inside.mean() * abs(gap)
    return total


@pytest.mark.parametrize("bins", [1, 2, 15, 100])
@pytest.mark.parametrize("classes", [2, 5])
def test_ece_is_the_definition(bins, classes):
    rng = np.random.default_rng(classes)
    probabilities = rng.dirichlet(np.ones(classes), size=500).astype(np.float32)
    labels = rng.integers(classes, size=500)
    ours = pb.expected_calibration_error(jnp.asarray(probabilities), jnp.asarray(labels), bins)
    np.testing.assert_allclose(ours, ece_by_definition(probabilities, labels, bins), atol=1e-6)


@pytest.mark.parametrize("bins", [10, 15, 30])
def test_ece_at_the_edges_of_the_bins(bins):
    """A confidence of k / bins is in the bin that ends there, whatever rounding does to bins × it."""
    edges = np.arange(bins // 2 + 1, bins + 1) / bins
    just_below = np.nextafter(edges.astype(np.float32), np.float32(0))
    confidence = np.concatenate([edges, just_below]).astype(np.float32)
    labels = np.arange(len(confidence)) % 2
    probabilities = np.stack([1 - confidence, confidence], axis=1)
    # In pairs: k / bins and the number just below it share a bin, so wrong and right may cancel there.
    ours = pb.expected_calibration_error(jnp.asarray(probabilities), jnp.asarray(labels), bins)
    np.testing.assert_allclose(ours, ece_by_definition(probabilities, labels, bins), atol=1e-6)


def test_ece_of_certain_predictions():
    sure = jnp.asarray([1.0, 1.0, 0.0, 0.0])
    assert float(pb.expected_calibration_error(sure, jnp.asarray([1, 1, 0, 0]))) == 0.0
    assert float(pb.expected_calibration_error(sure, jnp.asarray([0, 0, 1, 1]))) == 1.0


def test_ece_of_calibrated_predictions_vanishes():
    probabilities = jax.random.uniform(jax.random.key(0), (20_000,))
    labels = jax.random.bernoulli(jax.random.key(1), probabilities).astype(jnp.int32)
    assert float(pb.expected_calibration_error(probabilities, labels)) < 0.01
    overconfident = jnp.where(probabilities > 0.5, 0.99, 0.01)
    assert float(pb.expected_calibration_error(overconfident, labels)) > 0.2


def test_one_probability_is_two_classes():
    one = jnp.asarray([0.9, 0.4, 0.2, 0.7])
    two = jnp.stack([1 - one, one], axis=1)
    labels = jnp.asarray([1, 1, 0, 0])
    assert pb.accuracy(one, labels) == pb.accuracy(two, labels) == 0.5
    assert pb.expected_calibration_error(one, labels) == pb.expected_calibration_error(two, labels)


def test_accuracy_of_several_classes():
    probabilities = jnp.asarray([[0.2, 0.5, 0.3], [0.6, 0.3, 0.1], [0.1, 0.1, 0.8]])
    assert np.isclose(pb.accuracy(probabilities, jnp.asarray([1, 0, 1])), 2 / 3)


def test_nlpd_and_rmse():
    assert float(pb.nlpd(jnp.asarray([-1.0, -2.0, -6.0]))) == 3.0
    mean = jnp.asarray([[0.0, 1.0], [2.0, 3.0]])
    assert np.isclose(pb.rmse(mean, mean + jnp.asarray([[1.0, 1.0], [3.0, 3.0]])), np.sqrt(5.0))
    assert float(pb.rmse(jnp.asarray([1.0, 2.0]), jnp.asarray([[1.0], [2.0]]))) == 0.0


def test_they_compile():
    one, labels = jnp.asarray([0.9, 0.2]), jnp.asarray([1, 1])
    assert jax.jit(pb.accuracy)(one, labels) == pb.accuracy(one, labels)
    compiled = jax.jit(pb.expected_calibration_error)(one, labels)
    assert np.isclose(compiled, pb.expected_calibration_error(one, labels))


def test_bad_arguments():
    labels = jnp.asarray([0, 1])
    with pytest.raises(ValueError, match="probability of class one"):
        pb.accuracy(jnp.ones((2, 1)), labels)  # its only class would always be the most probable
    with pytest.raises(ValueError, match="bins"):
        pb.expected_calibration_error(jnp.ones(2), labels, bins=0)
    with pytest.raises(ValueError, match="they must be the same"):
        pb.rmse(jnp.ones((2, 3)), jnp.ones((2, 2)))

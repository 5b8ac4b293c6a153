import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
import scoringrules
import sklearn.metrics

import partialbayes as pb
from partialbayes.metrics._evaluate import _average
from partialbayes.weights import uniform_log_weights


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
    ours = pb.metrics.expected_calibration_error(jnp.asarray(probabilities), jnp.asarray(labels), bins)
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
    ours = pb.metrics.expected_calibration_error(jnp.asarray(probabilities), jnp.asarray(labels), bins)
    np.testing.assert_allclose(ours, ece_by_definition(probabilities, labels, bins), atol=1e-6)


def test_ece_of_certain_predictions():
    sure = jnp.asarray([1.0, 1.0, 0.0, 0.0])
    assert float(pb.metrics.expected_calibration_error(sure, jnp.asarray([1, 1, 0, 0]))) == 0.0
    assert float(pb.metrics.expected_calibration_error(sure, jnp.asarray([0, 0, 1, 1]))) == 1.0


def test_ece_of_calibrated_predictions_vanishes():
    probabilities = jax.random.uniform(jax.random.key(0), (20_000,))
    labels = jax.random.bernoulli(jax.random.key(1), probabilities).astype(jnp.int32)
    assert float(pb.metrics.expected_calibration_error(probabilities, labels)) < 0.01
    overconfident = jnp.where(probabilities > 0.5, 0.99, 0.01)
    assert float(pb.metrics.expected_calibration_error(overconfident, labels)) > 0.2


def test_one_probability_is_two_classes():
    one = jnp.asarray([0.9, 0.4, 0.2, 0.7])
    two = jnp.stack([1 - one, one], axis=1)
    labels = jnp.asarray([1, 1, 0, 0])
    assert pb.metrics.accuracy(one, labels) == pb.metrics.accuracy(two, labels) == 0.5
    assert pb.metrics.expected_calibration_error(one, labels) == pb.metrics.expected_calibration_error(
        two, labels
    )


def test_accuracy_of_several_classes():
    probabilities = jnp.asarray([[0.2, 0.5, 0.3], [0.6, 0.3, 0.1], [0.1, 0.1, 0.8]])
    assert np.isclose(pb.metrics.accuracy(probabilities, jnp.asarray([1, 0, 1])), 2 / 3)


def test_rmse():
    mean = jnp.asarray([[0.0, 1.0], [2.0, 3.0]])
    assert np.isclose(pb.metrics.rmse(mean, mean + jnp.asarray([[1.0, 1.0], [3.0, 3.0]])), np.sqrt(5.0))
    assert float(pb.metrics.rmse(jnp.asarray([1.0, 2.0]), jnp.asarray([[1.0], [2.0]]))) == 0.0


def test_they_compile():
    one, labels = jnp.asarray([0.9, 0.2]), jnp.asarray([1, 1])
    assert jax.jit(pb.metrics.accuracy)(one, labels) == pb.metrics.accuracy(one, labels)
    compiled = jax.jit(pb.metrics.expected_calibration_error)(one, labels)
    assert np.isclose(compiled, pb.metrics.expected_calibration_error(one, labels))


def test_bad_arguments():
    labels = jnp.asarray([0, 1])
    with pytest.raises(ValueError, match="probability of class one"):
        pb.metrics.accuracy(jnp.ones((2, 1)), labels)  # its only class would always be the most probable
    with pytest.raises(ValueError, match="bins"):
        pb.metrics.expected_calibration_error(jnp.ones(2), labels, bins=0)
    with pytest.raises(ValueError, match="they must be the same"):
        pb.metrics.rmse(jnp.ones((2, 3)), jnp.ones((2, 2)))


def test_against_scikit_learn():
    rng = np.random.default_rng(0)
    probabilities = rng.dirichlet(np.ones(4), size=200).astype(np.float32)
    labels = rng.integers(4, size=200)
    close = {"rtol": 1e-5}
    np.testing.assert_allclose(
        pb.metrics.accuracy(probabilities, labels),
        sklearn.metrics.accuracy_score(labels, probabilities.argmax(1)),
        **close,
    )
    indicators = np.eye(4)[labels]
    brier = np.mean(np.sum((probabilities - indicators) ** 2, axis=1))
    np.testing.assert_allclose(pb.metrics.brier(probabilities, labels), brier, **close)
    one, binary = probabilities[:, 0], (labels == 0).astype(int)
    np.testing.assert_allclose(
        pb.metrics.brier(one, binary), 2 * sklearn.metrics.brier_score_loss(binary, one), **close
    )
    mean, targets = rng.normal(size=(2, 50, 3)).astype(np.float32)
    np.testing.assert_allclose(
        pb.metrics.mae(mean, targets), sklearn.metrics.mean_absolute_error(targets, mean), **close
    )
    np.testing.assert_allclose(
        pb.metrics.rmse(mean, targets) ** 2, sklearn.metrics.mean_squared_error(targets, mean), **close
    )
    inside = np.round(rng.normal(size=80), 1).astype(np.float32)  # with ties
    outside = np.round(rng.normal(0.7, size=50), 1).astype(np.float32)
    truth = np.repeat([0, 1], [80, 50])
    expected = sklearn.metrics.roc_auc_score(truth, np.concatenate([inside, outside]))
    np.testing.assert_allclose(pb.metrics.auroc(inside, outside), expected, **close)


def test_adaptive_and_classwise_calibration_are_the_definition():
    rng = np.random.default_rng(1)
    probabilities = rng.dirichlet(np.ones(3), size=203).astype(np.float32)
    labels = rng.integers(3, size=203)
    confidence, correct = probabilities.max(1), probabilities.argmax(1) == labels
    parts = np.array_split(np.argsort(confidence), 7)
    gaps = [len(part) / 203 * abs(correct[part].mean() - confidence[part].mean()) for part in parts]
    # array_split puts the longer parts first, ours spreads them: sizes differ by one at most.
    ours = pb.metrics.adaptive_calibration_error(probabilities, labels, 7)
    np.testing.assert_allclose(ours, sum(gaps), atol=0.01)
    gaps = [
        len(part) / 200 * abs(correct[part].mean() - confidence[part].mean())
        for part in np.array_split(np.argsort(confidence[:200]), 8)
    ]
    ours = pb.metrics.adaptive_calibration_error(probabilities[:200], labels[:200], 8)
    np.testing.assert_allclose(ours, sum(gaps), rtol=1e-4)

    def one_class(chosen, bins=10):
        total = 0.0
        for lower, upper in zip(np.arange(bins) / bins, np.arange(1, bins + 1) / bins, strict=True):
            given = probabilities[:, chosen]
            inside = (given > np.float32(lower)) & (given <= np.float32(upper))
            if inside.any():
                gap = np.mean(labels[inside] == chosen) - given[inside].mean()
                total += inside.mean() * abs(gap)
        return total

    ours = pb.metrics.classwise_calibration_error(probabilities, labels, 10)
    np.testing.assert_allclose(ours, np.mean([one_class(c) for c in range(3)]), rtol=1e-4)
    table = pb.metrics.reliability(probabilities, labels)
    error = np.nansum(table.share * np.abs(table.frequency - table.probability))
    np.testing.assert_allclose(
        error, pb.metrics.expected_calibration_error(probabilities, labels), rtol=1e-4
    )


def test_crps_against_scoringrules():
    rng = np.random.default_rng(2)
    means, targets = rng.normal(size=(5, 30)), rng.normal(size=30)
    scales, weights = rng.uniform(0.2, 2.0, size=(5, 30)), rng.dirichlet(np.ones(5))
    ours = pb.metrics.normal_mixture_crps(means, scales**2, np.log(weights), targets)
    expected = scoringrules.crps_mixnorm(
        targets, means, scales, np.broadcast_to(weights[:, None], (5, 30)), m_axis=0
    )
    np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-6)
    single = pb.metrics.normal_mixture_crps(means[:1], scales[:1] ** 2, np.zeros(1), targets)
    closed = scoringrules.crps_normal(targets, means[0], scales[0])
    np.testing.assert_allclose(single, closed, rtol=1e-4, atol=1e-6)
    ours = pb.metrics.sample_crps(means, np.log(weights), targets)
    spread = np.abs(means[:, None] - means[None, :])
    expected = weights @ np.abs(means - targets) - 0.5 * np.einsum(
        "i,j,ijn->n", weights, weights, spread
    )
    np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-6)
    equal = scoringrules.crps_ensemble(targets, means.T)
    ours = pb.metrics.sample_crps(means, np.full(5, -np.log(5.0)), targets)
    np.testing.assert_allclose(ours, equal, rtol=1e-4, atol=1e-6)


def test_intervals():
    low, high = np.asarray([0.0, 0.0, 1.0]), np.asarray([1.0, 2.0, 4.0])
    targets = np.asarray([1.0, 3.0, 2.0])
    assert np.isclose(pb.metrics.interval_coverage((low, high), targets), 2 / 3)
    assert np.isclose(pb.metrics.interval_width((low, high)), 2.0)


def cloud(likelihood):
    """A model and a weighted cloud from its prior."""
    model = pb.partial_bnn(pb.mlp([1, 4, 1]), pb.subsets.layer(0), likelihood)
    psi = model.init(jax.random.key(0)).psi
    values = model.sample_prior(jax.random.key(1), psi, 4)
    log_weights = jnp.log(jnp.asarray([0.1, 0.2, 0.3, 0.4]))
    return model, pb.types.Posterior(psi, pb.types.Particles(values, log_weights))


INPUTS = np.linspace(-1, 1, 40)[:, None]


def test_scores_of_a_predictive():
    """The mixture's, and averages over particles, by their definition; all in original units."""
    targets = np.sin(3 * INPUTS[:, 0])
    model, posterior = cloud(pb.gaussian(0.1))
    scale = pb.prediction.TargetScale(10.0, 3.0)
    predictive = pb.predict(model, posterior, INPUTS, target_scale=scale)
    original = 10 + 3 * targets
    scores = pb.metrics.evaluate(predictive, original)
    means, _, log_weights = (np.asarray(part) for part in predictive.components())
    each = np.sqrt(np.mean((means - original[None]) ** 2, axis=1))
    np.testing.assert_allclose(scores["rmse_over_particles"], np.exp(log_weights) @ each, rtol=1e-4)
    assert scores["rmse"] <= scores["rmse_over_particles"]
    compiled = _average._cache_size()
    pb.metrics.evaluate(predictive, original)
    assert _average._cache_size() == compiled  # not anew each time
    samples = predictive.even_sample(jax.random.key(1))
    weights = uniform_log_weights(len(samples))
    from_samples = np.mean(pb.metrics.sample_crps(samples, weights, original))
    np.testing.assert_allclose(scores["crps"], from_samples, rtol=0.03)
    values = np.asarray(pb.metrics.pit(predictive, original))
    low, high = predictive.interval(0.9)
    inside = np.mean((values > 0.05) & (values < 0.95))
    np.testing.assert_allclose(scores["coverage"], inside, atol=1e-6)
    np.testing.assert_allclose(scores["width"], np.mean(high - low), rtol=1e-5)
    np.testing.assert_allclose(scores["nlpd"], -np.mean(predictive.log_density(original)), rtol=1e-6)


def test_a_score_takes_the_predictive_or_the_array_it_needs():
    targets = np.sin(3 * INPUTS[:, 0])
    predictive = pb.predict(*cloud(pb.gaussian(0.1)), INPUTS)
    interval = predictive.interval(0.5)
    pairs = [
        (pb.metrics.rmse(predictive, targets), pb.metrics.rmse(predictive.mean, targets)),
        (pb.metrics.mae(predictive, targets), pb.metrics.mae(predictive.quantile(0.5), targets)),
        (
            pb.metrics.interval_coverage(predictive, targets, 0.5),
            pb.metrics.interval_coverage(interval, targets),
        ),
        (pb.metrics.interval_width(predictive, 0.5), pb.metrics.interval_width(interval)),
    ]
    labels = (INPUTS[:, 0] > 0.2).astype(int)
    classes = pb.predict(*cloud(pb.bernoulli()), INPUTS)
    for score in (
        pb.metrics.accuracy,
        pb.metrics.brier,
        pb.metrics.expected_calibration_error,
        pb.metrics.classwise_calibration_error,
        pb.metrics.adaptive_calibration_error,
    ):
        pairs.append((score(classes, labels), score(classes.probabilities, labels)))
    for whole, part in pairs:
        assert whole == part


def test_missing_targets_are_left_out():
    model, posterior = cloud(pb.likelihoods.allow_missing(pb.gaussian(0.1)))
    targets = np.sin(3 * INPUTS[:, 0])
    targets[5] = np.nan
    scores = pb.metrics.evaluate(pb.predict(model, posterior, INPUTS), targets)
    rest = np.arange(40) != 5
    mean = pb.predict(model, posterior, INPUTS[rest]).mean
    np.testing.assert_allclose(scores["rmse"], pb.metrics.rmse(mean, targets[rest]), rtol=1e-5)
    assert all(np.isfinite(value) for value in scores.values())


def test_scores_of_classes_and_counts():
    labels = (INPUTS[:, 0] > 0.2).astype(int)
    model, posterior = cloud(pb.bernoulli())
    predictive = pb.predict(model, posterior, INPUTS)
    scores = pb.metrics.evaluate(predictive, labels)
    means, _, log_weights = predictive.components()
    each = [float(pb.metrics.accuracy(mean, labels)) for mean in means]
    np.testing.assert_allclose(scores["accuracy_over_particles"], np.exp(log_weights) @ each, rtol=1e-5)
    with pytest.raises(ValueError, match="these are classes; use brier"):
        pb.metrics.crps(predictive, labels)
    counts = np.arange(40) % 5
    model, posterior = cloud(pb.likelihoods.poisson())
    predictive = pb.predict(model, posterior, INPUTS)
    rates = np.asarray(predictive.components().mean)
    weights = np.exp(np.asarray(posterior.particles.log_weights))
    below, until = (weights @ scipy.stats.poisson(rates).cdf(counts - k) for k in (1, 0))
    np.testing.assert_allclose(pb.metrics.pit(predictive, counts), (below + until) / 2, atol=1e-4)
    mass = np.arange(60)
    cdf = np.einsum("j,jnk->nk", weights, scipy.stats.poisson(rates[:, :, None]).cdf(mass))
    exact = np.sum((cdf - (mass[None] >= counts[:, None])) ** 2, axis=1)
    np.testing.assert_allclose(pb.metrics.crps(predictive, counts), exact.mean(), rtol=0.03)


def test_crps_of_uneven_weights_is_from_draws_by_weight():
    """Of noise that is not normal, with all the weight on one particle in two hundred."""
    likelihood = pb.likelihoods.student_t(5.0)
    model, posterior = cloud(likelihood)
    values = jnp.tile(posterior.particles.values[:1], (200, 1))
    uneven = jnp.log(jnp.full(200, 1e-6).at[7].set(1.0 - 199e-6))
    even = uniform_log_weights(200)
    targets = np.sin(3 * INPUTS[:, 0])
    scores = [
        float(pb.metrics.crps(pb.predict(model, posterior._replace(particles=one), INPUTS), targets))
        for one in (pb.types.Particles(values, uneven), pb.types.Particles(values, even))
    ]
    assert abs(scores[0] / scores[1] - 1.0) < 0.02

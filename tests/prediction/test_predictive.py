"""What `predict` gives beyond moments, against SciPy and its own definition."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.stats

import partialbayes as pb

ROWS = 6
X = np.linspace(-1.0, 1.0, ROWS)[:, None]
SLOPES = np.asarray([-1.0, 0.5, np.nan, 2.0, 0.7])
WEIGHTS = np.asarray([0.1, 0.4, 0.0, 0.2, 0.3])
KEPT = WEIGHTS > 0
CHUNKS = [(None, None), (4, 2)]
with_chunks = pytest.mark.parametrize(("data_chunk", "particle_chunk"), CHUNKS)


def slope_model(likelihood, outputs=1):
    """The network gives slope · x · (1, …, outputs); the slope is random."""
    network = pb.types.Network(
        init=lambda key: {"slope": jnp.ones(()), "factors": jnp.arange(1.0, outputs + 1.0)},
        apply=lambda params, x: x * params["slope"] * params["factors"][None, :],
    )
    return pb.partial_bnn(network, "slope", likelihood)


def cloud(model, slopes=SLOPES, weights=WEIGHTS):
    with np.errstate(divide="ignore"):
        log_weights = jnp.asarray(np.log(weights), float)
    psi = model.init(jax.random.key(0)).psi
    return pb.types.Posterior(
        psi, pb.types.Particles(jnp.asarray(slopes, float)[..., None], log_weights)
    )


NORMAL, STUDENT, CAUCHY, COUNTS = (
    slope_model(likelihood)
    for likelihood in (
        pb.gaussian(0.25),
        pb.likelihoods.student_t(4.0, 0.5),
        pb.likelihoods.student_t(1.0, 0.5),
        pb.likelihoods.poisson(),
    )
)
LAWS = {
    "gaussian": (NORMAL, lambda output: scipy.stats.norm(output, 0.5)),
    "student_t": (STUDENT, lambda output: scipy.stats.t(4.0, output, 0.5)),
    "no variance": (CAUCHY, lambda output: scipy.stats.t(1.0, output, 0.5)),
    "poisson": (COUNTS, lambda output: scipy.stats.poisson(np.exp(output))),
}


def exact_cdf(law, targets):
    each = [law(slope * X[:, 0]).cdf(targets) for slope in SLOPES[KEPT]]
    return WEIGHTS[KEPT] @ np.stack(each)


@pytest.mark.parametrize(
    ("name", "sizes"), [("gaussian", CHUNKS[0]), *((name, CHUNKS[1]) for name in LAWS)]
)
def test_quantiles_of_the_mixture(name, sizes):
    model, law = LAWS[name]
    chunks = {"chunks": pb.types.Chunks(*reversed(sizes))}
    predictive = pb.predict(model, cloud(model), X, **chunks)
    levels = np.asarray([0.02, 0.5, 0.9])
    ours = np.asarray(predictive.quantile(levels))
    assert ours.shape == (3, ROWS)
    for level, row in zip(levels, ours, strict=True):
        if model.likelihood.kind == "count":
            assert np.array_equal(row, np.round(row))
            assert np.all(exact_cdf(law, row) >= level)
            assert np.all(exact_cdf(law, row - 1) < level)
        else:
            np.testing.assert_allclose(exact_cdf(law, row), level, atol=2e-6)
    targets = np.arange(ROWS) // 2
    np.testing.assert_allclose(predictive.cdf(targets), exact_cdf(law, targets), atol=2e-6)
    assert np.array_equal(predictive.quantile(0.5), ours[1])
    low, high = predictive.interval(0.9)
    assert np.all(low < high)


def test_the_median_of_a_student_t_keeps_its_digits():
    """Far finer than √ε, where the tail's incomplete beta function is flat."""
    tiny = np.asarray([-1e-5, -1e-6, 1e-6, 1e-5, 1e-3, 0.1, 2.0, 30.0])
    likelihood = STUDENT.likelihood
    parameters = likelihood.parameters(jnp.zeros((8, 1)), likelihood.init(), {})
    ours = likelihood.cdf(parameters, jnp.asarray(tiny, float)) - 0.5
    np.testing.assert_allclose(ours, scipy.stats.t(4.0, 0, 0.5).cdf(tiny) - 0.5, rtol=1e-3, atol=1e-7)


@with_chunks
def test_samples_have_the_moments_and_the_weights(data_chunk, particle_chunk):
    predictive = pb.predict(NORMAL, cloud(NORMAL), X, chunks=pb.types.Chunks(particle_chunk, data_chunk))
    draws = np.asarray(predictive.sample(jax.random.key(3), 4000))
    assert draws.shape == (4000, ROWS)
    z = (draws.mean(axis=0) - predictive.mean) / np.asarray(predictive.std) * np.sqrt(4000)
    assert np.abs(z).max() < 4.5
    # One particle for all rows: the first and the last row move against each other.
    covariance = np.cov(draws[:, 0], draws[:, -1])[0, 1]
    np.testing.assert_allclose(covariance, -float(predictive.epistemic_variance[-1]), atol=0.08)
    assert np.array_equal(draws, pb.predict(NORMAL, cloud(NORMAL), X).sample(3, 4000))


@with_chunks
def test_original_units(data_chunk, particle_chunk):
    """Affine: everything is what the standardized predictive says, moved and stretched."""
    model = slope_model(pb.gaussian(0.25), outputs=2)
    chunks = {"chunks": pb.types.Chunks(particle_chunk, data_chunk)}
    given = pb.predict(model, cloud(model), X, **chunks)
    scale = pb.prediction.TargetScale(shift=np.asarray([100.0, -3.0]), scale=np.asarray([7.0, 0.5]))
    ours = pb.predict(model, cloud(model), X, target_scale=scale, **chunks)

    def restore(values):
        return scale.shift + scale.scale * np.asarray(values)

    close = {"rtol": 1e-5, "atol": 1e-5}
    np.testing.assert_allclose(ours.mean, restore(given.mean), **close)
    np.testing.assert_allclose(ours.variance, scale.scale**2 * np.asarray(given.variance), **close)
    np.testing.assert_allclose(ours.aleatoric_variance + ours.epistemic_variance, ours.variance, **close)
    np.testing.assert_allclose(ours.quantile([0.1, 0.8]), restore(given.quantile([0.1, 0.8])), **close)
    np.testing.assert_allclose(ours.sample(0, 3), restore(given.sample(0, 3)), **close)
    targets = np.sin(np.arange(2 * ROWS)).reshape(ROWS, 2)
    density = given.log_density(targets) - np.log(scale.scale).sum()
    np.testing.assert_allclose(ours.log_density(restore(targets)), density, **close)
    np.testing.assert_allclose(ours.cdf(restore(targets)), given.cdf(targets), **close)
    np.testing.assert_allclose(ours.components().mean, restore(given.components().mean), **close)


def test_target_scale_of_training_targets():
    targets = np.asarray([[1.0, 5.0], [3.0, 5.0], [np.nan, 5.0]])
    scale = pb.prediction.TargetScale.of(targets)
    np.testing.assert_allclose(scale.shift, [2.0, 5.0])
    np.testing.assert_allclose(scale.scale, [1.0, 1.0])  # a constant is only moved
    assert pb.prediction.TargetScale.of(np.ones((4, 1))).shift.shape == ()
    missing = slope_model(pb.likelihoods.allow_missing(pb.gaussian(0.25)), outputs=2)
    wide = pb.prediction.TargetScale(0.0, np.asarray([1.0, 10.0]))
    gaps = np.zeros((ROWS, 2))
    gaps[0, 1] = np.nan
    density = pb.predict(missing, cloud(missing), X, target_scale=wide).log_density(gaps)
    plain = pb.predict(missing, cloud(missing), X).log_density(gaps)
    expected = np.where(np.arange(ROWS) == 0, 0.0, np.log(10.0))  # nothing for the gap
    np.testing.assert_allclose(plain - density, expected, atol=1e-5)


def test_a_spread_that_is_rounding_is_none():
    """0.1 is no number of a computer: its mean is another one, and the spread 1e-17 rather than 0."""
    for constant in (np.full(90, 0.1), np.full(90, 0.1, np.float32), np.full(7, 1e300), np.zeros(5)):
        assert pb.prediction.TargetScale.of(constant).scale == 1.0
    # Rounded to single precision by whoever made them, in whatever precision they come.
    noisy = np.nextafter(np.full(90, 0.1, np.float32), np.float32([0.0, 1.0] * 45)).astype(float)
    assert noisy.std() > 0
    assert pb.prediction.TargetScale.of(noisy).scale == 1.0
    for shift, spread in ((1e9, 1.0), (1e12, 1e-1), (16e6, 0.5), (1e-12, 1e-13)):
        values = shift + spread * np.where(np.arange(90) % 2, 1.0, -1.0)
        np.testing.assert_allclose(pb.prediction.TargetScale.of(values).scale, spread, rtol=1e-3)
    huge = pb.prediction.TargetScale.of(np.array([1e200, 3e200]))
    np.testing.assert_allclose(huge[:2], (2e200, 1e200))
    for bad, message in (([1.0, np.inf], "infinite"), ([[1.0, np.nan]] * 3, "missing")):
        with pytest.raises(ValueError, match=message):
            pb.prediction.TargetScale.of(np.array(bad))


@pytest.mark.parametrize(("shift", "spread"), [(1e9, 1.0), (0.0, 1e20), (0.0, 1e30)])
def test_units_are_restored_in_double_precision(shift, spread):
    """In single precision 1e9 leaves nothing of the rest, and the square of 1e20 is too much."""
    plain = pb.predict(NORMAL, cloud(NORMAL), X)
    scale = pb.prediction.TargetScale(shift, spread)
    ours = pb.predict(NORMAL, cloud(NORMAL), X, target_scale=scale)
    close = {"rtol": 1e-5, "atol": 1e-5}
    targets = shift + spread * np.sin(np.arange(ROWS))
    np.testing.assert_allclose((ours.mean - shift) / spread, plain.mean, **close)
    np.testing.assert_allclose(ours.std / spread, plain.std, **close)
    for end, plain_end in zip(ours.interval(0.9), plain.interval(0.9), strict=True):
        np.testing.assert_allclose((end - shift) / spread, plain_end, **close)
    np.testing.assert_allclose((ours.sample(0, 3) - shift) / spread, plain.sample(0, 3), **close)
    scores = pb.metrics.evaluate(ours, targets)
    expected = pb.metrics.evaluate(plain, (targets - shift) / spread)
    for name in ("rmse", "mae", "crps", "width", "rmse_over_particles"):
        np.testing.assert_allclose(scores[name] / spread, expected[name], rtol=1e-4)
    np.testing.assert_allclose(scores["nlpd"], expected["nlpd"] + np.log(spread), rtol=1e-4)
    assert scores["coverage"] == pytest.approx(expected["coverage"])


@pytest.mark.parametrize("outputs", [1, 3])
@with_chunks
def test_entropy_is_expected_entropy_plus_mutual_information(outputs, data_chunk, particle_chunk):
    likelihood = pb.bernoulli() if outputs == 1 else pb.categorical()
    model = slope_model(likelihood, outputs)
    chunks = {"chunks": pb.types.Chunks(particle_chunk, data_chunk)}
    predictive = pb.predict(model, cloud(model), 3 * X, **chunks)
    logits = 3 * X[:, :, None] * SLOPES[None, None, KEPT] * np.arange(1.0, outputs + 1)[None, :, None]
    if outputs == 1:
        logits = np.concatenate([0 * logits, logits], axis=1)
    each = scipy.special.softmax(logits, axis=1)
    mixed = each @ WEIGHTS[KEPT]
    close = {"rtol": 1e-4, "atol": 1e-6}
    np.testing.assert_allclose(predictive.probabilities, mixed, **close)
    np.testing.assert_allclose(predictive.entropy, scipy.stats.entropy(mixed, axis=1), **close)
    expected = scipy.stats.entropy(each, axis=1) @ WEIGHTS[KEPT]
    np.testing.assert_allclose(predictive.expected_entropy, expected, **close)
    total = predictive.expected_entropy + predictive.mutual_information
    np.testing.assert_allclose(predictive.entropy, total, **close)
    assert np.all(predictive.mutual_information >= 0.0)


def test_an_ensemble_member_of_no_weight_says_nothing():
    psi = NORMAL.init(jax.random.key(0)).psi
    psi = psi._replace(network={"factors": jnp.asarray([[1.0], [np.nan], [2.0]])})
    slopes = jnp.asarray([[1.0, 2.0], [np.nan, 3.0], [0.5, np.nan]])[..., None]
    log_weights = jnp.log(jnp.asarray([[0.2, 0.3], [0.0, 0.0], [0.5, 0.0]]))
    ensemble = pb.types.Posterior(psi, pb.types.Particles(slopes, log_weights))
    flat = cloud(NORMAL, np.asarray([1.0, 2.0, 1.0]), np.asarray([0.2, 0.3, 0.5]))
    for chunks in CHUNKS:
        sizes = {"chunks": pb.types.Chunks(*reversed(chunks))}
        ours, expected = pb.predict(NORMAL, ensemble, X, **sizes), pb.predict(NORMAL, flat, X)
        close = {"rtol": 1e-5, "atol": 1e-6}
        np.testing.assert_allclose(ours.variance, expected.variance, **close)
        np.testing.assert_allclose(ours.quantile(0.7), expected.quantile(0.7), **close)
        assert np.all(np.isfinite(ours.sample(1, 50)))


def test_a_custom_likelihood_without_cdf_has_weighted_sample_quantiles():
    laplace = pb.likelihoods.custom(
        lambda outputs, targets: jax.scipy.stats.laplace.logpdf(targets, outputs[:, 0]),
        mean=lambda outputs: outputs[:, 0],
        variance=lambda outputs: jnp.full(outputs.shape[0], 2.0),
        sample=lambda key, outputs: outputs[:, 0] + jax.random.laplace(key, outputs.shape[:1]),
    )
    model = slope_model(laplace)
    scale = pb.prediction.TargetScale(5.0, 2.0)
    low, high = pb.predict(model, cloud(model), X, target_scale=scale).interval(0.8)
    assert np.all(np.isfinite(low))
    law = scipy.stats.laplace
    for bound, level in ((low, 0.1), (high, 0.9)):
        each = np.stack([law(slope * X[:, 0]).cdf((bound - 5.0) / 2.0) for slope in SLOPES[KEPT]])
        np.testing.assert_allclose(WEIGHTS[KEPT] @ each, level, atol=0.04)
    with pytest.raises(ValueError, match=r"custom\(..., cdf=...\)"):
        pb.predict(model, cloud(model), X).cdf(np.zeros(ROWS))


def test_it_compiles_as_part_of_a_larger_program():
    posterior = cloud(NORMAL)

    @jax.jit
    def bound(inputs):
        predictive = pb.predict(NORMAL, posterior, inputs)
        return predictive.mean, predictive.interval(0.9)[1]

    predictive = pb.predict(NORMAL, posterior, X)
    for ours, expected in zip(
        bound(X.astype(np.float32)), (predictive.mean, predictive.interval(0.9)[1]), strict=True
    ):
        np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-6)


def test_wrong_use():
    labels = slope_model(pb.bernoulli())
    classes = pb.predict(labels, cloud(labels), X)
    numbers = pb.predict(NORMAL, cloud(NORMAL), X)
    for name in ("probabilities", "entropy", "expected_entropy", "mutual_information"):
        with pytest.raises(ValueError, match="are for classifications; for other"):
            getattr(numbers, name)
    with pytest.raises(ValueError, match="quantiles need numeric targets"):
        classes.quantile(0.5)
    with pytest.raises(ValueError, match="these are classes"):
        classes.cdf(np.zeros(ROWS))
    for bad in (0.0, 1.0, [0.5, 2.0], np.nan):
        with pytest.raises(ValueError, match="strictly between 0 and 1"):
            numbers.quantile(bad)
    with pytest.raises(ValueError, match="coverage must lie"):
        numbers.interval(90.0)
    with pytest.raises(ValueError, match="target_scale is for real-valued"):
        pb.predict(labels, cloud(labels), X, target_scale=pb.prediction.TargetScale(0.0, 1.0))
    with pytest.raises(ValueError, match=r"target_scale.scale must be positive"):
        pb.predict(NORMAL, cloud(NORMAL), X, target_scale=pb.prediction.TargetScale(0.0, 0.0))
    with pytest.raises(ValueError, match="num must be a whole number"):
        numbers.sample(0, 0)


def compilations(function):
    """How many programs a call compiles."""
    seen = []

    def note(event, seconds, **_):
        if event.endswith("backend_compile_duration"):
            seen.append(event)

    jax.monitoring.register_event_duration_secs_listener(note)
    try:
        function()
    finally:
        jax.monitoring.unregister_event_duration_listener(note)
    return len(seen)


def test_another_number_of_rows_or_an_equal_model_compiles_nothing():
    def look(rows):
        model = pb.partial_bnn(pb.mlp([1, 4, 1]), "layers/1/*", pb.gaussian(0.3))
        params = model.init(jax.random.key(0))
        cloud = pb.types.Particles(jnp.stack([params.phi, params.phi + 1.0]), jnp.log(jnp.full(2, 0.5)))
        posterior = pb.types.Posterior(params.psi, cloud)
        x = np.linspace(-1.0, 1.0, rows, dtype=np.float32)[:, None]
        scale = pb.prediction.TargetScale(1.0, 2.0)
        predictive = pb.predict(model, posterior, x, target_scale=scale)
        parts = (
            *(predictive.mean, predictive.std, predictive.epistemic_variance),
            *predictive.interval(0.9),
            predictive.log_density(x[:, 0]),
            predictive.cdf(x[:, 0]),
            np.asarray(predictive.sample(1, 3))[0],
            np.asarray(predictive.components().mean)[0],
        )
        assert all(part.shape == (rows,) for part in parts)
        return np.asarray(predictive.mean)

    assert compilations(lambda: look(40)) > 5
    assert compilations(lambda: look(57)) == 0


def test_logarithms_of_targets_come_back_in_their_own_units():
    model = pb.partial_bnn(pb.mlp([1, 3, 1]), "layers/0/*", pb.gaussian(0.3))
    psi = model.init(jax.random.key(0)).psi
    values = model.sample_prior(jax.random.key(1), psi, 6)
    posterior = pb.types.Posterior(psi, pb.types.Particles(values, jnp.full(6, -jnp.log(6.0))))
    targets = np.exp(np.linspace(0.0, 3.0, 9))
    scale = pb.prediction.TargetScale.of(targets, log=True)
    x = np.full((2001, 1), 0.4, np.float32)
    predictive = pb.predict(model, posterior, x, target_scale=scale)
    grid = np.exp(np.linspace(-6.0, 12.0, 2001))
    density = np.exp(np.asarray(predictive.log_density(grid), float))
    assert np.trapezoid(density, grid) == pytest.approx(1.0, abs=1e-3)
    mean = np.trapezoid(grid * density, grid)
    assert float(predictive.mean[0]) == pytest.approx(mean, rel=1e-3)
    variance = np.trapezoid((grid - mean) ** 2 * density, grid)
    assert float(predictive.variance[0]) == pytest.approx(variance, rel=1e-2)
    assert float(predictive.cdf(grid)[1200]) == pytest.approx(
        np.trapezoid(density[:1201], grid[:1201]), abs=2e-3
    )
    assert float(predictive.interval(0.999)[0].min()) > 0.0
    with pytest.raises(ValueError, match="targets must be positive"):
        pb.prediction.TargetScale.of(np.array([1.0, 0.0]), log=True)


def test_a_huge_variance_of_a_logarithm_gives_no_huge_mean():
    model = pb.partial_bnn(pb.mlp([1, 3, 1]), "layers/0/*", pb.gaussian(200.0))
    psi = model.init(jax.random.key(0)).psi
    values = model.sample_prior(jax.random.key(1), psi, 3)
    posterior = pb.types.Posterior(psi, pb.types.Particles(values, jnp.full(3, -jnp.log(3.0))))
    scale = pb.prediction.TargetScale.of(np.exp(np.linspace(0.0, 3.0, 9)), log=True)
    predictive = pb.predict(model, posterior, np.zeros((2, 1), np.float32), target_scale=scale)
    assert np.all(np.asarray(predictive.mean) < 1e4)  # e^94 by the formula of a log-normal
    assert np.isfinite(predictive.variance).all()

"""The predictive mixture against its definition, in double precision."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp

import partialbayes as pb
from tests.oracles import conjugate

NOISE = 0.5
ROWS = 7
X = np.linspace(-2.0, 2.0, ROWS)[:, None]
Y = np.sin(X[:, 0])

# y ~ N(slope · x + intercept, noise): φ is the slope, ψ the intercept.
MODEL = pb.partial_bnn(
    pb.types.Network(
        init=lambda key: {"slope": jnp.ones(1), "intercept": jnp.zeros(())},
        apply=lambda params, x: x @ params["slope"] + params["intercept"],
    ),
    "slope",
    pb.gaussian(NOISE),
)
CHUNKS = [(None, None), (1, 1), (3, 2), (7, 5), (100, 100)]
with_chunks = pytest.mark.parametrize(("data_chunk", "particle_chunk"), CHUNKS)


def posterior(slopes, weights, intercept=0.25) -> pb.types.Posterior:
    """A cloud, or an ensemble of clouds where there is a leading axis."""
    slopes, weights = np.asarray(slopes), np.asarray(weights)
    with np.errstate(divide="ignore"):
        log_weights = jnp.asarray(np.log(weights / weights.sum()), float)
    psi = MODEL.init(jax.random.key(0)).psi
    psi = psi._replace(network={"intercept": jnp.asarray(intercept, float)})
    return pb.types.Posterior(
        psi, pb.types.Particles(jnp.asarray(slopes[..., None], float), log_weights)
    )


def by_definition(slopes, weights, intercept=0.25):
    """Mean, variance, epistemic variance and log-density, summed over components one by one."""
    slopes, weights = np.asarray(slopes), np.asarray(weights) / np.sum(weights)
    intercepts = np.broadcast_to(np.reshape(intercept, (-1, 1)), (np.size(intercept), slopes.shape[-1]))
    used = weights.ravel() > 0
    slopes, weights, intercepts = (a.ravel()[used] for a in (slopes, weights, intercepts))
    outputs = X * slopes[None, :] + intercepts[None, :]
    mean = outputs @ weights
    epistemic = np.square(outputs - mean[:, None]) @ weights
    log_densities = -0.5 * np.square(Y[:, None] - outputs) / NOISE - 0.5 * np.log(2 * np.pi * NOISE)
    return mean, NOISE + epistemic, epistemic, logsumexp(log_densities, b=weights[None, :], axis=1)


def check(cloud, expected, data_chunk=None, particle_chunk=None):
    chunks = {"chunks": pb.types.Chunks(particle_chunk, data_chunk)}
    predictive = pb.predict(MODEL, cloud, X, **chunks)
    results = (
        predictive.mean,
        predictive.variance,
        predictive.epistemic_variance,
        predictive.log_density(Y),
    )
    for ours, exact in zip(results, expected, strict=True):
        np.testing.assert_allclose(ours, exact, rtol=2e-5, atol=2e-6)


SLOPES = np.asarray([-1.0, 0.5, 2.0, 0.7, 0.1])
WEIGHTS = np.asarray([0.1, 0.4, 0.05, 0.25, 0.2])


@with_chunks
def test_weights_are_respected(data_chunk, particle_chunk):
    check(posterior(SLOPES, WEIGHTS), by_definition(SLOPES, WEIGHTS), data_chunk, particle_chunk)


@with_chunks
def test_an_ensemble_is_the_mixture_over_members_and_particles(data_chunk, particle_chunk):
    slopes = np.stack([SLOPES, SLOPES[::-1] + 1.0, 0.5 * SLOPES])
    weights = np.stack([WEIGHTS, 3.0 * WEIGHTS, np.ones(5)])  # members need not weigh the same
    intercepts = np.asarray([0.0, 1.0, -0.5])
    cloud = posterior(slopes, weights, intercepts)
    check(cloud, by_definition(slopes, weights, intercepts), data_chunk, particle_chunk)


@with_chunks
def test_particles_of_weight_zero_do_not_count(data_chunk, particle_chunk):
    """A whole chunk of them, first or last, and what they hold may be anything."""
    slopes = np.asarray([np.nan, np.inf, -1.0, 1.0, 1e30, np.nan])
    weights = np.asarray([0.0, 0.0, 1.0, 3.0, 0.0, 0.0])
    check(posterior(slopes, weights), by_definition(slopes, weights), data_chunk, particle_chunk)


def test_one_row_runs_the_program_of_many_to_the_same_bits():
    """Chunks went by the rows asked for: one row was computed as 64 chunks, by another program."""
    cloud = posterior([0.3, -1.0, 2.0], [0.2, 0.5, 0.3])
    whole = pb.predict(MODEL, cloud, X)
    single = [pb.predict(MODEL, cloud, X[row : row + 1]) for row in range(ROWS)]
    assert {predictive.chunks for predictive in single} == {whole.chunks}
    for name in ("mean", "variance"):
        parts = np.concatenate([np.asarray(getattr(predictive, name)) for predictive in single])
        np.testing.assert_array_equal(parts, getattr(whole, name))


def test_one_particle_has_no_epistemic_variance():
    predictive = pb.predict(MODEL, posterior([0.3], [1.0]), X)
    assert np.array_equal(predictive.epistemic_variance, np.zeros(ROWS))
    np.testing.assert_allclose(predictive.variance, NOISE, rtol=1e-6)


def test_small_spread_far_from_zero_survives_single_precision():
    """E[m²] − E[m]² would be rounding error here: m is near 1000 and its deviation 0.05."""
    rng = np.random.default_rng(0)
    slopes = rng.normal(scale=0.05, size=400).astype(np.float32)
    cloud = posterior(slopes, np.ones(400), intercept=1000.0)
    _, _, epistemic, _ = by_definition(slopes.astype(np.float64), np.ones(400), 1000.0)
    for chunk in (None, 33):
        ours = pb.predict(MODEL, cloud, X, chunks=pb.types.Chunks(particles=chunk)).epistemic_variance
        np.testing.assert_allclose(ours, epistemic, rtol=5e-3, atol=1e-6)


def test_far_targets_do_not_underflow():
    """log(mean(exp)) would be −∞."""
    far = Y + 100.0
    ours = pb.prediction.log_predictive_density(MODEL, posterior(SLOPES, WEIGHTS), (X, far))
    outputs = X * SLOPES[None, :] + 0.25
    terms = -0.5 * np.square(far[:, None] - outputs) / NOISE - 0.5 * np.log(2 * np.pi * NOISE)
    np.testing.assert_allclose(ours, logsumexp(terms, b=WEIGHTS[None, :], axis=1), rtol=1e-5)


def test_classes_sum_to_one():
    model = pb.partial_bnn(pb.mlp([1, 3, 3]), "layers/1/*", pb.categorical())
    psi = model.init(jax.random.key(0)).psi
    values = model.sample_prior(jax.random.key(1), psi, 6)
    log_weights = jax.nn.log_softmax(jax.random.normal(jax.random.key(2), (6,)))
    cloud = pb.types.Posterior(psi, pb.types.Particles(values, log_weights))
    predictive = pb.predict(model, cloud, X, chunks=pb.types.Chunks(4, 3))
    assert predictive.mean.shape == (ROWS, 3)
    np.testing.assert_allclose(predictive.mean.sum(axis=1), 1.0, rtol=1e-5)
    # An indicator's total variance is p (1 − p), however it is divided.
    np.testing.assert_allclose(predictive.variance, predictive.mean * (1 - predictive.mean), rtol=1e-4)


def test_conjugate_posterior_gives_the_closed_form_predictive():
    """Exact draws of φ: the mixture's mean and variance within their Monte Carlo error."""
    oracle = conjugate()
    psi = oracle.model.init(jax.random.key(0)).psi
    mean, covariance = oracle.posterior(psi)
    number = 20_000
    noise = jax.random.normal(jax.random.key(1), (number, 3))
    values = mean[None, :] + noise @ jnp.linalg.cholesky(covariance).T
    cloud = pb.types.Posterior(psi, pb.types.Particles(values, jnp.full(number, -jnp.log(number))))
    predictive = pb.predict(oracle.model, cloud, oracle.inputs, chunks=pb.types.Chunks(particles=3000))
    features = oracle.features(psi)
    epistemic = jnp.einsum("ni,ij,nj->n", features, covariance, features)
    mean_z = (predictive.mean - features @ mean) / jnp.sqrt(epistemic / number)
    variance_z = (predictive.epistemic_variance / epistemic - 1.0) / np.sqrt(2.0 / number)
    assert float(jnp.abs(mean_z).max()) < 4.5
    assert float(jnp.abs(variance_z).max()) < 4.5
    np.testing.assert_allclose(
        predictive.variance - predictive.epistemic_variance, jnp.exp(psi.likelihood), rtol=1e-4
    )


@pytest.mark.parametrize("name", ["rows", "particles"])
@pytest.mark.parametrize("bad", [0, -1])
def test_bad_chunks(name, bad):
    cloud = posterior([0.3], [1.0])
    with pytest.raises(ValueError, match=name):
        pb.predict(MODEL, cloud, X, chunks=pb.types.Chunks(**{name: bad}))
    with pytest.raises(ValueError, match=name):
        pb.prediction.log_predictive_density(MODEL, cloud, (X, Y), chunks=pb.types.Chunks(**{name: bad}))


def test_bad_inputs():
    cloud = posterior([0.3], [1.0])
    with pytest.raises(ValueError, match="inputs contains NaN"):
        pb.predict(MODEL, cloud, np.full((3, 1), np.nan))
    with pytest.raises(ValueError, match="no rows"):
        pb.predict(MODEL, cloud, np.zeros((0, 1)))

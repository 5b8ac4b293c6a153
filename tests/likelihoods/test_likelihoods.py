"""Likelihoods against scipy, their samples against their moments, missing targets, wrong targets."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import partialbayes as pb

RNG = np.random.default_rng(0)
ROWS = 7
F1, F2, F3 = (RNG.normal(size=(ROWS, k)) for k in (1, 2, 3))
Y1, Y2 = RNG.normal(size=ROWS), RNG.normal(size=(ROWS, 2))
COVARIANCE = np.array([[1.0, 0.6], [0.6, 0.8]])
LABELS, COUNTS = RNG.integers(0, 2, ROWS), RNG.integers(0, 6, ROWS)


def softplus(x):
    return np.log1p(np.exp(x))


def normal_sum(y, mean, variance):
    return scipy.stats.norm.logpdf(y, mean, np.sqrt(variance)).reshape(ROWS, -1).sum(1)


class Case(NamedTuple):
    likelihood: pb.types.Likelihood
    outputs: Any
    targets: Any
    expected: Any


CASES = {
    "gaussian": Case(pb.gaussian(0.3), F1, Y1, normal_sum(Y1, F1[:, 0], 0.3)),
    "gaussian, per output": Case(
        pb.gaussian(np.array([0.3, 2.0])), F2, Y2, normal_sum(Y2, F2, np.array([0.3, 2.0]))
    ),
    "gaussian, learned": Case(
        pb.gaussian(pb.learned(np.array([0.3, 2.0]))), F2, Y2, normal_sum(Y2, F2, np.array([0.3, 2.0]))
    ),
    "gaussian, sampled": Case(pb.gaussian(pb.sampled(0.3)), F1, Y1, normal_sum(Y1, F1[:, 0], 0.3)),
    "heteroscedastic": Case(
        pb.likelihoods.heteroscedastic(beta=0.5),
        F2,
        Y1,
        normal_sum(Y1, F2[:, 0], softplus(F2[:, 1]) + 1e-6),
    ),
    "heteroscedastic, two heads": Case(
        pb.likelihoods.heteroscedastic(),
        (F2, F3[:, :2]),
        Y2,
        normal_sum(Y2, F2, softplus(F3[:, :2]) + 1e-6),
    ),
    "multivariate": Case(
        pb.likelihoods.multivariate_gaussian(pb.learned(COVARIANCE)),
        F2,
        Y2,
        scipy.stats.multivariate_normal(np.zeros(2), COVARIANCE).logpdf(Y2 - F2),
    ),
    "multivariate, sampled": Case(
        pb.likelihoods.multivariate_gaussian(pb.sampled(COVARIANCE)),
        F2,
        Y2,
        scipy.stats.multivariate_normal(np.zeros(2), COVARIANCE).logpdf(Y2 - F2),
    ),
    "student": Case(
        pb.likelihoods.student_t(pb.sampled(5.0), pb.learned(0.7)),
        F1,
        Y1,
        scipy.stats.t.logpdf(Y1, 5.0, F1[:, 0], 0.7),
    ),
    "student, predicted scale": Case(
        pb.likelihoods.student_t(pb.learned(3.0), "predicted", minimum=0.1),
        F2,
        Y1,
        scipy.stats.t.logpdf(Y1, 3.0, F2[:, 0], softplus(F2[:, 1]) + 0.1),
    ),
    "student, two heads": Case(
        pb.likelihoods.student_t(np.array([3.0, 9.0]), "predicted"),
        (F2, F3[:, :2]),
        Y2,
        scipy.stats.t.logpdf(Y2, [3.0, 9.0], F2, softplus(F3[:, :2]) + 1e-3).sum(1),
    ),
    "bernoulli": Case(
        pb.bernoulli(), F1, LABELS, scipy.stats.bernoulli.logpmf(LABELS, 1 / (1 + np.exp(-F1[:, 0])))
    ),
    "categorical": Case(
        pb.categorical(),
        F3,
        LABELS + 1,
        [
            scipy.stats.multinomial.logpmf(np.eye(3)[label + 1], 1, p)
            for label, p in zip(LABELS, np.exp(F3) / np.exp(F3).sum(1, keepdims=True), strict=True)
        ],
    ),
    "categorical, two labels": Case(
        pb.categorical(),
        np.stack([F2, F2[::-1]], 1),
        np.stack([LABELS, 1 - LABELS], 1),
        sum(
            np.log(np.exp(f) / np.exp(f).sum(1, keepdims=True))[np.arange(ROWS), label]
            for f, label in ((F2, LABELS), (F2[::-1], 1 - LABELS))
        ),
    ),
    "poisson": Case(
        pb.likelihoods.poisson(), F1, COUNTS, scipy.stats.poisson.logpmf(COUNTS, np.exp(F1[:, 0]))
    ),
    "custom": Case(
        pb.likelihoods.custom(
            lambda f, y, scale: jax.scipy.stats.logistic.logpdf(y, f[:, 0], scale),
            mean=lambda f, scale: f[:, 0],
            variance=lambda f, scale: jnp.full(len(f), jnp.pi**2 / 3.0) * scale**2,
            sample=lambda key, f, scale: f[:, 0] + scale * jax.random.logistic(key, f.shape[:1]),
            scale=pb.learned(0.6),
        ),
        F1,
        Y1,
        scipy.stats.logistic.logpdf(Y1, F1[:, 0], 0.6),
    ),
}
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


def arrays(tree):
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, float), tree)


def shapes(tree):
    return jax.eval_shape(lambda: arrays(tree))


def parameters_of(likelihood, outputs):
    latent = {entry.name: entry.start() for entry in likelihood.latents}
    return likelihood.parameters(arrays(outputs), likelihood.init(), latent)


@every_case
def test_log_density_is_scipys(case):
    likelihood, outputs, targets, expected = case
    canonical = likelihood.check(shapes(outputs), targets)
    found = likelihood.log_density(parameters_of(likelihood, outputs), canonical)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("freedom", [1.0, 2.5, 200.0])
def test_samples_of_students_t_have_its_distribution(freedom):
    likelihood = pb.likelihoods.student_t(freedom, 0.7)
    parameters = likelihood.parameters(jnp.full((20_000, 1), 3.0), likelihood.init(), {})
    draws = np.asarray(likelihood.sample(jax.random.key(0), parameters), float)
    assert scipy.stats.kstest((draws - 3.0) / 0.7, scipy.stats.t(freedom).cdf).pvalue > 0.01


@every_case
def test_samples_have_the_mean_and_variance_that_are_promised(case):
    likelihood = case.likelihood
    row = jax.tree.map(lambda leaf: np.repeat(leaf[:1], 20_000, axis=0), case.outputs)
    parameters = parameters_of(likelihood, row)
    draws = np.asarray(likelihood.sample(jax.random.key(0), parameters), float)
    mean, variance = (np.asarray(f(parameters)) for f in (likelihood.mean, likelihood.variance))
    if draws.shape != mean.shape:  # classes: one indicator each
        draws = np.eye(mean.shape[-1])[draws.astype(int)]
    assert (np.abs(draws.mean(0) - mean[0]) < 4.5 * np.sqrt(variance[0] / len(draws))).all()
    squares = (draws - mean[0]) ** 2
    error = np.maximum(squares.std(0) / np.sqrt(len(draws)), 1e-6)
    assert (np.abs(squares.mean(0) - variance[0]) < 4.5 * error).all()


def test_values_are_in_their_own_units():
    for name, value in (("variance", 0.4), ("variance", np.array([0.4, 2.0]))):
        likelihood = pb.gaussian(pb.learned(value))
        np.testing.assert_allclose(likelihood.values(likelihood.init(), {})[name], value, rtol=1e-6)
    learned = pb.likelihoods.multivariate_gaussian(pb.learned(COVARIANCE))
    np.testing.assert_allclose(learned.values(learned.init(), {})["covariance"], COVARIANCE, rtol=1e-5)
    assert learned.init().shape == (3,)  # as many numbers as a symmetric matrix has


@every_case
def test_model_is_hashable(case):
    """The driver compiles once per algorithm, by its hash."""
    outputs = jax.tree.map(lambda leaf: leaf.shape[-1], case.outputs)
    width = sum(jax.tree.leaves(outputs))
    hash(pb.ohsmc(pb.partial_bnn(pb.mlp([1, width]), "**", case.likelihood), num_particles=2))


def test_beta_nll_weights_the_gradient_and_nothing_else():
    outputs, targets = jnp.asarray(F2, float), jnp.asarray(Y1, float)

    def total(beta, outputs):
        likelihood = pb.likelihoods.heteroscedastic(beta=beta)
        return likelihood.log_density(likelihood.parameters(outputs, (), {}), targets)

    np.testing.assert_array_equal(total(0.0, outputs), total(1.0, outputs))
    plain = jax.grad(lambda f: total(0.0, f).sum())(outputs)
    weighted = jax.grad(lambda f: total(0.5, f).sum())(outputs)
    variance = jax.nn.softplus(outputs[:, 1:]) + 1e-6
    np.testing.assert_allclose(weighted, plain * variance**0.5, rtol=1e-5)


MISSING = np.zeros((ROWS, 2), bool)
MISSING[1, 0] = MISSING[3] = MISSING[5, 1] = True


@pytest.mark.parametrize(
    ("name", "likelihood", "outputs", "targets"),
    [
        ("gaussian", pb.gaussian(0.3), F2, Y2),
        ("student", pb.likelihoods.student_t(4.0), F2, Y2),
        ("bernoulli", pb.bernoulli(), F2, np.stack([LABELS, 1 - LABELS], 1)),
        ("poisson", pb.likelihoods.poisson(), F2, np.stack([COUNTS, COUNTS], 1)),
        ("heteroscedastic", pb.likelihoods.heteroscedastic(), np.concatenate([F2, F3[:, :2]], 1), Y2),
        ("student", pb.likelihoods.student_t(4.0, "predicted"), np.concatenate([F2, F3[:, :2]], 1), Y2),
    ],
)
def test_missing_entries_add_nothing(name, likelihood, outputs, targets):
    """Values and gradients equal those of the observed entries, one at a time; no NaN."""
    gaps = np.where(MISSING, np.nan, targets)
    masked = pb.likelihoods.allow_missing(likelihood)
    observed = masked.check(shapes(outputs), gaps)

    def with_gaps(outputs):
        return masked.log_density(masked.parameters(outputs, masked.init(), {}), observed)

    def entry_by_entry(outputs):
        mean = jnp.split(outputs, outputs.shape[1] // 2, axis=1)
        values = [
            jnp.where(MISSING[:, k], 0.0, likelihood.log_density(
                likelihood.parameters(jnp.stack([part[:, k] for part in mean], 1), masked.init(), {}),
                jnp.asarray(targets[:, k], observed.values.dtype)))
            for k in range(2)
        ]  # fmt: skip
        return values[0] + values[1]

    outputs = jnp.asarray(outputs, float)
    np.testing.assert_allclose(with_gaps(outputs), entry_by_entry(outputs), rtol=1e-6, atol=1e-6)
    assert with_gaps(outputs)[3] == 0.0
    gradient = jax.jacobian(with_gaps)(outputs)
    np.testing.assert_allclose(gradient, jax.jacobian(entry_by_entry)(outputs), rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match=r"NaN .*allow_missing"):
        likelihood.check(shapes(outputs), gaps)


def test_missing_entries_of_correlated_targets_are_integrated_out():
    masked = pb.likelihoods.allow_missing(pb.likelihoods.multivariate_gaussian(pb.learned(COVARIANCE)))
    observed = masked.check(shapes(F2), np.where(MISSING, np.nan, Y2))

    def total(outputs, learned):
        return masked.log_density(masked.parameters(outputs, learned, {}), observed)

    outputs, learned = jnp.asarray(F2, float), masked.init()
    expected = scipy.stats.multivariate_normal(np.zeros(2), COVARIANCE).logpdf(Y2 - F2)
    for row, kept in ((1, 1), (5, 0)):
        spread = np.sqrt(COVARIANCE[kept, kept])
        expected[row] = scipy.stats.norm.logpdf(Y2[row, kept], F2[row, kept], spread)
    expected[3] = 0.0
    np.testing.assert_allclose(total(outputs, learned), expected, rtol=1e-5, atol=1e-5)
    gradients = jax.grad(lambda *a: total(*a).sum(), argnums=(0, 1))(outputs, learned)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradients))
    assert (np.asarray(gradients[0])[MISSING] == 0.0).all()


def test_missing_labels_and_whole_rows():
    labels = np.array([0.0, np.nan, 2.0])
    observed = pb.likelihoods.allow_missing(pb.categorical()).check(shapes(F3[:3]), labels)
    np.testing.assert_array_equal(observed.observed, [True, False, True])
    assert observed.values.dtype == jnp.int32
    with pytest.raises(ValueError, match="targets are all missing"):
        pb.likelihoods.allow_missing(pb.gaussian()).check(shapes(F1), np.full(ROWS, np.nan))
    with pytest.raises(ValueError, match="infinite"):
        pb.likelihoods.allow_missing(pb.gaussian()).check(shapes(F1), np.full(ROWS, np.inf))


def test_output_width_that_does_not_fit():
    for likelihood, outputs, targets, message in (
        (pb.gaussian(), F2, Y1, r"targets have shape \(7,\) .* needs \(7, 2\); .*last layer"),
        (pb.gaussian(np.ones(3)), F2, Y2, r"variance has shape \(3,\) but .* \(2,\)"),
        (pb.gaussian(), (F1, F1), Y1, "needs one array; for a mean and a variance head"),
        (pb.likelihoods.heteroscedastic(), F3, Y1, "needs two for each target"),
        (pb.likelihoods.heteroscedastic(), (F1, F2), Y1, "must have the same"),
        (
            pb.likelihoods.multivariate_gaussian(np.eye(3)),
            F2,
            Y2,
            "covariance is 3 by 3; give the network",
        ),
        (pb.likelihoods.student_t(scale=np.ones(3)), F2, Y2, r"scale has shape \(3,\)"),
        (pb.likelihoods.student_t(scale="predicted"), F3, Y1, "Student-t likelihood needs two for each"),
        (
            pb.likelihoods.student_t(np.ones(3), "predicted"),
            F2,
            Y1,
            r"degrees_of_freedom has shape \(3,\)",
        ),
        (pb.bernoulli(), F2, LABELS, r"targets have shape \(7,\)"),
        (pb.categorical(), F1, LABELS, "at least two classes"),
        (pb.categorical(), F2, LABELS + 1, "counted from 1: pass targets - 1"),
        (pb.categorical(), F2, 2 * LABELS, "give the network one output per class"),
        (pb.likelihoods.poisson(), F1, -COUNTS - 1, "counts from 0 up"),
        (pb.likelihoods.poisson(), F1, COUNTS + 0.5, "some are fractions"),
        (pb.likelihoods.custom(lambda f, y: 0.0 * f), F1, Y1, r"gives shape \(7, 1\) for 7 examples"),
    ):
        with pytest.raises(ValueError, match=message):
            likelihood.check(shapes(outputs), targets)


def test_errors_when_built():
    with pytest.raises(ValueError, match="beta must lie between 0 and 1"):
        pb.likelihoods.heteroscedastic(beta=2.0)
    with pytest.raises(ValueError, match='scale must be positive, learned, sampled or "predicted"'):
        pb.likelihoods.student_t(scale="guessed")
    with pytest.raises(ValueError, match="minimum must be positive"):
        pb.likelihoods.student_t(scale="predicted", minimum=0.0)
    with pytest.raises(ValueError, match="covariance must be symmetric and positive definite"):
        pb.likelihoods.multivariate_gaussian(np.array([[1.0, 2.0], [2.0, 1.0]]))
    with pytest.raises(ValueError, match="covariance must be a square matrix"):
        pb.likelihoods.multivariate_gaussian(pb.learned(2.0))
    custom = pb.likelihoods.custom(lambda f, y: -jnp.square(f[:, 0] - y))
    with pytest.raises(ValueError, match="it was given no mean"):
        custom.mean(custom.parameters(jnp.ones((2, 1)), {}, {}))

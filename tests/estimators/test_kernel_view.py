"""The third view of a small table: a kernel machine for each fold."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize, special, stats
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF
from sklearn.linear_model import LogisticRegression

import partialbayes as pb
from partialbayes.estimators import _crossfit as crossfit
from partialbayes.estimators import _kernel_view as view
from partialbayes.estimators._folds import make_folds
from partialbayes.estimators._recipe import Recipe, centers_for

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 2))
Z = view.draw_in(X)
Y = (np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * RNG.normal(size=60))[:, None]
SMOOTH = view.Kernel(0.0, 0.0, 1.3, 0.05, np.array([1.2, 0.7]))
ALL = view.Kernel(0.8, 0.6, 1.3, 0.05, np.array([1.2, 0.7]))


def outputs(machine, inputs):
    """What the network computes with the weights of a kernel machine."""
    columns, count = machine["centers"].shape[1], machine["weights"].shape[1]
    network = pb.networks.with_kernel_machine(
        pb.mlp([columns, 3, count]), columns, len(machine["weights"]), count
    )
    params = {
        **pb.mlp([columns, 3, count]).init(jax.random.key(0)),
        "kernel": jax.tree.map(jnp.asarray, machine),
    }
    return np.asarray(network.apply(params, jnp.asarray(inputs, jnp.float32)))


def test_the_gradient_of_the_evidence_is_that_of_differences():
    at = RNG.normal(scale=0.5, size=7)
    parts = view._fixed_parts(Z)

    def value(logarithms):
        return view.negative_log_evidence(logarithms, Z, Y, parts)[0]

    exact = view.negative_log_evidence(at, Z, Y, parts)[1]
    np.testing.assert_allclose(exact, optimize.approx_fprime(at, value, 1e-6), rtol=1e-3, atol=1e-3)


def test_the_evidence_is_the_density_of_the_targets():
    logarithms = np.array([-0.2, 0.1, 0.3, -1.0, 0.2, 0.4, -0.3])
    kernel = view._kernel_of(logarithms)
    covariance = view._Fit(kernel, Z, 64).matrix + kernel.noise * np.eye(60)
    expected = -stats.multivariate_normal(np.zeros(60), covariance).logpdf(Y[:, 0])
    expected -= 30.0 * np.log(2 * np.pi)  # which the evidence leaves out
    deviations = [-0.1, 0.05, 0.15, (0.2 - 0.5 * np.log(2)) / 2, 0.8, -0.6]
    prior = 0.5 * np.sum(np.square(deviations))
    found = view.negative_log_evidence(logarithms, Z, Y, view._fixed_parts(Z))[0]
    assert found == pytest.approx(expected + prior, rel=1e-9)


def test_a_smooth_kernel_is_a_gaussian_process_of_scikit_learn():
    machine = view._Fit(SMOOTH, Z, 64).numbers(Y)
    new = RNG.normal(size=(7, 2))
    peer = GaussianProcessRegressor(1.3**2 * RBF(1.0 / SMOOTH.scales), alpha=0.05, optimizer=None)
    peer.fit(Z, Y[:, 0] - Y.mean())
    expected = Y.mean() + peer.predict(view.draw_in(new))
    np.testing.assert_allclose(outputs(machine, new)[:, 0], expected, atol=1e-4)


def test_all_parts_of_the_kernel_reach_the_network():
    machine = view._Fit(ALL, Z, 64).numbers(Y)
    matrix = view._Fit(ALL, Z, 64).matrix
    fitted = matrix @ np.linalg.solve(matrix + 0.05 * np.eye(60), Y - Y.mean()) + Y.mean()
    np.testing.assert_allclose(outputs(machine, X)[:, :1], fitted, atol=1e-3)


def test_the_spread_is_that_of_rows_left_out():
    far = np.concatenate([Z, [[2.9, -2.9]]])
    machine = view._Fit(SMOOTH, far, 64).numbers(np.concatenate([Y, [[0.0]]]))
    inverse = np.linalg.inv(view._Fit(SMOOTH, far, 64).matrix + 0.05 * np.eye(61))
    left_out = np.diag(inverse) ** -0.5
    undrawn = far / np.sqrt(1 - np.clip(far / 3.0, -0.999, 0.999) ** 2)
    predicted = np.log1p(np.exp(outputs(machine, undrawn)[:, 1]))
    assert np.corrcoef(np.log(predicted), np.log(left_out))[0, 1] > 0.9
    assert predicted[-1] > 2 * np.median(predicted)


def test_logits_of_a_linear_kernel_are_those_of_logistic_regression():
    labels = (X[:, 0] + 0.5 * RNG.normal(size=60) > 0).astype(int)
    linear = view.Kernel(1.0, 0.0, 0.0, 0.1, np.ones(2))
    machine = view._Fit(linear, Z, 64).classes(labels, 1, 4.0)
    # f = w·z + b with w of variance 4 / d and b of variance 4: a feature for each.
    features = np.column_stack([np.ones(60), Z / np.sqrt(2)])
    peer = LogisticRegression(C=4.0, fit_intercept=False, tol=1e-8).fit(features, labels)
    np.testing.assert_allclose(outputs(machine, X)[:, 0], features @ peer.coef_[0], atol=1e-2)


def test_several_classes_have_the_most_probable_logits():
    labels = RNG.integers(3, size=60)
    fit = view._Fit(ALL, Z, 64)
    machine = fit.classes(labels, 3, 4.0)
    logits = outputs(machine, X).astype(float)
    matrix = 4.0 * fit.matrix
    # At the mode f = K (y − p).
    wanted = (labels[:, None] == np.arange(3)) - special.softmax(logits, axis=1)
    np.testing.assert_allclose(matrix @ wanted, logits, atol=2e-2)


def test_the_evidence_finds_the_column_that_counts():
    inputs = RNG.normal(size=(150, 3))
    values = np.sin(3 * inputs[:, :1]) + 0.1 * RNG.normal(size=(150, 1))
    kernel = view.learn_kernel(view.draw_in(inputs), values)
    assert kernel.scales[0] > 2 * kernel.scales[1:].max()
    assert 0.005 < kernel.noise < 0.03


RECIPE = Recipe((2, 8, 2), False, (0, 1), 0, 64, 2, 4, 0.005, 0.01)


def test_a_machine_knows_nothing_of_its_fold():
    folds = make_folds(X, Y, 4, None, False, seed=0)
    changed = Y.copy()
    row = 7
    changed[row] += 5.0
    one, two = (view.kernel_view(RECIPE, X, targets, folds, 1)[0] for targets in (Y, changed))
    for fold in range(4):
        same = all(np.array_equal(one[name][fold], two[name][fold]) for name in one)
        assert same == (fold == folds.of_row[row])


def test_rows_choose_between_priors_of_classes():
    labels = (X[:, 0] > 0).astype(int)
    recipe = RECIPE._replace(sizes=(2, 8, 1), is_classifier=True)
    folds = make_folds(X, labels, 4, None, True, seed=0)
    versions = view.kernel_view(recipe, X, labels, folds, 3)
    sizes = [np.abs(version["weights"]).sum() for version in versions]
    assert len(versions) == 3
    assert sizes[0] < sizes[1] < sizes[2]
    same = view.kernel_view(RECIPE, X, Y, make_folds(X, Y, 4, None, False, seed=0), 2)
    np.testing.assert_array_equal(same[0]["weights"], same[1]["weights"])


def test_which_tables_have_kernel_machines():
    assert centers_for(60, 2, "default") == 64
    assert centers_for(999, 100, "best") == 1024
    assert centers_for(1999, 100, "default") == 2048
    tables = [(30, 2, "default"), (2000, 2, "default"), (999, 300, "default"), (60, 2, "fast")]
    assert [centers_for(*table) for table in tables] == [0, 0, 0, 0]


@pytest.fixture(scope="module")
def estimator():
    return pb.PartialBNNRegressor((8,), n_folds=4, max_iter=2, random_state=0).fit(X, Y[:, 0])


def test_networks_and_machines_are_one_mixture(estimator):
    recipe = estimator._settings
    assert recipe.num_views == 2
    shares = np.exp(estimator.posterior_.particles.log_weights).reshape(2, -1).sum(axis=1)
    assert shares.sum() == pytest.approx(1.0, abs=1e-5)
    assert shares[1] > 0.9  # of a network after two epochs not much is left
    assert estimator.oof_score_ > 0.9


def test_calibration_of_machines_is_not_sharpened(estimator):
    whole = estimator.posterior_.psi.likelihood["calibration"]["log_factor"]
    of_one = estimator.oof_predictive_.posterior.psi.likelihood["calibration"]["log_factor"]
    np.testing.assert_allclose(whole - of_one, np.repeat([np.log(0.9), 0.0], 4), atol=1e-6)


def test_weighted_rows_have_no_machines():
    weights = np.linspace(0.5, 1.5, 60)
    made = pb.PartialBNNRegressor((8,), n_folds=4, max_iter=1, random_state=0)
    assert made.fit(X, Y[:, 0], sample_weight=weights)._settings.num_centers == 0


def test_save_load_and_export_keep_machines(estimator, tmp_path):
    estimator.save(tmp_path / "model")
    back = pb.PartialBNNRegressor.load(tmp_path / "model")
    np.testing.assert_array_equal(back.predict(X), estimator.predict(X))
    estimator.export(tmp_path / "predictor")
    predictor = pb.io.load_predictor(tmp_path / "predictor")
    np.testing.assert_allclose(predictor(X.astype(np.float32))["mean"], estimator.predict(X), atol=1e-4)


def test_a_stream_goes_on_with_the_networks_alone(tmp_path):
    made = pb.PartialBNNRegressor((8,), n_folds=4, max_iter=5, n_replays=2, random_state=0)
    made.fit(X, Y[:, 0]).partial_fit(X[:10], Y[:10, 0])
    assert made._settings.num_centers == 0
    assert len(made.posterior_.particles.log_weights) == 4
    assert np.isfinite(made.predict(X)).all()
    made.save(tmp_path / "model")
    back = pb.PartialBNNRegressor.load(tmp_path / "model")
    np.testing.assert_array_equal(back.predict(X), made.predict(X))
    copied = pickle.loads(pickle.dumps(made))  # noqa: S301
    np.testing.assert_allclose(copied.oof_predictive_.mean, made.oof_predictive_.mean)
    assert made.oof_predictive_.components().mean.shape[0] == 4  # members of one network


def test_a_stream_that_grows_large_goes_on_with_the_networks():
    inputs = RNG.normal(size=(600, 2))
    targets = inputs[:, 0]
    made = pb.PartialBNNRegressor((8,), n_folds=2, max_iter=1, n_replays=1, random_state=0)
    made.fit(inputs[:300], targets[:300]).partial_fit(inputs[300:], targets[300:])
    assert np.isfinite(made.predict(inputs[:5])).all()


def test_rows_that_are_refused_leave_the_machines(tmp_path):
    made = pb.PartialBNNRegressor((8,), n_folds=4, max_iter=2, n_replays=2, random_state=0)
    made.fit(X, Y[:, 0])
    before = made.predict(X)
    with pytest.raises(ValueError):
        made.partial_fit(X[:5], np.full(5, 1e30))
    np.testing.assert_array_equal(made.predict(X), before)
    made.save(tmp_path / "model")
    np.testing.assert_array_equal(pb.PartialBNNRegressor.load(tmp_path / "model").predict(X), before)


def test_groups_without_machines_are_those_that_were_trained(estimator):
    recipe, posterior = crossfit.without_machines(estimator._settings, estimator.posterior_)
    assert recipe.num_groups == len(posterior.particles.log_weights) == 4
    assert np.exp(posterior.particles.log_weights).sum() == pytest.approx(1.0, abs=1e-5)
    assert not any(name.startswith("kernel/") for name in posterior.psi.network)

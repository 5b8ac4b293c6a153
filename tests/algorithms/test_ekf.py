"""The extended Kalman filter against closed forms; that it follows the recursion is in `test_kalman`."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import partialbayes as pb
from partialbayes.algorithms._ekf import Gaussian, kalman_update
from partialbayes.model._batch import full_batch
from tests.oracles import conjugate

ORACLE = conjugate()


def test_evidence_and_gradient_of_all_the_data_are_exact():
    """One batch, everything forgotten: log Z and ∇_ψ log Z, noise and prior scale included."""
    algorithm = pb.algorithms.ekf(ORACLE.model, num_particles=20, optimizer=optax.sgd(1.0))
    state = algorithm.init(jax.random.key(0))
    after, info = jax.jit(algorithm.step)(
        jax.random.key(1), state, full_batch(ORACLE.inputs, ORACLE.targets)
    )
    exact, gradient = jax.value_and_grad(ORACLE.log_evidence)(state.psi)
    assert info["log_evidence_increment"] == pytest.approx(float(exact), rel=1e-5)
    moved = jax.tree.map(jnp.subtract, after.psi, state.psi)
    for ours, theirs in zip(jax.tree.leaves(moved), jax.tree.leaves(gradient), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-3)


def linear(outputs: int, likelihood):
    """(features, outputs) weights, all of them stochastic."""
    network = pb.types.Network(
        init=lambda key: {"weight": jnp.zeros((3, outputs))},
        apply=lambda params, inputs: inputs @ params["weight"],
    )
    return pb.partial_bnn(network, "weight", likelihood)


def some_law(dim: int) -> Gaussian:
    rng = np.random.default_rng(3)
    factor = np.linalg.cholesky(np.cov(rng.normal(size=(dim, 4 * dim))) + 0.1 * np.eye(dim))
    return Gaussian(jnp.asarray(rng.normal(size=dim), float), jnp.asarray(factor, float))


RNG = np.random.default_rng(4)
INPUTS = jnp.asarray(RNG.normal(size=(7, 3)), float)


@pytest.mark.parametrize("kind", ["per output", "correlated"])
def test_several_outputs(kind):
    """y_n = Wᵀ x_n + N(0, R): the Kalman update of the stacked outputs, in NumPy."""
    if kind == "per output":
        noise = np.diag([0.3, 1.2])
        model = linear(2, pb.gaussian(variance=np.array([0.3, 1.2])))
    else:
        noise = np.array([[0.5, 0.3], [0.3, 0.9]])
        model = linear(2, pb.likelihoods.multivariate_gaussian(noise))
    targets = jnp.asarray(RNG.normal(size=(7, 2)), float)
    batch = full_batch(INPUTS, targets)
    batch = batch._replace(mask=batch.mask.at[-1].set(False))  # the last row does not count
    law = some_law(6)
    psi = model.init(jax.random.key(0)).psi
    updated, log_evidence = jax.jit(partial(kalman_update, model))(psi, batch, law)

    design = np.concatenate([np.kron(x, np.eye(2)) for x in np.asarray(INPUTS[:6], np.float64)])
    mean, covariance = np.asarray(law.mean), np.asarray(law.factor @ law.factor.T, np.float64)
    innovation = np.asarray(targets[:6], np.float64).ravel() - design @ mean
    total = design @ covariance @ design.T + np.kron(np.eye(6), noise)
    gain = covariance @ design.T @ np.linalg.inv(total)
    np.testing.assert_allclose(updated.mean, mean + gain @ innovation, atol=1e-4)
    np.testing.assert_allclose(
        updated.factor @ updated.factor.T, covariance - gain @ design @ covariance, atol=1e-4
    )
    expected = -0.5 * (
        innovation @ np.linalg.solve(total, innovation)
        + np.linalg.slogdet(total)[1]
        + 12 * np.log(2 * np.pi)
    )
    assert float(log_evidence) == pytest.approx(expected, abs=1e-3)


def test_two_classes_are_a_bernoulli():
    """The covariance of class probabilities is singular; nothing is lost or made up by it."""
    labels = jnp.asarray([0, 1, 1, 0, 1, 0, 1])
    law = some_law(3)
    network = pb.types.Network(
        init=lambda key: {"weight": jnp.zeros(3)},
        apply=lambda params, x: jnp.stack([jnp.zeros(len(x)), x @ params["weight"]], axis=1),
    )
    classes = pb.partial_bnn(network, "weight", pb.categorical())
    odds = linear(1, pb.bernoulli())
    batch = full_batch(INPUTS, labels)
    results = [
        jax.jit(partial(kalman_update, model))(model.init(jax.random.key(0)).psi, batch, law)
        for model in (classes, odds)
    ]
    for first, second in zip(*map(jax.tree.leaves, results), strict=True):
        np.testing.assert_allclose(first, second, atol=1e-4)
    updated, log_evidence = results[1]
    # Information p (1 − p) x xᵀ, and a gradient Σ (y − p) x, at the mean before.
    probability = jax.nn.sigmoid(INPUTS @ law.mean)
    precision = np.linalg.inv(law.factor @ law.factor.T) + np.asarray(
        INPUTS.T @ ((probability * (1 - probability))[:, None] * INPUTS)
    )
    np.testing.assert_allclose(np.linalg.inv(updated.factor @ updated.factor.T), precision, rtol=1e-3)
    step = np.linalg.solve(precision, np.asarray(INPUTS.T @ (labels - probability)))
    np.testing.assert_allclose(updated.mean - law.mean, step, atol=1e-4)
    assert np.isfinite(log_evidence)


LIKELIHOODS = {
    "categorical": (pb.categorical(), 3, "class"),
    "student t": (pb.likelihoods.student_t(), 1, "real"),  # whose log-density is not concave
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LIKELIHOODS)
def test_trains_a_network(name):
    likelihood, outputs, kind = LIKELIHOODS[name]
    inputs = jax.random.normal(jax.random.key(0), (60, 2))
    targets = jnp.tanh(2 * inputs[:, 0]) if kind == "real" else (inputs[:, 0] > 0).astype(jnp.int32)
    model = pb.partial_bnn(pb.mlp([2, 10, outputs]), "layers/1/*", likelihood)
    algorithm = pb.algorithms.ekf(model, num_particles=64)
    trained = pb.fit(algorithm, (inputs, targets), epochs=30, batch_size=20)
    loss = trained.history.metrics["loss"]
    assert np.isfinite(loss).all()
    assert loss[-6:].mean() < loss[:3].mean() - 0.1
    assert trained.posterior.particles.values.shape == (64, model.split.dim)


def test_diagonal_covariance_has_no_correlations_and_the_precision_of_each_weight():
    model, batch = linear(2, pb.gaussian()), full_batch(INPUTS, jnp.ones((7, 2)))
    full, diagonal = (
        pb.algorithms.ekf(model, covariance=kind, num_particles=50, variance=0.1)
        for kind in ("full", "diagonal")
    )
    laws = [
        jax.jit(algorithm.step)(jax.random.key(1), algorithm.init(jax.random.key(0)), batch)[0].law
        for algorithm in (full, diagonal)
    ]
    precisions = [np.linalg.inv(law.factor @ law.factor.T) for law in laws]
    np.testing.assert_allclose(laws[0].mean, laws[1].mean, atol=1e-5)
    np.testing.assert_allclose(np.diag(precisions[1]), np.diag(precisions[0]), rtol=1e-3)
    assert np.count_nonzero(precisions[1] - np.diag(np.diag(precisions[1]))) == 0


def test_prior_that_is_not_normal():
    model = ORACLE.model._replace(prior=ORACLE.model.prior._replace(normal=False))
    with pytest.raises(ValueError, match="needs a normal prior"):
        pb.algorithms.ekf(model)

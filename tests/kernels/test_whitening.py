"""Whitening by products alone is as exact as single precision allows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partialbayes as pb
from partialbayes.kernels._whitening import factorize, floored, inverse_root, whiten
from partialbayes.types import Moments, Particles, Target
from partialbayes.weights import uniform_log_weights


def turned(values, seed=0):
    """A symmetric matrix with these eigenvalues."""
    axes, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(len(values), len(values))))
    return (axes * values) @ axes.T


@pytest.mark.parametrize("condition", [1.0, 1e3, 1e6])
@pytest.mark.parametrize(("dim", "num_particles"), [(5, 20), (60, 80)])
def test_ill_conditioned_clouds_become_white(condition, dim, num_particles):
    noise = np.random.default_rng(1).normal(size=(num_particles, dim))
    values = noise @ turned(np.geomspace(1.0, condition**-0.5, dim)) + 2.0
    cloud = jax.jit(whiten)(jnp.asarray(values, jnp.float32))
    standard, factor = (np.asarray(part, float) for part in (cloud.standard, cloud.factor))
    np.testing.assert_allclose(standard.mean(axis=0), 0.0, atol=1e-3)
    np.testing.assert_allclose(standard.T @ standard / num_particles, np.eye(dim), atol=1e-5)
    np.testing.assert_allclose(standard @ factor + np.asarray(cloud.mean), values, atol=1e-5)
    lower = np.linalg.inv(np.linalg.cholesky(np.cov(values.T, bias=True)))
    np.testing.assert_allclose(np.linalg.eigvalsh(lower @ factor.T @ factor @ lower.T), 1.0, atol=1e-3)


def test_a_degenerate_cloud_stays_finite_and_where_it_is():
    values = np.random.default_rng(0).normal(size=(40, 6))
    values[:, 2], values[:, 4] = 1.0, values[:, 3]
    cloud = jax.jit(whiten)(jnp.asarray(values, jnp.float32))
    rebuilt = np.asarray(cloud.standard @ cloud.factor + cloud.mean[None])
    np.testing.assert_allclose(rebuilt, values, atol=1e-5)


@pytest.mark.parametrize(
    ("values", "tolerance"),
    [(np.linspace(0.6, 1.5, 30), 1e-5), (np.geomspace(0.5, 500.0, 30), 3e-3), (np.ones(30), 1e-6)],
)
def test_inverse_root(values, tolerance):
    root = np.asarray(jax.jit(inverse_root)(jnp.asarray(turned(values), jnp.float32)))
    np.testing.assert_allclose(root, turned(values**-0.5), atol=tolerance)


@pytest.mark.parametrize(
    "values",
    [
        np.linspace(-0.9, 2.0, 20),
        np.linspace(0.6, 2.0, 20),
        np.r_[-30.0, 0.2, np.geomspace(0.5, 300, 18)],
        np.r_[-1.0, -0.5, 0.2, np.geomspace(0.5, 1e4, 17)],
        np.r_[-1e4, -0.5, 0.2, np.geomspace(0.5, 6e4, 17)],
    ],
    ids=["some below", "none below", "far apart", "farther apart", "far below"],
)
def test_floored_raises_the_small_eigenvalues_and_leaves_the_others(values):
    raised = jax.jit(floored, static_argnums=1)(jnp.asarray(turned(values), jnp.float32), 0.5)
    tolerance = 1e-3 + 1e-5 * abs(values).max()
    np.testing.assert_allclose(np.asarray(raised), turned(np.maximum(values, 0.5)), atol=tolerance)
    assert np.linalg.eigvalsh(np.asarray(raised, float)).min() > 0.49


def test_factorize():
    covariance = turned(np.geomspace(1e-3, 1.0, 20))
    factor = jax.jit(factorize)(jnp.asarray(covariance, jnp.float32))
    np.testing.assert_allclose(factor.lower, np.linalg.cholesky(covariance), atol=1e-4)
    np.testing.assert_allclose(factor.inverse @ factor.lower, np.eye(20), atol=1e-4)


@pytest.mark.parametrize(
    "kernel",
    [
        pb.kernels.transport("full"),
        pb.kernels.affine_langevin("full"),
        pb.kernels.adapted_hamiltonian(),
        pb.kernels.adapted_metropolis(),
    ],
    ids=["transport", "affine_langevin", "adapted_hamiltonian", "adapted_metropolis"],
)
def test_kernels_of_the_cloud_do_not_call_lapack(kernel):
    """Its threads spin: beside other work a step became many times slower."""

    def density(phi):
        return -0.5 * jnp.sum(jnp.square(phi))

    target = Target(density, density, Moments(jnp.zeros(3), jnp.ones(3)), jnp.asarray(0.5))
    particles = Particles(jnp.ones((12, 3)), uniform_log_weights(12))
    step = jax.jit(lambda key: kernel.step(key, particles, target, kernel.init(particles)).values)
    with jax.debug_key_reuse(False):
        assert "lapack" not in step.lower(jax.random.key(0)).as_text().lower()

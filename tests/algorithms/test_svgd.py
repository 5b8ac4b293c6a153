import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import partialbayes as pb
from partialbayes.algorithms._svgd import stein_direction
from partialbayes.model._batch import full_batch
from tests.oracles import conjugate

ORACLE = conjugate()
BATCH = full_batch(ORACLE.inputs, ORACLE.targets)
PSI = ORACLE.model.init(jax.random.key(0)).psi


def kernel_width(values):
    number = len(values)
    pairs = [np.sum((values[i] - values[j]) ** 2) for i in range(number) for j in range(i)]
    return np.median(pairs) / np.log(number)


@pytest.mark.parametrize("offset", [0.0, 1e3], ids=["near zero", "far from zero"])
def test_direction_is_the_definition(offset):
    """Against the sum over pairs, with the kernel's gradient by automatic differentiation."""
    rng = np.random.default_rng(0)
    values = np.asarray(offset + rng.normal(size=(6, 2)), np.float32)
    gradients = np.asarray(rng.normal(size=(6, 2)), np.float32)
    width = kernel_width(values.astype(np.float64))

    def kernel(a, b):
        return jnp.exp(-jnp.sum(jnp.square(a - b)) / width)

    expected = [
        sum(
            kernel(values[j], values[i]) * gradients[j] + jax.grad(kernel)(values[j], values[i])
            for j in range(6)
        )
        / 6
        for i in range(6)
    ]
    ours = stein_direction(jnp.asarray(values), jnp.asarray(gradients))
    np.testing.assert_allclose(ours, np.stack(expected), rtol=1e-3, atol=1e-4)


def test_coinciding_particles_do_not_break_it():
    direction = stein_direction(jnp.ones((4, 2)), jnp.ones((4, 2)))
    assert np.allclose(direction, 1.0)


@pytest.fixture(scope="module")
def settled():
    algorithm = pb.algorithms.svgd(
        ORACLE.model,
        num_particles=60,
        optimizer=optax.set_to_zero(),
        particle_optimizer=optax.adam(optax.cosine_decay_schedule(0.05, 3000)),
    )

    def body(index, state):
        return algorithm.step(jax.random.fold_in(jax.random.key(1), index), state, BATCH)[0]

    run = jax.jit(lambda: jax.lax.fori_loop(0, 3000, body, algorithm.init(jax.random.key(0))))
    return np.asarray(algorithm.posterior(run()).particles.values, np.float64)


def test_it_settles_on_the_posterior_mean(settled):
    """Summed over i the repulsion cancels, so at rest Σ_j κ_j ∇U(φ_j) = 0 with κ_j = Σ_i k(φ_j, φ_i).

    For a Gaussian posterior the κ-weighted mean is then the posterior mean, exactly.
    """
    mean, covariance = (np.asarray(moment) for moment in ORACLE.posterior(PSI))
    distances = np.square(settled[:, None] - settled[None]).sum(axis=-1)
    density = np.exp(-distances / kernel_width(settled)).sum(axis=0)
    weighted = density @ settled / density.sum()
    assert np.abs(weighted - mean).max() < 2e-3
    assert np.abs((settled.mean(axis=0) - mean) / np.sqrt(np.diag(covariance))).max() < 0.1


def test_its_variance_is_near_the_posteriors_and_below_it(settled):
    _, covariance = ORACLE.posterior(PSI)
    _, axes = np.linalg.eigh(np.asarray(covariance))
    ratio = np.diag(axes.T @ np.cov(settled.T) @ axes) / np.diag(axes.T @ np.asarray(covariance) @ axes)
    assert ratio.min() > 0.8
    assert ratio.max() < 0.97


def test_bad_arguments():
    with pytest.raises(ValueError, match="at least 2"):
        pb.algorithms.svgd(ORACLE.model, num_particles=1)

"""Members that share ψ."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import partialbayes as pb
from partialbayes.model._batch import full_batch

MODEL = pb.partial_bnn(pb.mlp([2, 4, 1]), "layers/1/*", pb.gaussian(pb.learned(0.5)))
X = jax.random.normal(jax.random.key(3), (12, 2))
Y = X[:, 0]


def test_each_member_descends_on_its_own_rows_and_psi_on_the_mean():
    """One step of plain gradient descent, against gradients of the members one by one."""
    algorithm = pb.algorithms.shared_ensemble(
        MODEL, num_particles=3, optimizer=optax.sgd(0.1), averaging=0.0
    )
    state = algorithm.init(jax.random.key(0))
    values, psi = state.members
    assert np.ptp(values, axis=0).max() > 0.0
    after, info = algorithm.step(jax.random.key(1), state, full_batch(X, Y))

    def loss(phi, psi, rows):
        return -MODEL.log_likelihood(phi, psi, full_batch(X[rows], Y[rows])).mean()

    parts = [slice(4 * member, 4 * member + 4) for member in range(3)]
    gradients = [
        jax.value_and_grad(loss, argnums=(0, 1))(values[member], psi, part)
        for member, part in enumerate(parts)
    ]
    for member, (_, (of_phi, _)) in enumerate(gradients):
        np.testing.assert_allclose(
            after.members.values[member], values[member] - 0.1 * of_phi, rtol=1e-4, atol=1e-6
        )
    mean = jax.tree.map(lambda *leaves: sum(leaves) / 3, *(of_psi for _, (_, of_psi) in gradients))
    for moved, start, slope in zip(*map(jax.tree.leaves, (after.members.psi, psi, mean)), strict=True):
        np.testing.assert_allclose(moved, start - 0.1 * slope, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(info["loss"], np.mean([value for value, _ in gradients]), rtol=1e-5)


def test_the_posterior_is_that_of_the_running_average():
    algorithm = pb.algorithms.shared_ensemble(
        MODEL, num_particles=2, optimizer=optax.sgd(0.1), averaging=0.5
    )
    state = algorithm.init(jax.random.key(0))
    average = np.asarray(state.members.values)
    for step in range(12):
        state, _ = algorithm.step(jax.random.key(step), state, full_batch(X, Y))
        kept = min(0.5, (1 + step) / (10 + step))
        average = kept * average + (1 - kept) * np.asarray(state.members.values)
    np.testing.assert_allclose(algorithm.posterior(state).particles.values, average, rtol=1e-4)


def test_what_does_not_fit_is_said():
    with pytest.raises(ValueError, match="averaging must be"):
        pb.algorithms.shared_ensemble(MODEL, averaging=1.0)
    many = pb.algorithms.shared_ensemble(MODEL, num_particles=13)
    with pytest.raises(ValueError, match="fewer than the 13 members"):
        many.step(jax.random.key(0), many.init(jax.random.key(0)), full_batch(X, Y))
    assert jnp.isfinite(X).all()

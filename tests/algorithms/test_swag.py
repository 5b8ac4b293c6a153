import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree

import partialbayes as pb
from partialbayes.model._batch import full_batch
from partialbayes.types import Params
from tests.oracles import conjugate

ORACLE = conjugate()
BATCH = full_batch(ORACLE.inputs, ORACLE.targets)
HALF = BATCH._replace(mask=jnp.arange(30) < 15, scale=jnp.asarray(2.0))
WARM_UP, EVERY, RANK, STEPS = 4, 3, 5, 27  # snapshots after steps 7, 10, 13, 16, 19, 22, 25


def run(algorithm, steps=STEPS, seed=0):
    """States after 0, 1, … steps, on alternating batches so that the trajectory wanders."""
    step = jax.jit(algorithm.step)
    state = jax.jit(algorithm.init)(jax.random.key(seed))
    states = [state]
    for index in range(steps):
        state, _ = step(jax.random.key(100 + index), state, HALF if index % 2 else BATCH)
        states.append(state)
    return states


@pytest.fixture(scope="module")
def states():
    return run(
        pb.algorithms.swag(ORACLE.model, rank=RANK, num_warmup=WARM_UP, every=EVERY, sample_psi=True)
    )


@pytest.fixture(scope="module")
def snapshots(states):
    """The snapshots as the definition says, from the trajectory itself, in double precision."""
    taken = [states[step] for step in range(WARM_UP + EVERY, STEPS + 1, EVERY)]
    return np.stack([flat(state.trajectory.params) for state in taken])


def flat(tree) -> np.ndarray:
    return np.asarray(ravel_pytree(tree)[0], np.float64)


def test_the_trajectory_is_that_of_map(states):
    training = run(pb.map_estimate(ORACLE.model), steps=5)
    assert np.allclose(flat(states[5].trajectory.params), flat(training[5].params), atol=1e-6)


def test_moments_are_those_of_the_snapshots(states, snapshots):
    last = states[-1]
    assert int(last.collected) == len(snapshots) == 7
    assert np.allclose(flat(last.mean), snapshots.mean(axis=0), atol=1e-6)
    assert np.allclose(flat(last.squares) / 7, snapshots.var(axis=0), rtol=1e-3, atol=1e-9)


def test_columns_are_the_last_deviations_from_the_running_mean(states, snapshots):
    expected = [snapshots[i] - snapshots[: i + 1].mean(axis=0) for i in range(2, 7)]
    ring = [expected[i] for i in (3, 4, 0, 1, 2)]  # places 0 and 1 were written again
    assert np.allclose(states[-1].columns, ring, atol=1e-6)


def test_before_the_first_snapshot_the_posterior_is_the_point(states):
    algorithm = pb.algorithms.swag(ORACLE.model, num_particles=6, rank=RANK, sample_psi=True)
    for state in (states[0], states[WARM_UP + EVERY - 1]):
        psi, (values, log_weights) = algorithm.posterior(state)
        params = state.trajectory.params
        assert np.array_equal(values, np.broadcast_to(params.phi, (6, 1, 3)))
        for leaf, now in zip(jax.tree.leaves(psi), jax.tree.leaves(params.psi), strict=True):
            assert np.array_equal(leaf, np.broadcast_to(now, (6, *now.shape)))
        assert np.allclose(jnp.exp(log_weights), 1 / 6)


def test_after_one_snapshot_it_is_a_point_too(states):
    algorithm = pb.algorithms.swag(ORACLE.model, num_particles=6, rank=RANK, sample_psi=True)
    values = algorithm.posterior(states[WARM_UP + EVERY]).particles.values
    assert np.array_equal(values, np.broadcast_to(values[:1], values.shape))
    assert np.allclose(values[0, 0], states[WARM_UP + EVERY].trajectory.params.phi)


def gaussian_z(samples: np.ndarray, mean: np.ndarray, covariance: np.ndarray):
    """z-scores of the sample mean and covariance of normal draws whose law is known."""
    number = len(samples)
    spread = np.sqrt(np.diag(covariance))
    mean_z = (samples.mean(axis=0) - mean) / (spread / np.sqrt(number))
    standard = np.sqrt((np.outer(spread, spread) ** 2 + covariance**2) / number)
    centered = samples - mean
    return mean_z, (centered.T @ centered / number - covariance) / standard


@pytest.mark.parametrize("taken", [3, 7], ids=["ring not full", "ring full"])
def test_sampling_law_of_all_the_weights(states, snapshots, taken):
    """N(m, ½ diag(s) + D Dᵀ / (2 (K − 1))), correlations between φ and ψ included."""
    state = states[WARM_UP + taken * EVERY]
    posterior = pb.algorithms.swag(
        ORACLE.model, num_particles=20_000, rank=RANK, sample_psi=True
    ).posterior(state)
    draws = Params(posterior.particles.values[:, 0, :], posterior.psi)
    samples = np.asarray(jax.vmap(lambda params: ravel_pytree(params)[0])(draws), np.float64)

    used = snapshots[:taken]
    first = max(0, taken - RANK)
    columns = np.stack([used[i] - used[: i + 1].mean(axis=0) for i in range(first, taken)])
    low_rank = columns.T @ columns / (len(columns) - 1)
    covariance = 0.5 * np.diag(used.var(axis=0)) + 0.5 * low_rank
    mean_z, covariance_z = gaussian_z(samples, used.mean(axis=0), covariance)
    assert np.abs(mean_z).max() < 4.5
    assert np.abs(covariance_z).max() < 4.5
    # The same test sees a wrong scaling: no halves, K for K − 1, no low-rank part.
    wrong = (2 * covariance, covariance - 0.5 * low_rank / len(columns), np.diag(used.var(axis=0)))
    for mistaken in wrong:
        assert np.abs(gaussian_z(samples, used.mean(axis=0), mistaken)[1]).max() > 6


def test_diagonal_has_the_full_variance():
    algorithm = pb.algorithms.swag(
        ORACLE.model, num_particles=20_000, rank=0, num_warmup=WARM_UP, every=EVERY
    )
    last = run(algorithm)[-1]
    particles = algorithm.posterior(last).particles
    variance = np.asarray(last.squares, np.float64) / 7
    mean_z, covariance_z = gaussian_z(
        np.asarray(particles.values, np.float64), np.asarray(last.mean.phi), np.diag(variance)
    )
    assert np.abs(mean_z).max() < 4.5
    assert np.abs(covariance_z).max() < 4.5


def test_phi_only_is_the_marginal_law_with_psi_at_its_average(states):
    algorithm = pb.algorithms.swag(
        ORACLE.model, num_particles=7, rank=RANK, num_warmup=WARM_UP, every=EVERY
    )
    last = run(algorithm)[-1]
    assert np.allclose(flat(last.mean), flat(states[-1].mean), atol=1e-6)
    assert np.allclose(last.squares, states[-1].squares[:3], atol=1e-6)
    assert np.allclose(last.columns, states[-1].columns[:, :3], atol=1e-6)
    psi, particles = algorithm.posterior(last)
    assert particles.values.shape == (7, 3)
    assert all(map(np.array_equal, jax.tree.leaves(psi), jax.tree.leaves(last.mean.psi)))


def test_a_look_at_the_posterior_is_pure(states):
    algorithm = pb.algorithms.swag(ORACLE.model, num_particles=5, rank=RANK, sample_psi=True)
    first, again = algorithm.posterior(states[-1]), algorithm.posterior(states[-1])
    assert all(map(np.array_equal, jax.tree.leaves(first), jax.tree.leaves(again)))


def test_variance_is_never_negative_far_from_zero():
    """At weights of 10⁴, E[θ²] − E[θ]² would lose every digit."""
    far = pb.priors.normal(mean=1e4, scale=1e-2)
    network = pb.types.Network(
        init=lambda key: {"head": jnp.full(1, 1e4) + 1e-3 * jax.random.normal(key, (1,))},
        apply=lambda params, x: x @ params["head"] - 1e4 * x[:, 0],
    )
    model = pb.partial_bnn(network, "head", pb.gaussian(), far)
    algorithm = pb.algorithms.swag(model, rank=2, num_warmup=0, optimizer=optax.sgd(3e-5))
    step, state = jax.jit(algorithm.step), algorithm.init(jax.random.key(0))
    batch = full_batch(jnp.ones((4, 1)), jnp.zeros(4))
    values = []
    for seed in range(20):
        state, _ = step(jax.random.key(seed), state, batch)
        values.append(np.asarray(state.trajectory.params.phi, np.float64))
    assert float(state.squares[0]) >= 0.0
    assert np.isclose(float(state.squares[0]) / 20, np.var(values), rtol=0.2, atol=1e-6)
    assert bool(jnp.isfinite(algorithm.posterior(state).particles.values).all())


def settled(rate, batch_size, epochs):
    """Mean, and variance relative to the posterior's, of SWAG at fixed ψ on plain gradient steps."""
    only_phi = optax.multi_transform(
        {"phi": optax.sgd(rate), "psi": optax.set_to_zero()}, Params("phi", "psi")
    )
    fitted = pb.fit(
        pb.algorithms.swag(ORACLE.model, rank=0, num_warmup=1500, num_particles=500, optimizer=only_phi),
        (ORACLE.inputs, ORACLE.targets),
        epochs=epochs,
        batch_size=batch_size,
    )
    values = fitted.posterior.particles.values
    _, covariance = ORACLE.posterior(ORACLE.model.init(jax.random.key(0)).psi)
    return values.mean(axis=0), values.var(axis=0) / jnp.diag(covariance)


def test_its_mean_is_right_and_its_width_is_not():
    """Without noise in the gradients the optimizer stands still, however wide the posterior."""
    mean, _ = ORACLE.posterior(ORACLE.model.init(jax.random.key(0)).psi)
    center, relative_variance = settled(1e-2, None, 2000)
    assert jnp.allclose(center, mean, atol=1e-3)
    assert float(relative_variance.max()) < 1e-4


@pytest.mark.slow
def test_its_width_follows_the_rate():
    _, slow = settled(2e-3, 10, 1000)
    _, fast = settled(8e-3, 10, 1000)
    assert float((fast / slow).min()) > 2.0


def test_it_goes_on_from_the_weighted_mean():
    algorithm = pb.algorithms.swag(ORACLE.model, rank=0)
    values = jnp.array([[0.0, 1.0, 2.0], [4.0, 5.0, 6.0]])
    psi = ORACLE.model.init(jax.random.key(0)).psi
    posterior = pb.types.Posterior(psi, pb.types.Particles(values, jnp.log(jnp.array([0.75, 0.25]))))
    state = algorithm.restart(algorithm.init(jax.random.key(1)), posterior)
    assert np.allclose(state.trajectory.params.phi, [1.0, 2.0, 3.0])


def test_bad_arguments():
    with pytest.raises(ValueError, match="rank must be 0"):
        pb.algorithms.swag(ORACLE.model, rank=1)
    with pytest.raises(ValueError, match="num_warmup must be a whole number of steps"):
        pb.algorithms.swag(ORACLE.model, num_warmup=-1)
    with pytest.raises(ValueError, match="every"):
        pb.algorithms.swag(ORACLE.model, every=0)

"""Kernels against densities they must leave as they are: exact draws, one move, the same law."""

from functools import partial
from typing import NamedTuple

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import partialbayes as pb
from partialbayes.types import Moments, Moved, Target
from partialbayes.weights import uniform_log_weights

NUM_PARTICLES = 20_000
SMALLEST_P = 1e-5


class Gaussian(NamedTuple):
    """A correlated normal posterior: its prior, and exact draws from it."""

    mean: np.ndarray
    covariance: np.ndarray
    prior: Moments

    def target(self) -> Target:
        precision = jnp.asarray(np.linalg.inv(self.covariance), float)
        mean = jnp.asarray(self.mean, float)

        def log_density(phi):
            return -0.5 * (phi - mean) @ precision @ (phi - mean)

        def log_prior(phi):
            return -0.5 * jnp.sum(jnp.square(phi - self.prior.mean) / self.prior.variance)

        def log_potential(phi):
            return 0.5 * (log_density(phi) - log_prior(phi))

        return Target(log_density, log_potential, self.prior, jnp.asarray(0.5))

    def draw(self, num: int, seed: int) -> pb.types.Particles:
        draws = np.random.default_rng(seed).multivariate_normal(self.mean, self.covariance, num)
        return pb.types.Particles(jnp.asarray(draws, float), uniform_log_weights(num))


POSTERIOR = Gaussian(
    mean=np.array([0.5, -1.0]),
    covariance=np.array([[0.5, 0.3], [0.3, 0.4]]),
    prior=Moments(jnp.asarray([0.2, -0.1]), jnp.asarray([2.0, 0.9])),
)
# Any direction will do; these see both coordinates and their correlation.
DIRECTIONS = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, -1.0]])


def p_values(values, mean, covariance) -> list[float]:
    """Kolmogorov–Smirnov p-values of projections against the normal law."""
    values = np.asarray(values, np.float64)
    return [
        stats.kstest(
            (values @ direction - direction @ mean) / np.sqrt(direction @ covariance @ direction),
            "norm",
        ).pvalue
        for direction in DIRECTIONS
    ]


def one_move(kernel: pb.types.Kernel, particles: pb.types.Particles, target: Target) -> Moved:
    state = kernel.init(particles)
    return jax.jit(lambda key: kernel.step(key, particles, target, state))(jax.random.key(3))


INVARIANT = {
    "random_walk_metropolis": pb.kernels.random_walk_metropolis(0.5),
    "random_walk_metropolis, per weight": pb.kernels.random_walk_metropolis(jnp.asarray([0.8, 0.2]), 2),
    "random_walk_metropolis, in pairs": pb.kernels.random_walk_metropolis(0.5, in_pairs=True),
    "mala": pb.kernels.mala(0.4),
    "hamiltonian": pb.kernels.hamiltonian(0.6, 2),
    "hamiltonian, mass": pb.kernels.hamiltonian(0.9, 2, inverse_mass=jnp.asarray([0.5, 0.4])),
    "pcn": pb.kernels.pcn(0.5, 2),
    "adapted_metropolis": pb.kernels.adapted_metropolis(2),
    "adapted_hamiltonian": pb.kernels.adapted_hamiltonian(2, num_steps=1),
}


@pytest.mark.parametrize("name", INVARIANT)
def test_leaves_the_target_invariant(name):
    particles = POSTERIOR.draw(NUM_PARTICLES, seed=1)
    moved = one_move(INVARIANT[name], particles, POSTERIOR.target())
    assert min(p_values(moved.values, POSTERIOR.mean, POSTERIOR.covariance)) > SMALLEST_P
    assert 0.05 < float(moved.acceptance) < 0.99
    assert float(jnp.mean(jnp.any(moved.values != particles.values, axis=1))) > 0.05


@pytest.mark.slow
def test_nuts_of_blackjax_plugs_in():
    step = partial(
        blackjax.nuts.build_kernel(), step_size=0.9, inverse_mass_matrix=jnp.ones(2), max_num_doublings=3
    )
    particles = POSTERIOR.draw(5000, seed=1)
    with jax.debug_key_reuse(False):  # a false alarm on a mapped while-loop
        moved = one_move(
            pb.kernels.from_mcmc(pb.types.ParticleKernel(blackjax.nuts.init, step)),
            particles,
            POSTERIOR.target(),
        )
    assert min(p_values(moved.values, POSTERIOR.mean, POSTERIOR.covariance)) > SMALLEST_P
    assert 0.05 < float(moved.acceptance) < 0.99


@pytest.mark.parametrize(
    "wrong",
    [
        pb.kernels.random_walk(0.5),
        pb.kernels.unadjusted_langevin(0.4),
        pb.kernels.ornstein_uhlenbeck(0.5),
    ],
)
def test_of_the_test_moves_without_rejection_fail_it(wrong):
    particles = POSTERIOR.draw(NUM_PARTICLES, seed=1)
    moved = one_move(wrong, particles, POSTERIOR.target())
    assert min(p_values(moved.values, POSTERIOR.mean, POSTERIOR.covariance)) < SMALLEST_P


def test_of_the_test_pcn_with_the_prior_counted_twice_fails_it():
    particles = POSTERIOR.draw(NUM_PARTICLES, seed=1)
    flat = Moments(POSTERIOR.prior.mean, 1e6 * jnp.ones(2))  # the ratio then keeps the prior
    target = POSTERIOR.target()

    def log_density(phi):
        log_prior = -0.5 * jnp.sum(jnp.square(phi - flat.mean) / POSTERIOR.prior.variance)
        return target.log_density(phi) + log_prior

    moved = one_move(pb.kernels.pcn(0.5, 2), particles, target._replace(log_density=log_density))
    assert min(p_values(moved.values, POSTERIOR.mean, POSTERIOR.covariance)) < SMALLEST_P


def test_ornstein_uhlenbeck_leaves_the_prior_invariant():
    prior = Gaussian(np.array([0.2, -0.1]), np.diag([2.0, 0.9]), POSTERIOR.prior)
    particles = prior.draw(NUM_PARTICLES, seed=2)
    moved = one_move(pb.kernels.ornstein_uhlenbeck(0.7), particles, prior.target())
    assert min(p_values(moved.values, prior.mean, prior.covariance)) > SMALLEST_P
    # One coordinate forgets as e^{−t/(2 s²)}: the correlation of before and after.
    for index, variance in enumerate((2.0, 0.9)):
        correlation = np.corrcoef(particles.values[:, index], moved.values[:, index])[0, 1]
        expected = np.exp(-0.7 / (2 * variance))
        assert abs(correlation - expected) < 4.5 * (1 - expected**2) / np.sqrt(NUM_PARTICLES)


def test_random_walk_adds_the_variance_it_is_given():
    particles = POSTERIOR.draw(NUM_PARTICLES, seed=2)
    moved = one_move(pb.kernels.random_walk(jnp.asarray([0.3, 0.02])), particles, POSTERIOR.target())
    steps = moved.values - particles.values
    assert min(p_values(steps, np.zeros(2), np.diag([0.3, 0.02]))) > SMALLEST_P


def test_unadjusted_langevin_settles_where_the_theory_says():
    """On N(0, s²) at s² / (1 − v / (4 s²)), coordinate by coordinate."""
    target_variance, variance = np.array([0.5, 0.3]), 0.25
    settled = target_variance / (1 - variance / (4 * target_variance))
    posterior = Gaussian(np.zeros(2), np.diag(target_variance), POSTERIOR.prior)
    stationary = Gaussian(np.zeros(2), np.diag(settled), POSTERIOR.prior)
    particles = stationary.draw(NUM_PARTICLES, seed=4)
    moved = one_move(pb.kernels.unadjusted_langevin(variance), particles, posterior.target())
    assert min(p_values(moved.values, np.zeros(2), np.diag(settled))) > SMALLEST_P


def test_guided_langevin_has_the_law_of_a_random_walk_once_weighted():
    """From one point, whose random walk is known exactly, under a potential that is not normal."""
    start, variance = jnp.asarray([0.4, -0.7]), jnp.asarray([0.3, 0.1])
    num = 200_000
    particles = pb.types.Particles(jnp.broadcast_to(start, (num, 2)), uniform_log_weights(num))

    def log_potential(phi):
        return 2.0 * jnp.sin(2.0 * phi[0]) - phi[1] ** 4 + phi[0] * phi[1]

    target = POSTERIOR.target()._replace(log_potential=log_potential)
    moved = one_move(pb.kernels.guided_langevin(variance), particles, target)
    weights = np.exp(np.asarray(moved.log_correction, np.float64))
    steps = np.asarray(moved.values - start[None], np.float64)

    def worst_z(weights):
        """One, the step, and its square and cubes: expectations under N(0, v)."""
        functions = np.stack(
            [np.ones(num), *steps.T, *(steps**2).T, steps.prod(axis=1), *(steps**3).T], axis=1
        )
        expected = np.array([1.0, 0.0, 0.0, *np.asarray(variance), 0.0, 0.0, 0.0])
        terms = weights[:, None] * functions
        error = np.maximum(terms.std(axis=0) / num**0.5, 1e-6)
        return float(np.max(np.abs((terms.mean(axis=0) - expected) / error)))

    assert worst_z(weights) < 4.5
    assert worst_z(np.ones(num)) > 20.0  # without the correction
    assert worst_z(1.0 / weights) > 20.0  # with its sign wrong


@pytest.mark.parametrize("in_pairs", [False, True])
def test_metropolis_in_pairs_proposes_opposite_steps(in_pairs):
    """On a flat target, where every proposal is accepted."""
    particles = POSTERIOR.draw(1000, seed=4)
    flat = POSTERIOR.target()._replace(log_density=lambda phi: 0.0 * phi.sum())
    moved = one_move(pb.kernels.random_walk_metropolis(0.5, in_pairs=in_pairs), particles, flat)
    steps = moved.values - particles.values
    sums = np.asarray(steps[::2] + steps[1::2])
    assert (np.abs(sums).max() < 1e-5) == in_pairs
    assert abs(float(jnp.var(steps)) - 0.5) < 0.1


def test_adapted_metropolis_proposes_the_particles_covariance():
    """On a flat target every proposal is accepted, and its law is seen."""
    correlated = Gaussian(
        np.zeros(2), np.array([[2.0, 0.9], [0.9, 0.5]]), Moments(jnp.zeros(2), jnp.ones(2))
    )
    particles = correlated.draw(NUM_PARTICLES, seed=5)
    flat = correlated.target()._replace(log_density=lambda phi: 0.0 * phi.sum())
    moved = one_move(pb.kernels.adapted_metropolis(), particles, flat)
    half = NUM_PARTICLES // 2  # the second half goes by where the first has gone
    proposal = 2.38**2 / 2 * np.cov(particles.values[half:].T)
    steps = (moved.values - particles.values)[:half]
    assert min(p_values(steps, np.zeros(2), proposal)) > SMALLEST_P
    # The test can fail: noise z @ L has the covariance Lᵀ L, not L Lᵀ.
    lower = np.linalg.cholesky(proposal)
    wrong = np.random.default_rng(0).normal(size=(NUM_PARTICLES, 2)) @ lower
    assert min(p_values(wrong, np.zeros(2), proposal)) < SMALLEST_P
    assert float(moved.state) > 0.0  # all accepted: wider next time


@pytest.mark.parametrize("wanted", [0.234, pytest.param(0.6, marks=pytest.mark.slow)])
def test_adapted_metropolis_steers_acceptance(wanted):
    particles, target = POSTERIOR.draw(2000, seed=6), POSTERIOR.target()
    kernel = pb.kernels.adapted_metropolis(target_acceptance=wanted)
    step = jax.jit(lambda key, state: kernel.step(key, particles, target, state))
    state = jnp.asarray(-4.0)  # proposals far too small
    for seed in range(15):
        moved = step(jax.random.key(seed), state)
        state = moved.state
    assert abs(float(moved.acceptance) - wanted) < 0.03


@pytest.mark.slow
@pytest.mark.parametrize(("dim", "count"), [(10, 1000), (10, 60), (50, 200)])
@pytest.mark.parametrize("name", ["adapted_hamiltonian", "adapted_metropolis"])
def test_clouds_of_few_particles_keep_their_spread(name, dim, count):
    """Exact draws, moved thirty times, in twenty clouds; the variance of J draws is 1 − 1/J."""
    kernel = {
        "adapted_hamiltonian": pb.kernels.adapted_hamiltonian(num_steps=1),
        "adapted_metropolis": pb.kernels.adapted_metropolis(num_steps=10),
    }[name]
    exact = Gaussian(np.zeros(dim), np.eye(dim), Moments(jnp.zeros(dim), jnp.ones(dim)))
    target = exact.target()

    def settled(key):
        key_start, key_moves = jax.random.split(key)
        values = jax.random.normal(key_start, (count, dim))

        def move(carry, key):
            cloud = pb.types.Particles(carry[0], uniform_log_weights(count))
            moved = kernel.step(key, cloud, target, carry[1])
            return (moved.values, moved.state), moved.values.var(axis=0).mean()

        state = kernel.init(pb.types.Particles(values, uniform_log_weights(count)))
        _, variances = jax.lax.scan(move, (values, state), jax.random.split(key_moves, 30))
        return variances[10:].mean()

    with jax.debug_key_reuse(False):
        found = np.asarray(jax.lax.map(settled, jax.random.split(jax.random.key(0), 20)), float)
    assert abs(found.mean() - (1 - 1 / count)) < 4.0 * found.std(ddof=1) / len(found) ** 0.5
    assert found.std(ddof=1) < 0.05


def test_adapted_metropolis_survives_a_cloud_of_one_point():
    particles = pb.types.Particles(jnp.ones((2, 2)), uniform_log_weights(2))
    moved = one_move(pb.kernels.adapted_metropolis(), particles, POSTERIOR.target())
    assert bool(jnp.isfinite(moved.values).all())


def test_adapted_hamiltonian_follows_directions_far_narrower_than_others():
    """Of twenty correlated weights; correlations not quite believed would make every step too short."""
    dim, count = 20, 200
    narrow = np.full((dim, dim), 0.9999) + 1e-4 * np.eye(dim)
    posterior = Gaussian(np.zeros(dim), narrow, Moments(jnp.zeros(dim), jnp.ones(dim)))
    kernel, target = pb.kernels.adapted_hamiltonian(), posterior.target()
    step = jax.jit(lambda key, cloud, state: kernel.step(key, cloud, target, state))
    cloud = posterior.draw(count, seed=7)
    state = kernel.init(cloud)
    for seed in range(20):  # until the step size has settled
        before = cloud.values.sum(axis=1)
        moved = step(jax.random.key(seed), cloud, state)
        cloud, state = cloud._replace(values=moved.values), moved.state
    kept = np.corrcoef(before, cloud.values.sum(axis=1))[0, 1]
    assert abs(kept) < 0.5

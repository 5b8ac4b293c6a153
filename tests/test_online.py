"""Following a stream: the posterior of the rows in memory, in bounded time."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import partialbayes as pb
from partialbayes.model._batch import padded_size
from tests.oracles import conjugate
from tests.recorders import numbered, recorder

ORACLE = conjugate(num_data=200)
DATA = (ORACLE.inputs, ORACLE.targets)
STILL = pb.ohsmc(  # ψ stays where it is, so that the posterior is known
    ORACLE.model,
    num_particles=500,
    kernel=pb.kernels.forgetting(),
    optimizer=optax.set_to_zero(),
)


def rows(begin, end):
    return ORACLE.inputs[begin:end], ORACLE.targets[begin:end]


def test_particles_hold_the_posterior_of_the_rows_in_memory():
    """A memory of all 200 rows, fed 20 at a time: mean and variance of the conjugate posterior."""
    follower = pb.online.start(STILL, rows(0, 20), window_size=200, key=1)
    for begin in range(20, 200, 20):
        follower, _ = pb.online.update(follower, rows(begin, begin + 20), batch_size=20)
    assert follower.seen == 200
    means, variances = [], []
    for _ in range(15):  # the cloud keeps moving about the posterior: average over time
        follower, info = pb.online.update(follower, rows(180, 200), batch_size=20, num_replays=20)
        values, log_weights = map(np.asarray, follower.posterior.particles)
        weights = np.exp(log_weights)[:, None]
        means.append((weights * values).sum(axis=0))
        variances.append((weights * (values - means[-1]) ** 2).sum(axis=0))
    assert info["ess"].shape == (21,)
    mean, covariance = ORACLE.posterior(follower.posterior.psi)
    np.testing.assert_allclose(np.mean(means, axis=0), mean, atol=4 * np.sqrt(np.diag(covariance)).max())
    ratio = np.mean(variances, axis=0) / np.diag(covariance)
    assert np.all((ratio > 0.6) & (ratio < 1.7)), ratio


def test_memory_is_a_ring_of_the_last_rows():
    numbers = jnp.arange(200.0)
    tagged = (ORACLE.inputs, numbers)

    def held(follower):
        return sorted(np.asarray(follower.memory.targets)[np.asarray(follower.memory.mask)].tolist())

    def part(begin, end):
        return tagged[0][begin:end], tagged[1][begin:end]

    follower = pb.online.start(STILL, part(0, 20), window_size=50)
    assert held(follower) == list(range(20))
    for begin in (20, 40, 60):
        follower, _ = pb.online.update(follower, part(begin, begin + 20), batch_size=20)
    assert held(follower) == list(range(30, 80))
    # From a posterior the last rows of its data are remembered, the oldest first to go.
    posterior = follower.posterior
    follower = pb.online.start(STILL, part(0, 70), window_size=50, posterior=posterior)
    assert held(follower) == list(range(20, 70))
    assert np.array_equal(follower.posterior.particles.values, posterior.particles.values)
    follower, _ = pb.online.update(follower, part(70, 90), batch_size=20)
    assert held(follower) == list(range(40, 90))


def test_rows_stand_for_all_that_are_in_memory_and_for_no_more():
    algorithm, (x, y) = recorder(8), numbered(8)
    nothing = algorithm.posterior(jnp.zeros(8))
    follower = pb.online.start(algorithm, (x[:4], y[:4]), window_size=16, posterior=nothing)
    follower, info = pb.online.update(follower, (x[4:], y[4:]), num_replays=2, batch_size=2)
    # Eight of sixteen places are filled: four new rows stand for eight, and so do two replayed ones.
    assert info["scale"].tolist() == [2.0, 4.0, 4.0]
    assert info["rows"][0] == 16 + 32 + 64 + 128


def test_errors():
    follower = pb.online.start(STILL, rows(0, 20), window_size=50)
    with pytest.raises(ValueError, match="new_data has 60 rows, but the memory holds 50"):
        pb.online.update(follower, rows(0, 60))
    with pytest.raises(ValueError, match="num_replays must be a whole number"):
        pb.online.update(follower, rows(0, 20), num_replays=-1)
    posterior = follower.posterior
    with pytest.raises(ValueError, match="cannot continue from a posterior"):
        pb.online.start(pb.algorithms.svgd(ORACLE.model), DATA, posterior=posterior)
    with pytest.raises(ValueError, match="use the num_particles and the model of the posterior"):
        pb.online.start(pb.ohsmc(ORACLE.model, num_particles=7), DATA, posterior=posterior)


def test_sizes_share_shapes_and_waste_little():
    sizes = [padded_size(rows) for rows in range(1, 5000)]
    assert all(size >= rows for rows, size in enumerate(sizes, start=1))
    assert all(size <= 1.25 * rows for rows, size in enumerate(sizes, start=1) if rows > 128)
    assert len(set(sizes)) < 30

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
# ψ stays where it is, so that the posterior is known.
STILL = pb.ohsmc(ORACLE.model, num_particles=400, optimizer=optax.set_to_zero())


def rows(begin, end):
    return ORACLE.inputs[begin:end], ORACLE.targets[begin:end]


def off(follower, begin, end):
    """Variance over the exact one given these rows, and squared error of the mean in its variances."""
    exact = ORACLE._replace(inputs=ORACLE.inputs[begin:end], targets=ORACLE.targets[begin:end])
    mean, covariance = map(np.asarray, exact.posterior(follower.posterior.psi))
    values = np.asarray(follower.posterior.particles.values)
    error = values.mean(axis=0) - mean
    spread = np.trace(np.linalg.solve(covariance, np.cov(values.T))) / 3
    return spread, error @ np.linalg.solve(covariance, error) / 3


def test_nothing_is_forgotten_while_the_memory_fills():
    """Without replays every row counts once: the conjugate posterior of the rows seen."""
    follower = pb.online.start(STILL, rows(0, 20), window_size=200, key=1)
    follower, _ = pb.online.update(follower, rows(20, 40), num_replays=0)  # start has replayed some
    for begin in range(40, 200, 20):
        follower, _ = pb.online.update(follower, rows(begin, begin + 20), num_replays=0)
    variance, mean = off(follower, 0, 200)
    assert abs(variance - 1.0) < 0.05
    assert mean < 0.5


def test_particles_stay_near_the_posterior_of_the_rows_in_memory():
    """A memory of 100 rows of 200, fed 20 at a time, the oldest pushed out."""
    follower = pb.online.start(STILL, rows(0, 20), window_size=100, key=1)
    found = []
    for begin in range(20, 200, 20):
        follower, info = pb.online.update(follower, rows(begin, begin + 20), batch_size=20)
        if begin + 20 >= 100:
            found.append(off(follower, begin - 80, begin + 20))
    assert follower.seen == 200
    assert info["loss"].shape == (11,)
    variance, mean = np.mean(found, axis=0)
    assert abs(variance - 1.0) < 0.1
    assert mean < 0.3


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
    # Nothing left the memory, so that new rows displace nothing; replayed ones displace themselves.
    assert info["room"].tolist() == [0.0, 0.25, 0.25]


def test_new_rows_displace_the_share_that_they_push_out():
    algorithm, (x, y) = recorder(8), numbered(8)
    nothing = algorithm.posterior(jnp.zeros(8))
    follower = pb.online.start(algorithm, (x[:4], y[:4]), window_size=6, posterior=nothing)
    _, info = pb.online.update(follower, (x[4:], y[4:]), num_replays=0)
    assert info["room"].tolist() == [0.5]  # two of four


def test_replays_are_slices_of_one_permutation():
    """No row comes twice before all have come once, in an order that changes."""
    algorithm, (x, y) = recorder(8), numbered(8)
    nothing = algorithm.posterior(jnp.zeros(8))
    follower = pb.online.start(algorithm, (x[:4], y[:4]), window_size=16, posterior=nothing)
    follower, info = pb.online.update(follower, (x[4:], y[4:]), num_replays=8, batch_size=2)
    replayed = info["rows"][1:].tolist()
    assert sum(replayed[:4]) == sum(replayed[4:]) == 255
    assert replayed[:4] != [3.0, 12.0, 48.0, 192.0]


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


def test_an_update_that_would_leave_nan_is_refused_and_the_state_kept():
    follower = pb.online.start(STILL, rows(0, 20), window_size=50)
    before = [np.asarray(leaf) for leaf in follower.posterior.particles]
    inputs, targets = rows(20, 40)
    for bad in (targets.at[3].set(1e30), targets.at[0].set(-1e25)):
        with pytest.raises(pb.errors.TrainingDivergedError, match="the update is refused"):
            pb.online.update(follower, (inputs, bad), batch_size=20)
    assert follower.seen == 20
    follower, _ = pb.online.update(follower, (inputs, targets), batch_size=20)
    assert np.isfinite(follower.posterior.particles.values).all()
    assert not np.array_equal(follower.posterior.particles.values, before[0])
    with pytest.raises(pb.errors.TrainingDivergedError, match="new_data"):
        pb.online.start(STILL, (inputs, targets.at[3].set(1e30)), window_size=50)


def test_sizes_share_shapes_and_waste_little():
    sizes = [padded_size(rows) for rows in range(1, 5000)]
    assert all(size >= rows for rows, size in enumerate(sizes, start=1))
    assert all(size <= 1.25 * rows for rows, size in enumerate(sizes, start=1) if rows > 128)
    assert len(set(sizes)) < 30


def test_a_learner_that_is_saved_goes_on_to_the_same_bits(tmp_path):
    algorithm, (x, y) = recorder(8), numbered(8)
    path = tmp_path / "online.safetensors"
    settings = {"num_replays": 3, "batch_size": 2}
    first = pb.online.start(algorithm, (x[:2], y[:2]), window_size=4, key=5)
    pb.online.save(path, first)
    straight, told = pb.online.update(first, (x[2:5], y[2:5]), **settings)
    again = pb.online.restore(path, algorithm, (x[:1], y[:1]), window_size=4)
    resumed, same = pb.online.update(again, (x[2:5], y[2:5]), **settings)
    assert resumed.seen == straight.seen == 5
    np.testing.assert_array_equal(resumed.state, straight.state)
    np.testing.assert_array_equal(same["rows"], told["rows"])
    with pytest.raises(pb.errors.CheckpointError, match="this run needs"):
        pb.online.restore(path, algorithm, (x[:1], y[:1]), window_size=5)

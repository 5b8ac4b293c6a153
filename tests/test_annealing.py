"""Paths of targets: the exponents, the link between neighbors, the length of a stride."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partialbayes as pb
from partialbayes.annealing import (
    as_exponents,
    bridge,
    posterior_family,
    prestage,
    rows_seen,
    stride_by_ess,
)
from partialbayes.feynman_kac._feynman_kac import resample_move, run_path
from partialbayes.model._batch import full_batch
from partialbayes.resampling import stratified
from partialbayes.types import Batch
from partialbayes.weights import effective_sample_size, uniform_log_weights
from tests.oracles import conjugate

ORACLE = conjugate(num_data=7)
PSI = ORACLE.model.init(jax.random.key(0)).psi
BATCH = full_batch(ORACLE.inputs, ORACLE.targets)
PHI = jnp.array([0.3, -1.0, 0.5])

SCHEDULES = {
    "one by one": pb.annealing.blocks(1),
    "fixed": pb.annealing.blocks(3),
    "geometric": pb.annealing.geometric_blocks(first=2, ratio=1.5),
    "tempering": pb.annealing.tempering([0.01, 0.3, 1.0]),
}
every_schedule = pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES.keys())


@every_schedule
@pytest.mark.parametrize("rows", [1, 2, 7])
def test_a_schedule_goes_from_the_prior_to_the_posterior(schedule, rows):
    table = as_exponents(schedule, rows)
    assert (table[0] == 0).all()
    assert (table[-1] == 1).all()
    steps = np.diff(table, axis=0)
    assert (steps >= 0).all()
    assert (steps.sum(axis=1) > 0).all()


def test_block_sizes():
    assert np.diff(pb.annealing.blocks(1)(4).sum(axis=1)).tolist() == [1, 1, 1, 1]
    assert np.diff(pb.annealing.blocks(3)(7).sum(axis=1)).tolist() == [3, 3, 1]
    assert np.diff(pb.annealing.blocks(9)(7).sum(axis=1)).tolist() == [7]
    assert pb.annealing.geometric_blocks()(100).sum(axis=1).tolist() == [0, 1, 2, 4, 8, 16, 32, 64, 100]
    assert pb.annealing.geometric_blocks(ratio=1.1)(4).sum(axis=1).tolist() == [0, 1, 2, 3, 4]


@every_schedule
def test_the_potential_is_the_ratio_of_neighboring_targets(schedule):
    family = posterior_family(ORACLE.model, PSI, BATCH)
    table = jnp.asarray(as_exponents(schedule, 7))
    links = [bridge(family, before, after) for before, after in itertools.pairwise(table)]
    for link, following in itertools.pairwise(links):
        expected = link.log_density(PHI) + link.log_potential(PHI)
        assert jnp.allclose(following.log_density(PHI), expected, rtol=1e-5)
    total = sum(link.log_potential(PHI) for link in links)
    assert jnp.allclose(total, ORACLE.model.log_likelihood(PHI, PSI, BATCH).sum(), rtol=1e-5)
    assert jnp.allclose(links[0].log_density(PHI), ORACLE.model.log_prior(PHI, PSI))


@every_schedule
def test_masked_rows_count_for_nothing(schedule):
    """Padding, whatever it holds, changes neither values nor gradients."""
    padded = Batch(
        jnp.concatenate([ORACLE.inputs, jnp.full((2, 2), 1e3)]),
        jnp.concatenate([ORACLE.targets, jnp.full(2, -1e3)]),
        jnp.arange(9) < 7,
        jnp.ones(()),
    )
    family, wide = (posterior_family(ORACLE.model, PSI, batch) for batch in (BATCH, padded))
    exponents = jnp.asarray(as_exponents(schedule, 7))
    widened = jnp.concatenate([exponents, exponents[:, -1:], exponents[:, -1:]], axis=1)
    for step in range(2):
        plain = bridge(family, exponents[step], exponents[step + 1])
        masked = bridge(wide, widened[step], widened[step + 1])
        for name in ("log_density", "log_potential"):
            value, gradient = jax.jit(jax.value_and_grad(getattr(plain, name)))(PHI)
            other, other_gradient = jax.jit(jax.value_and_grad(getattr(masked, name)))(PHI)
            assert jnp.allclose(value, other, rtol=1e-6, atol=1e-6)
            assert jnp.allclose(gradient, other_gradient, rtol=1e-6, atol=1e-6)
            assert jnp.isfinite(other_gradient).all()


def test_a_row_that_is_out_stays_out_even_where_it_is_impossible():
    def log_likelihood(phi, rows):
        return jnp.where(jnp.arange(rows) == 3, -jnp.inf, phi.sum())

    family = posterior_family(ORACLE.model, PSI, BATCH)._replace(log_likelihood=log_likelihood)
    link = bridge(family, jnp.zeros(7), (jnp.arange(7) < 3).astype(float))
    assert jnp.isfinite(link.log_potential(PHI))
    assert jnp.isfinite(link.log_density(PHI))


def test_staging_changes_nothing():
    family = posterior_family(ORACLE.model, PSI, BATCH)
    assert jnp.allclose(
        prestage(family).log_likelihood(PHI, 7), family.log_likelihood(PHI, 7), rtol=1e-6
    )


def test_masked_rows_that_come_first_count_for_nothing_either():
    """Also where only they are in: their NaN stays out of the gradient."""
    nothing = Batch(
        jnp.concatenate([jnp.full((2, 2), jnp.nan), ORACLE.inputs]),
        jnp.concatenate([jnp.full(2, jnp.nan), ORACLE.targets]),
        jnp.arange(9) >= 2,
        jnp.ones(()),
    )
    family, plain = (posterior_family(ORACLE.model, PSI, batch) for batch in (nothing, BATCH))
    for seen, counted in ((1, 0), (2, 0), (5, 3)):
        link = bridge(family, jnp.ones(seen), jnp.ones(9))
        expected = bridge(plain, jnp.ones(7).at[counted:].set(0.0), jnp.ones(7))
        for name in ("log_density", "log_potential"):
            value, gradient = jax.value_and_grad(getattr(link, name))(PHI)
            right, right_gradient = jax.value_and_grad(getattr(expected, name))(PHI)
            assert jnp.allclose(value, right, rtol=1e-5)
            assert jnp.allclose(gradient, right_gradient, rtol=1e-5, atol=1e-6)


@every_schedule
@pytest.mark.parametrize("rows", [1, 3, 4, 5, 16, 17, 70])
def test_every_row_that_is_in_is_seen(schedule, rows):
    table = as_exponents(schedule, rows)
    seen = rows_seen(table)
    assert (np.diff(seen) >= 0).all()
    assert seen[-1] == rows
    for exponents, count in zip(table, seen, strict=True):
        assert 1 <= count <= rows
        assert not exponents[count:].any()
        assert count <= max(1, 4 * exponents.astype(bool).sum())


def _strange(rows):
    """Nothing comes in at first, and some rows go out again."""
    table = np.zeros((5, rows))
    table[2, : rows // 2], table[3, 0], table[4] = 1.0, 0.5, 1.0
    return table


@pytest.mark.parametrize(
    "schedule",
    [*SCHEDULES.values(), pb.annealing.blocks(100), _strange],
    ids=[*SCHEDULES, "all at once", "strange"],
)
def test_a_path_by_parts_is_the_path_on_all_rows(schedule, monkeypatch):
    batch = full_batch(*(jnp.concatenate([leaf] * 3) for leaf in (ORACLE.inputs, ORACLE.targets)))
    family = posterior_family(ORACLE.model, PSI, batch)
    mutation = resample_move(pb.kernels.random_walk_metropolis(0.05, num_steps=2), stratified)
    asked = set()

    def counted(phi, rows):
        asked.add(rows)
        return family.log_likelihood(phi, rows)

    def run():
        asked.clear()
        observed, table = family._replace(log_likelihood=counted), as_exponents(schedule, 21)
        return jax.jit(lambda key: run_path(key, observed, table, mutation, 50, ()))(jax.random.key(1))

    cloud, record = run()
    by_parts = set(asked)
    monkeypatch.setattr(
        "partialbayes.feynman_kac._feynman_kac.rows_seen", lambda table: np.full(len(table), 21)
    )
    expected_cloud, expected = run()
    assert asked == {21}
    assert by_parts == set(rows_seen(as_exponents(schedule, 21))[1:].tolist())
    assert jnp.allclose(cloud.log_evidence, expected_cloud.log_evidence, rtol=1e-4)
    assert jnp.allclose(cloud.particles.values, expected_cloud.particles.values, atol=1e-4)
    for name in record._fields:
        assert jnp.allclose(getattr(record, name), getattr(expected, name), rtol=1e-3)


def test_a_stride_leaves_the_wanted_ess():
    log_potentials = 30.0 * jax.random.normal(jax.random.key(0), (1000,))
    weights = uniform_log_weights(1000)
    share = stride_by_ess(0.5)(weights, log_potentials)
    ess = effective_sample_size(jax.nn.log_softmax(weights + share * log_potentials))
    assert 0.0 < share < 1.0
    assert jnp.allclose(ess, 500.0, atol=1.0)
    assert stride_by_ess(0.5)(weights, 0.1 * jnp.ones(1000)) == 1.0


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: pb.annealing.blocks(0), "size must be a whole number"),
        (lambda: pb.annealing.geometric_blocks(ratio=1.0), "ratio must be more than 1"),
        (lambda: pb.annealing.geometric_blocks(first=0), "first must be a whole number"),
        (lambda: pb.annealing.tempering([0.5, 0.2, 1.0]), "increase strictly"),
        (lambda: pb.annealing.tempering([0.5, 0.9]), "exactly 1"),
        (lambda: pb.annealing.tempering([]), "list of numbers"),
        (lambda: as_exponents(lambda rows: np.ones((2, rows + 1)), 3), "one column per data point"),
    ],
)
def test_bad_paths_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()

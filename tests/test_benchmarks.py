"""The table of benchmarks: goals judged, results well formed, the naive rival the same method."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from benchmarks.measure import Times, row
from benchmarks.naive import naive_ohsmc
from benchmarks.table import page

import partialbayes as pb
from partialbayes.feynman_kac._gradients import one_pass
from partialbayes.model._batch import full_batch

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results.json"


def test_a_row_is_judged_by_its_goal():
    assert row("step", 8.1, "times", goal=">= 8").met is True
    assert row("step", 7.9, "times", goal=">= 8").met is False
    assert row("memory", 0.3, "times", goal="<= 0.2").met is False
    assert row("scaling", 3.0, "ms").met is None


def test_ratios_are_of_neighboring_repeats():
    times = Times({"slow": np.array([2.0, 30.0, 4.0]), "fast": np.array([1.0, 10.0, 1.0])})
    assert times.ratio("slow", "fast")[0] == 3.0


def test_the_results_are_well_formed_and_the_page_is_of_them():
    results = json.loads(RESULTS.read_text())
    assert results.keys() == {"machine", "versions", "rows"}
    for entry in results["rows"]:
        assert {"name", "value", "unit", "rival", "goal", "met", "spread"} <= entry.keys()
        judged = row(entry["name"], entry["value"], entry["unit"], goal=entry["goal"])
        assert entry["met"] == judged.met
    written = (RESULTS.parents[1] / "docs" / "benchmarks.md").read_text()
    tables = [line for line in page(results["rows"]).splitlines() if line.startswith("|")]
    assert [line for line in written.splitlines() if line.startswith("|")] == tables


def test_the_naive_rival_does_what_ours_does():
    model = pb.partial_bnn(pb.mlp([2, 6, 1]), "layers/0/**", pb.bernoulli())
    inputs = jax.random.normal(jax.random.key(0), (8, 2))
    batch = full_batch(inputs, (inputs[:, 0] > 0).astype(jnp.int32))._replace(scale=jnp.asarray(2.0))
    init, step = naive_ohsmc(model, num_particles=5)
    state = init(jax.random.key(1))
    after = step(jax.random.key(2), state, batch)
    log_likelihoods, gradient = one_pass(model, after.values, state.psi, batch)
    np.testing.assert_allclose(after.log_weights, jax.nn.log_softmax(log_likelihoods), atol=1e-5)
    ascent = gradient(jnp.exp(after.log_weights))
    # Adam's first moment after one step is a tenth of the descent direction.
    for ours, theirs in zip(
        jax.tree.leaves(ascent), jax.tree.leaves(after.optimizer[0].mu), strict=True
    ):
        np.testing.assert_allclose(theirs, -0.1 * ours, atol=1e-5)


@pytest.mark.slow
def test_every_group_runs():
    from benchmarks.table import GROUPS

    for name, group in GROUPS.items():
        assert all(np.isfinite(entry.value) for entry in group(True)), name

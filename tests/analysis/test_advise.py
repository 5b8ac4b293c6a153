"""Which weights should be random: the shared program is each candidate's own, the rule holds."""

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import pytest

import partialbayes as pb
from partialbayes.analysis._advise import MAP, _builder, _score, _split_rows, recommend
from partialbayes.feynman_kac import Evidence
from partialbayes.model._batch import full_batch
from partialbayes.types import Psi
from tests.oracles import conjugate

matplotlib.use("Agg")
UNKNOWN = Evidence(np.nan, np.nan)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 1))
DATA = (X, np.sin(2.0 * X[:, 0]) + 0.1 * RNG.normal(size=40))
NETWORK = pb.mlp([1, 3, 1])


@pytest.fixture(autouse=True)
def _no_key_checks():
    # The checker of key reuse gives a false alarm on a loop under vmap.
    with jax.debug_key_reuse(False):
        yield


@pytest.fixture(scope="module")
def advice():
    with jax.debug_key_reuse(False):
        return pb.advise(
            NETWORK, DATA, candidates={"all": "**"}, top=(2,), epochs=20, num_particles=8, progress=False
        )


def test_table(advice):
    dims = {row.name: row.dim for row in advice.rows}
    single = {"top 2": 2, "uncertain 2": 2}
    new = {"rank one": 8, "low rank": 4, "subspace": 5}
    assert dims == {"layers/0": 6, "layers/1": 4, "biases": 4, "all": 10, MAP: 0} | single | new
    for row in advice.rows:
        assert (row.network is not None) == (row.name in new)
        if row.network is not None:
            assert pb.partial_bnn(row.network, row.subset, pb.gaussian()).split.dim == row.dim
    assert [row.nlpd for row in advice.rows] == sorted(row.nlpd for row in advice.rows)
    assert all(np.isfinite(row.log_evidence) == (row.subset is not None) for row in advice.rows)
    lines = str(advice).splitlines()
    assert sum(line.startswith("|") for line in lines) == 2 + len(advice.rows)
    assert f"**{advice.recommended.name}**" in str(advice)


def test_picture(advice):
    ax = pb.plots.advice(advice)
    assert len(ax.get_yticklabels()) == len(advice.rows)
    assert pb.plots.advice(advice, ax=ax) is ax


def test_the_shared_model_is_each_candidates_own():
    """Log-likelihood and its gradient in ψ, whatever the coordinates that go nowhere."""
    own = pb.partial_bnn(NETWORK, "layers/1/*", pb.gaussian())
    every = pb.partial_bnn(NETWORK, "**", pb.gaussian())
    mask = jnp.asarray(np.concatenate([np.ravel(mask) for mask in own.split.masks]))
    shared = _builder(NETWORK, pb.gaussian(), None, 8, None, None)(mask).model
    batch = full_batch(jnp.asarray(X, float), jnp.asarray(DATA[1], float))
    phi, psi = own.init(jax.random.key(1))
    whole_phi, _ = every.split.flatten(own.split.merge(phi, psi.network))
    elsewhere = jnp.where(mask, whole_phi, 100.0)
    found, gradient = jax.value_and_grad(lambda psi: shared.log_likelihood(elsewhere, psi, batch).sum())(
        shared.init(jax.random.key(1)).psi
    )
    expected, own_gradient = jax.value_and_grad(lambda psi: own.log_likelihood(phi, psi, batch).sum())(
        psi
    )
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    for path, leaf in own_gradient.network.items():
        np.testing.assert_allclose(gradient.network[f"weights/{path}"], leaf, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_evidence_with_coordinates_that_go_nowhere():
    """In closed form, at a ψ that is given."""
    oracle = conjugate()
    trunk = oracle.model.init(jax.random.key(0)).psi.network["trunk"]
    network = pb.types.Network(
        init=lambda key: {"trunk": trunk, "head": jnp.zeros(3)},
        apply=lambda params, x: jnp.tanh(x @ params["trunk"]) @ params["head"],
    )
    build = _builder(network, pb.gaussian(0.25), pb.priors.normal(scale=1.3), 200, None, None)
    mask = jnp.arange(9) < 3  # the head comes first in the alphabet
    state = build(mask).init(jax.random.key(0))
    batch = full_batch(oracle.inputs, oracle.targets)
    posterior = pb.types.Posterior(state.psi, state.particles)
    found = [
        _score(build, 200, jax.random.key(seed), mask, posterior, batch, batch)[1] for seed in range(6)
    ]
    logs = jnp.log(jnp.asarray(0.25)), jnp.log(jnp.asarray(1.3))
    exact = float(oracle.log_evidence(Psi({"trunk": trunk}, *logs)))
    error = np.std(found, ddof=1) / np.sqrt(len(found))
    assert abs(np.mean(found) - exact) < 4.0 * error + 0.05
    assert error < 0.3


def test_held_out_rows_are_not_trained_on():
    x, y = np.ones((10, 1)), np.arange(10.0)
    model = pb.partial_bnn(NETWORK, "**", pb.gaussian())
    (_, train), (_, held_out) = _split_rows(model, (x, y), None, jax.random.key(0))
    assert (len(train), len(held_out)) == (7, 3)
    assert sorted([*train, *held_out]) == y.tolist()


def test_the_error_of_a_gap_is_that_of_the_differences_row_by_row():
    noise = np.array([10.0, -10.0, 30.0, -30.0])
    losses = np.stack([noise + 9.0, noise, noise + np.array([1.0, 2.0, 3.0, 6.0])])
    subset = pb.subsets.biases()
    named = [(MAP, None, 0), ("best", subset, 5), ("other", subset, 1)]
    rows = {row.name: row for row in recommend(named, losses, [UNKNOWN] * 3, [1.0] * 3).rows}
    assert rows["other"].behind == 3.0
    np.testing.assert_allclose(rows["other"].behind_error, np.sqrt((4 + 1 + 0 + 9) / 3 / 4))
    assert (rows["best"].behind, rows["best"].behind_error) == (0.0, 0.0)


def test_the_rule():
    """Differences row by row: the candidate with few weights is noisy alone, but never far behind."""
    noise = 5.0 * RNG.normal(size=50)
    small = RNG.normal(size=50)
    losses = np.stack([noise + 9.0, noise, noise + 0.05 * small, noise + 1.0 + 0.01 * small])
    losses[2] += 0.001 - np.mean(0.05 * small)
    subset = pb.subsets.biases()
    named = [(MAP, None, 0), ("many", subset, 50), ("few", subset, 5), ("fewest", subset, 1)]
    found = recommend(
        named, losses, [UNKNOWN, *(Evidence(-float(n), 0.25) for n in (1, 2, 3))], [1.0] * 4
    )
    assert found.recommended.name == "few"
    assert [row.name for row in found.rows] == ["many", "few", "fewest", MAP]
    assert "MAP, with no random weight" not in str(found)
    assert "| -2.0 ± 0.2 |" in str(found)  # the evidence, never without its error
    losses[0] = losses[1]
    assert "MAP, with no random weight" in str(recommend(named, losses, [UNKNOWN] * 4, [1.0] * 4))
    losses[2] = np.nan  # a run that diverged
    assert recommend(named, losses, [UNKNOWN] * 4, [1.0] * 4).recommended.name == "many"
    with pytest.raises(RuntimeError, match="no candidate gave a finite NLPD"):
        recommend(named, np.full_like(losses, np.nan), [UNKNOWN] * 4, [1.0] * 4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"prior": pb.priors.normal(scale=pb.learned(1.0))}, "prior has learned scales"),
        ({"data": (X[:3], X[:3, 0])}, "data has only 3 rows"),
        ({"top": (0,)}, "every entry of top must be"),
        ({"candidates": {"mine": "nothing/here"}}, r"candidates\['mine'\]: .*nothing/here"),
        ({"num_particles": 0}, "num_particles must be"),
        ({"beside": ["rank two"]}, "beside must name some of 'rank one'"),
        ({"validation": (X, X[:5])}, "validation has 40 rows"),
    ],
)
def test_errors(arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        pb.advise(**{"network": NETWORK, "data": DATA, "epochs": 1} | arguments)

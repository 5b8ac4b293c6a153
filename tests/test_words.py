"""What a person reads at a prompt: short reprs, small tables, and the name of what is wrong."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import partialbayes as pb

X = np.linspace(-1.0, 1.0, 12)[:, None]
Y = np.sin(3.0 * X[:, 0])
MODEL = pb.partial_bnn(pb.mlp([1, 4, 1]), "layers/0/*", pb.gaussian(pb.learned(0.5)))
ALGORITHM = pb.ohsmc(MODEL, num_particles=10, kernel=pb.kernels.random_walk(0.01))


@pytest.fixture(scope="module")
def trained():
    return pb.fit(ALGORITHM, (X, Y), epochs=3, validation=(X, Y))


def test_reprs_are_short(trained):
    assert repr(MODEL) == "Model(8 of 13 weights random, real targets with Gaussian noise)"
    assert repr(trained.posterior) == "Posterior(10 particles of 8 random weights, 5 others)"
    assert repr(ALGORITHM).startswith("Algorithm(ohsmc, Model(8 of 13")
    assert repr(pb.mlp([1, 2])) == "Network(networks.mlp)"
    assert repr(pb.gaussian()) == "Likelihood(likelihoods.gaussian, real targets with Gaussian noise)"
    assert repr(pb.kernels.random_walk(0.1)) == "Kernel(random_walk)"
    assert len(repr(trained).splitlines()) == 2
    assert "best validation NLPD" in repr(trained)
    online = pb.online.start(ALGORITHM, (X, Y), window_size=9, posterior=trained)
    assert repr(online).startswith("OnlineState(12 rows seen, the last 9 remembered,\n")
    for one in (MODEL, trained, trained.posterior, ALGORITHM, MODEL.prior, trained.history, online):
        assert len(repr(one)) < 300
        assert "<function" not in repr(one)


def test_notebooks_show_small_tables(trained):
    for one, words in (
        (MODEL, "layers/0/bias, layers/0/kernel"),
        (trained, "best validation NLPD"),
        (trained.posterior, "effective sample size"),
        (pb.predict(MODEL, trained, X), "<th>mean</th><th>std</th>"),
    ):
        shown = one._repr_html_()
        assert words in shown
        assert shown.count("<table>") == shown.count("</table>") == 1
        assert len(shown) < 2000


def test_what_takes_a_posterior_takes_a_fit(trained, tmp_path):
    for path, given in (("fit", trained), ("posterior", trained.posterior)):
        pb.save(tmp_path / path, MODEL, given)
        pb.export(tmp_path / f"{path}.hlo", MODEL, given, X)
    saved = pb.load(tmp_path / "fit")
    assert repr(saved.posterior) == repr(trained.posterior)
    assert saved.history.best_step == trained.history.best_step
    assert pb.load(tmp_path / "posterior").history is None
    assert (tmp_path / "fit.hlo").read_bytes() == (tmp_path / "posterior.hlo").read_bytes()
    sampler = pb.samplers.laplace(num_particles=4)
    found, _ = pb.training.second_stage(sampler, MODEL, trained, (X, Y))
    assert found.num_particles == 4
    assert pb.refine(MODEL, trained, (X, Y), num_particles=20).posterior.num_particles == 20


def test_predict_takes_a_fit(trained):
    mean = pb.predict(MODEL, trained, X).mean
    np.testing.assert_array_equal(mean, pb.predict(MODEL, trained.posterior, X).mean)
    density = pb.prediction.log_predictive_density
    np.testing.assert_array_equal(
        density(MODEL, trained, (X, Y)), density(MODEL, trained.posterior, (X, Y))
    )


WRONG = """
import jax, jax.numpy as jnp, numpy as np, partialbayes as pb
x = np.linspace(-1.0, 1.0, 12)[:, None]
model = pb.partial_bnn(pb.mlp([1, 4, 1]), "layers/0/*", pb.gaussian())
algorithm = pb.ohsmc(model, num_particles=4)
posterior = algorithm.posterior(algorithm.init(jax.random.key(0)))
bare = pb.types.Kernel(lambda key, particles, target, state: particles.values)
silent = algorithm._replace(step=lambda key, state, batch: (state, {"ess": jnp.ones(())}))
quiet = {"epochs": 1}
for wrong in (
    lambda: pb.predict(model, 3, x),
    lambda: pb.predict(posterior, model, x),
    lambda: pb.ohsmc(model, kernel="rw"),
    lambda: pb.algorithms.smc(model, kernel="rw"),
    lambda: pb.fit_many(algorithm, (x, x), repeats=3, key=[0, 1, 2], **quiet),
    lambda: pb.fit(pb.ohsmc(model, num_particles=4, kernel=bare), (x, x), **quiet),
    lambda: pb.fit(silent, (x, x), **quiet),
    lambda: pb.predict(model, posterior, x).interval([0.5, 0.9]),
):
    try:
        wrong()
    except (TypeError, ValueError) as error:
        print(error)
"""
SENTENCES = [
    "posterior must be a Posterior, not 3; pass what fit returned.",
    "model must be a Model, not Posterior(4 particles of 8 random weights, 5 others)",
    "kernel must be a Kernel, not 'rw'; for example kernels.random_walk(0.01).",
    "kernel must be a Kernel, not 'rw'; for example kernels.random_walk_metropolis(0.01).",
    "key must be a jax.random.key or a whole number, not [0, 1, 2]; several keys are an array",
    "what the kernel's step returns must be a Moved, not",
    "the algorithm's step must report 'loss', its objective per row, but reports ['ess'].",
    "coverage must be one number, not [0.5, 0.9]; call it once for each, or use quantile",
]


def test_wrong_kinds_are_refused_where_they_are_made():
    """In a process of its own, where types are not checked before."""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1] / "src")}
    shown = subprocess.run(
        [sys.executable, "-c", WRONG], env=environment, capture_output=True, text=True
    )
    assert shown.returncode == 0, shown.stderr
    lines = shown.stdout.splitlines()
    assert len(lines) == len(SENTENCES)
    for line, sentence in zip(lines, SENTENCES, strict=True):
        assert line.startswith(sentence)
        assert len(line) < 300


@pytest.mark.parametrize(
    ("labels", "likelihood", "outputs", "remedy"),
    [
        ([1, 2, 3], pb.categorical(), 3, "these are counted from 1: pass targets - 1"),
        ([1, 2, 1], pb.bernoulli(), 1, "these are counted from 1: pass targets - 1"),
        ([-1, 1, 1], pb.bernoulli(), 1, r"these are -1 and 1: pass \(targets \+ 1\) // 2"),
        ([0, 3, 1], pb.categorical(), 3, "give the network one output per class"),
    ],
)
def test_labels_that_do_not_start_at_zero(labels, likelihood, outputs, remedy):
    model = pb.partial_bnn(pb.mlp([1, outputs]), "layers/0/*", likelihood)
    with pytest.raises(ValueError, match=remedy):
        pb.fit(pb.map_estimate(model), (X[:3], np.asarray(labels)), epochs=1)


@pytest.mark.parametrize(
    "build", [pb.ohsmc, pb.map_estimate, pb.algorithms.mean_field_vb, pb.algorithms.svgd]
)
def test_freezing_written_for_one_algorithm_works_for_all(build):
    """By labels that stand for whole branches of the one tree that every optimizer sees."""
    frozen = {"layers/1/kernel": "still", "layers/1/bias": "moves"}
    psi = pb.types.Psi(network=frozen, likelihood="moves", prior="moves")
    labels = pb.types.Params(phi="moves", psi=psi)
    rules = {"moves": optax.adam(0.1), "still": optax.set_to_zero()}
    algorithm = build(MODEL, optimizer=optax.multi_transform(rules, labels))
    batch = pb.types.Batch(jnp.asarray(X), jnp.asarray(Y), jnp.ones(12, bool), jnp.ones(()))
    before = algorithm.init(jax.random.key(0))
    after, _ = jax.jit(algorithm.step)(jax.random.key(1), before, batch)
    old, new = (algorithm.posterior(state).psi.network for state in (before, after))
    np.testing.assert_array_equal(old["layers/1/kernel"], new["layers/1/kernel"])
    assert np.abs(old["layers/1/bias"] - new["layers/1/bias"]).max() > 1e-3


def test_bands_of_one_of_several_targets(trained):
    import matplotlib as mpl

    mpl.use("Agg")
    model = pb.partial_bnn(pb.mlp([1, 2]), "layers/0/*", pb.gaussian())
    psi = model.init(jax.random.key(0)).psi
    particles = pb.types.Particles(
        model.sample_prior(jax.random.key(1), psi, 5), jnp.full(5, -jnp.log(5.0))
    )
    predictive = pb.predict(model, pb.types.Posterior(psi, particles), X)
    ax = pb.plots.predictive_bands(predictive, (X, np.stack([Y, Y + 9.0], axis=1)), output=1)
    mean, data = ax.lines
    np.testing.assert_allclose(mean.get_ydata(), predictive.mean[:, 1])
    np.testing.assert_allclose(data.get_ydata(), Y + 9.0)
    with pytest.raises(ValueError, match="output must be one of 0 to 1, not None"):
        pb.plots.predictive_bands(predictive)

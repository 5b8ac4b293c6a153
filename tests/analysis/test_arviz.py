"""What ArviZ gets: resampled draws by path, their weights, log-likelihoods; both of its interfaces."""

import sys
import types
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partialbayes as pb

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    arviz = pytest.importorskip("arviz")

X = np.linspace(-1, 1, 12)[:, None]
Y = np.sin(X[:, 0])
MODEL = pb.partial_bnn(pb.mlp([1, 3, 1]), pb.subsets.layer(0), pb.gaussian(pb.sampled(0.5)))
PSI = MODEL.init(jax.random.key(0)).psi
VALUES = MODEL.sample_prior(jax.random.key(1), PSI, 40)
WEIGHTS = np.arange(40.0) / np.arange(40).sum()  # the first counts for nothing
with np.errstate(divide="ignore"):
    CLOUD = pb.types.Posterior(PSI, pb.types.Particles(VALUES, jnp.asarray(np.log(WEIGHTS), float)))


def test_draws_are_the_particles_by_weight():
    data = pb.to_arviz(MODEL, CLOUD, (X, Y), num_draws=4000)
    assert set(data.posterior.data_vars) == {"layers.0.bias", "layers.0.kernel", "likelihood.variance"}
    assert data.posterior["layers.0.kernel"].shape == (1, 4000, 1, 3)
    particle = data.sample_stats["particle"].values[0]
    shares = np.bincount(particle, minlength=40) / 4000
    np.testing.assert_allclose(shares, WEIGHTS, atol=6e-4)  # stratified: within two draws
    np.testing.assert_allclose(data.sample_stats["weight"].values[0], WEIGHTS[particle], rtol=1e-4)
    batch = pb.types.Batch(
        jnp.asarray(X, float), jnp.asarray(Y, float), jnp.ones(12, bool), jnp.ones(())
    )
    expected = jax.vmap(lambda phi: MODEL.log_likelihood(phi, PSI, batch))(VALUES)
    ours = data.log_likelihood["y"].values[0]
    np.testing.assert_allclose(ours, expected[particle], rtol=1e-4, atol=1e-4)
    phi = np.asarray(VALUES)[particle]
    merged = MODEL.split.merge(jnp.asarray(phi[7]), PSI.network)
    kernel = data.posterior["layers.0.kernel"].values[0, 7]
    np.testing.assert_allclose(kernel, merged["layers"][0]["kernel"], rtol=1e-6)
    assert data.posterior_predictive["y"].shape == (1, 4000, 12)
    assert data.observed_data["y"].shape == (12,)


def test_the_particles_of_an_ensemble_keep_their_member_and_chunks_change_nothing():
    stacked = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf + 1.0]), (PSI, VALUES))
    log_weights = jnp.full((2, 40), -jnp.log(80.0))
    ensemble = pb.types.Posterior(stacked[0], pb.types.Particles(stacked[1], log_weights))
    data = pb.to_arviz(MODEL, ensemble, (X, Y))
    assert data.posterior["layers.0.bias"].shape == (1, 80, 3)
    particle, member = (data.sample_stats[name].values[0] for name in ("particle", "member"))
    assert sorted(zip(member, particle, strict=True)) == [(m, p) for m in range(2) for p in range(40)]
    expected = np.asarray(VALUES)[particle, 0] + member
    np.testing.assert_allclose(data.posterior["layers.0.bias"].values[0, :, 0], expected, rtol=1e-5)
    chunked = pb.to_arviz(MODEL, ensemble, (X, Y), chunks=pb.types.Chunks(particles=7))
    for group in ("log_likelihood", "posterior_predictive"):
        np.testing.assert_allclose(data[group]["y"], chunked[group]["y"], rtol=1e-4, atol=1e-5)


def test_chains_stay_chains_and_particles_are_none():
    number = jnp.zeros(2)
    none = jnp.zeros((), int)
    report = pb.results.ChainReport(number, number, number, none, number, none + 4)  # of two chains
    history = pb.results.History({"loss": np.ones(3)}, np.zeros(0, int), np.zeros(0), 3)
    equal = CLOUD._replace(particles=CLOUD.particles._replace(log_weights=jnp.full(40, -jnp.log(40.0))))
    trained = pb.results.Fit(equal, history, {}, (report,))
    chains = pb.to_arviz(MODEL, trained).posterior["layers.0.bias"].values
    assert chains.shape == (2, 20, 3)
    np.testing.assert_array_equal(chains.reshape(40, 3), np.asarray(VALUES)[:, :3])
    drawn = pb.to_arviz(MODEL, CLOUD, num_draws=400).sample_stats["particle"].values[0]
    assert np.mean(np.diff(drawn) == 0) < 0.2  # copies do not stand side by side


def test_arviz_can_use_it():
    import matplotlib

    matplotlib.use("Agg")
    data = pb.to_arviz(MODEL, CLOUD, (X, Y))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert np.isfinite(arviz.loo(data).elpd_loo)
        arviz.plot_posterior(data, var_names=["likelihood.variance"])
        arviz.plot_ppc(data, num_pp_samples=5)
        assert len(arviz.summary(data)) == 7
    matplotlib.pyplot.close("all")


def test_the_interface_of_version_one(monkeypatch):
    seen = {}
    future = types.ModuleType("arviz")
    future.__version__ = "1.0.0"
    future.from_dict = lambda groups: seen.update(groups)
    monkeypatch.setitem(sys.modules, "arviz", future)
    pb.to_arviz(MODEL, CLOUD)
    assert set(seen) == {"posterior", "sample_stats"}


def test_bad_number_of_draws():
    with pytest.raises(ValueError, match="num_draws must be a whole number"):
        pb.to_arviz(MODEL, CLOUD, num_draws=0)

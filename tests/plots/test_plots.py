"""Every picture is drawn, on the axes given or on new ones, and shows what it says."""

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import pytest

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import partialbayes as pb

STEPS = {name: np.linspace(1.0, 2.0, 300) for name in ("loss", "ess", "ancestors")}
STEPS["acceptance"] = np.full(300, 0.4)
HISTORY = pb.results.History(STEPS, np.arange(20, 301, 20), np.linspace(3.0, 1.0, 15), 300)
VALUES = jax.random.normal(jax.random.key(0), (60, 5))
LOG_WEIGHTS = jax.nn.log_softmax(jax.random.normal(jax.random.key(1), (60,)))
PARTICLES = pb.types.Particles(VALUES, LOG_WEIGHTS)
X = np.linspace(-1, 1, 20)[:, None]


def cloud(sizes, likelihood):
    model = pb.partial_bnn(pb.mlp(sizes), pb.subsets.layer(0), likelihood)
    psi = model.init(jax.random.key(0)).psi
    values = model.sample_prior(jax.random.key(1), psi, 5)
    return model, pb.types.Posterior(psi, pb.types.Particles(values, jnp.full(5, -jnp.log(5.0))))


MODEL, POSTERIOR = cloud([1, 3, 1], pb.gaussian(0.1))
PREDICTIVE = pb.predict(MODEL, POSTERIOR, X)


@pytest.fixture(autouse=True)
def _close():
    yield
    pyplot.close("all")


SINGLE = {
    "trace": lambda ax: pb.plots.trace(HISTORY, "loss", ax=ax),
    "validation": lambda ax: pb.plots.validation(HISTORY, ax=ax),
    "ancestry": lambda ax: pb.plots.ancestry(HISTORY, ax=ax),
    "marginals": lambda ax: pb.plots.marginals(PARTICLES, ax=ax),
    "pairs": lambda ax: pb.plots.pairs(PARTICLES, dims=(0, 3), ax=ax),
    "bands": lambda ax: pb.plots.predictive_bands(PREDICTIVE, (X, X), ax=ax),
    "observed": lambda ax: pb.plots.predicted_against_observed(PREDICTIVE, X, ax=ax),
    "coverage": lambda ax: pb.plots.coverage(PREDICTIVE, X, ax=ax),
    "pit": lambda ax: pb.plots.pit(PREDICTIVE, X, ax=ax),
    "reliability": lambda ax: pb.plots.reliability(
        np.linspace(0, 1, 20), (X[:, 0] > 0).astype(int), ax=ax
    ),
}


@pytest.mark.parametrize("name", SINGLE)
def test_on_the_axes_given_or_new_ones(name):
    given = Figure().subplots()
    assert SINGLE[name](given) is given
    assert given.has_data()
    assert isinstance(SINGLE[name](None), Axes)


def test_curves_of_what_was_recorded():
    titles = [ax.get_title() for ax in pb.plots.training(HISTORY)]
    assert titles[0] == "Loss per example"
    assert titles[-1] == "Validation NLPD"
    assert len(titles) == 4
    rejects_nothing = HISTORY._replace(metrics=STEPS | {"acceptance": np.ones(300)})
    assert len(pb.plots.training(rejects_nothing)) == 3
    with pytest.raises(ValueError, match="recorded only acceptance, ancestors, ess, loss"):
        pb.plots.trace(HISTORY, "temperature")
    with pytest.raises(ValueError, match="ax holds 1 axes; this picture needs 4"):
        pb.plots.training(HISTORY, ax=Figure().subplots())


def test_pairs_of_several_and_bad_coordinates():
    assert pb.plots.pairs(PARTICLES, dims=(0, 1, 2)).shape == (3, 3)
    with pytest.raises(ValueError, match="coordinates 0 to 4"):
        pb.plots.marginals(PARTICLES, dims=[5])
    with pytest.raises(ValueError, match="names holds 1"):
        pb.plots.pairs(PARTICLES, dims=(0, 1), names=["a"])


def test_weights_are_shown():
    """A coordinate's dot is at its weighted mean; a particle of weight zero is nowhere."""
    values = jnp.asarray([[0.0], [1.0], [100.0]])
    with np.errstate(divide="ignore"):
        particles = pb.types.Particles(values, jnp.log(jnp.asarray([0.25, 0.75, 0.0])))
    ax = pb.plots.marginals(particles)
    dot = next(line for line in ax.lines if line.get_marker() == "o")
    assert np.isclose(dot.get_xdata()[0], 0.75)
    assert ax.get_xlim()[1] < 50


@pytest.mark.parametrize("classes", [2, 3])
def test_decision_boundaries(classes):
    likelihood = pb.bernoulli() if classes == 2 else pb.categorical()
    model, posterior = cloud([2, 3, 1 if classes == 2 else 3], likelihood)
    points = np.asarray(jax.random.normal(jax.random.key(2), (20, 2)))
    labels = np.arange(20) % classes
    ax = pb.plots.decision_boundary(model, posterior, (points, labels), resolution=12, samples=3)
    assert [text.get_text() for text in ax.get_legend().texts] == [f"class {c}" for c in range(classes)]
    with pytest.raises(ValueError, match="limits are needed"):
        pb.plots.decision_boundary(model, posterior)


def test_flow_at_exact_steps():
    seen = pb.callbacks.Snapshots(every=3)
    algorithm = pb.ohsmc(MODEL, num_particles=6, kernel=pb.kernels.random_walk(0.01))
    trained = pb.fit(algorithm, (X, X), epochs=12, run=pb.Run(callbacks=[seen]))
    assert seen.steps == [3, 6, 9, 12]
    clouds = [posterior.particles.values for posterior in seen.posteriors]
    assert np.array_equal(clouds[-1], trained.posterior.particles.values)
    assert not np.array_equal(clouds[0], clouds[-1])  # a copy, not a buffer the loop goes on in
    places = pb.plots.flow(seen, panels=3)
    assert [place.get_title() for place in places] == ["step 3", "step 9", "step 12"]
    with pytest.raises(ValueError, match="snapshots holds none"):
        pb.plots.flow(pb.callbacks.Snapshots(every=3))


def test_bands_need_one_column():
    model, posterior = cloud([2, 3, 1], pb.gaussian(0.1))
    with pytest.raises(ValueError, match="predicted_against_observed"):
        pb.plots.predictive_bands(pb.predict(model, posterior, np.ones((4, 2))))

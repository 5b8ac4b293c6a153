"""Priors against scipy; their samples and moments; scales per weight, layer and fan-in."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import partialbayes as pb
from partialbayes.model._batch import full_batch

PARAMS = pb.mlp([4, 3, 2]).init(jax.random.key(0))
SPLIT = pb.model.split_weights(
    PARAMS, "**"
)  # layers/0/bias 3, layers/0/kernel 12, layers/1/bias 2, …/kernel 6
DIM = SPLIT.dim
PHI = np.random.default_rng(0).normal(size=DIM)

PRIORS = {
    "normal": (pb.priors.normal(0.5, 2.0), scipy.stats.norm(0.5, 2.0)),
    "learned": (pb.priors.normal(scale=pb.learned(0.7)), scipy.stats.norm(0.0, 0.7)),
    "laplace": (pb.priors.laplace(0.1, pb.learned(0.4)), scipy.stats.laplace(0.1, 0.4)),
    "student": (pb.priors.student_t(6.0, 0.2, 0.5), scipy.stats.t(6.0, 0.2, 0.5)),
    "custom": (
        pb.priors.custom(
            lambda phi: jax.scipy.stats.logistic.logpdf(phi).sum(),
            lambda key, num: jax.random.logistic(key, (num, DIM)),
        ),
        scipy.stats.logistic(),
    ),
}


@pytest.mark.parametrize(("builder", "law"), PRIORS.values(), ids=PRIORS.keys())
def test_prior_is_scipys(builder, law):
    prior = builder(SPLIT)
    learned = prior.init()
    found = prior.log_density(jnp.asarray(PHI, float), learned)
    np.testing.assert_allclose(found, law.logpdf(PHI).sum(), rtol=1e-5)
    draws = np.asarray(prior.sample(jax.random.key(1), learned, 400))
    assert draws.shape == (400, DIM)
    assert scipy.stats.kstest(draws.ravel(), law.cdf).pvalue > 1e-4
    moments = prior.moments(learned)
    rough = builder is PRIORS["custom"][0]  # estimated from draws
    np.testing.assert_allclose(moments.mean, law.mean(), atol=0.15 if rough else 1e-6)
    np.testing.assert_allclose(moments.variance, law.var(), rtol=0.15 if rough else 1e-5)
    assert prior.normal == (law.dist.name == "norm")


def test_inverse_gamma_is_the_law_of_the_logarithm():
    prior = pb.priors.inverse_gamma(3.0, 2.0)(SPLIT)
    law = scipy.stats.invgamma(3.0, scale=2.0)
    expected = (law.logpdf(np.exp(PHI)) + PHI).sum()
    np.testing.assert_allclose(prior.log_density(jnp.asarray(PHI, float), ()), expected, rtol=1e-5)
    draws = np.asarray(prior.sample(jax.random.key(1), (), 400), float)
    assert scipy.stats.kstest(np.exp(draws.ravel()), law.cdf).pvalue > 1e-4
    moments = prior.moments(())
    np.testing.assert_allclose(moments.mean[0], np.log(2.0) - scipy.special.digamma(3.0), rtol=1e-5)
    np.testing.assert_allclose(moments.variance[0], scipy.special.polygamma(1, 3.0), rtol=1e-4)
    assert np.isinf(pb.priors.student_t(2.0)(SPLIT).moments(()).variance).all()


def spread(scale, split=SPLIT):
    """The standard deviation of each leaf's weights, by path."""
    prior = pb.priors.normal(scale=scale)(split)
    deviation = np.sqrt(prior.moments(prior.init()).variance)
    sizes = [int(mask.sum()) for mask in split.masks]
    pieces = np.split(deviation, np.cumsum(sizes)[:-1])
    assert all(len(set(piece.tolist())) <= 1 for piece in pieces)
    pairs = zip(split.leaves, pieces, strict=True)
    return {leaf.path: round(float(piece[0]), 4) for leaf, piece in pairs if len(piece)}


def test_scale_per_weight():
    prior = pb.priors.normal(scale=np.arange(1.0, DIM + 1))(SPLIT)
    np.testing.assert_allclose(np.sqrt(prior.moments(()).variance), np.arange(1.0, DIM + 1), rtol=1e-6)


def test_scale_per_layer():
    first = {"layers/0/bias": 0.5, "layers/0/kernel": 0.5}
    second = {"layers/1/bias": 2.0, "layers/1/kernel": 2.0}
    assert spread({"layers/0/**": 0.5, "layers/1/**": 2.0}) == first | second
    assert spread({"layers/0/**": 0.5, "**": 2.0}) == first | second
    assert spread(pb.priors.per_layer([0.5, 2.0])) == first | second
    assert spread(pb.priors.per_layer(pb.learned([0.5, 2.0]))) == first | second
    # A path by itself decides over a glob.
    assert spread({"**": 2.0, "layers/0/*": 0.5, "layers/0/bias": 3.0})["layers/0/bias"] == 3.0
    learned = pb.priors.normal(scale=pb.priors.per_layer(pb.learned(1.5)))(SPLIT).init()
    assert sorted(learned) == ["layers/0", "layers/1"]


def test_scale_by_fan_in():
    expected = {"layers/0/bias": 3.0, "layers/0/kernel": 1.5, "layers/1/bias": 3.0}
    expected["layers/1/kernel"] = round(3.0 / np.sqrt(3.0), 4)
    assert spread(pb.priors.fan_in(3.0)) == expected
    assert spread(pb.priors.fan_in(pb.learned(3.0))) == expected
    assert spread(pb.priors.fan_in(pb.priors.per_layer([3.0, 3.0]))) == expected
    # Equinox has the outputs first, and convolutions have windows.
    kernels = {"dense": jnp.ones((3, 4)), "conv": jnp.ones((5, 2, 2, 3))}
    found = spread(pb.priors.fan_in(), pb.model.split_weights(kernels, "**", output_axis=0))
    assert found == {"conv": round(1 / np.sqrt(12), 4), "dense": 0.5}


def test_learned_scale_has_the_gradient_of_the_closed_form():
    """d log N(φ; 0, s²) / d log s = Σ (φ² / s² − 1), by layer."""
    prior = pb.priors.normal(scale=pb.priors.per_layer(pb.learned(0.8)))(SPLIT)
    gradient = jax.grad(lambda learned: prior.log_density(jnp.asarray(PHI, float), learned))(
        prior.init()
    )
    for name, part in (("layers/0", PHI[:15]), ("layers/1", PHI[15:])):
        np.testing.assert_allclose(gradient[name], np.sum(part**2 / 0.64 - 1.0), rtol=1e-5)


def test_joint_prior_of_weights_and_noise():
    prior = pb.priors.normal(scale=pb.learned(0.5))
    noise = pb.gaussian(pb.sampled(np.array([0.3, 0.4]), prior=pb.priors.normal(-1.0, 0.2)))
    model = pb.partial_bnn(pb.mlp([4, 3, 2]), pb.subsets.layer(-1), noise, prior)
    phi, psi = model.init(jax.random.key(0))
    assert phi.shape == (10,)
    law = scipy.stats.norm(np.r_[np.zeros(8), -1.0, -1.0], np.r_[np.full(8, 0.5), 0.2, 0.2])
    np.testing.assert_allclose(model.log_prior(phi, psi), law.logpdf(phi).sum(), rtol=1e-5)
    np.testing.assert_allclose(model.prior_moments(psi).mean, law.mean(), atol=1e-6)
    np.testing.assert_allclose(model.prior_moments(psi).variance, law.var(), rtol=1e-5)
    draws = model.sample_prior(jax.random.key(1), psi, 2000)
    z = (np.asarray(draws).mean(0) - law.mean()) / (law.std() / np.sqrt(2000))
    assert (np.abs(z) < 4.5).all()
    assert model.prior.normal


def test_sampled_variance_has_the_conjugate_posterior():
    """Inverse-gamma prior, known mean: π(log v) p(y | v) ∝ IG(a + n/2, b + Σ r²/2) of v, times v."""
    noise = pb.gaussian(pb.sampled(1.0, prior=pb.priors.inverse_gamma(3.0, 2.0)))
    network = pb.from_params({"w": jnp.array([0.5])}, lambda params, x: x @ params["w"])
    model = pb.partial_bnn(network, "w", noise)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(12, 1)), rng.normal(size=12)
    law = scipy.stats.invgamma(3.0 + 6.0, scale=2.0 + 0.5 * np.sum((y - 0.5 * x[:, 0]) ** 2))
    psi = model.init(jax.random.key(0)).psi
    batch = full_batch(*(jnp.asarray(part, float) for part in (x, y)))
    logarithms = jnp.linspace(-2.0, 2.0, 9)

    def log_joint(logarithm):
        phi = jnp.stack([jnp.asarray(0.5), logarithm])
        return model.log_prior(phi, psi) + model.log_likelihood(phi, psi, batch).sum()

    gap = jax.vmap(log_joint)(logarithms) - (law.logpdf(np.exp(logarithms)) + logarithms)
    np.testing.assert_allclose(gap, gap[0], rtol=1e-5)


def test_centered_on_weights():
    prior = pb.priors.centered_on(PARAMS, {"**/bias": 0.1, "**/kernel": 0.2})(SPLIT)
    np.testing.assert_array_equal(prior.moments(prior.init()).mean, SPLIT.flatten(PARAMS)[0])
    with pytest.raises(ValueError, match="do not look like the network's"):
        pb.priors.centered_on({"w": jnp.ones(2)})(SPLIT)


@pytest.mark.parametrize(
    ("scale", "message"),
    [
        (
            {"layers/0/**": 1.0, "**/bias": 0.1},
            r"\(1.0\) and '\*\*/bias' \(0.1\) both match",
        ),
        ({"layers/0/**": 1.0}, "no pattern matches the stochastic weight 'layers/1/bias'"),
        ({"layer/0/**": 1.0, "**": 1.0}, "scale: the pattern 'layer/0/.*' matches no weight"),
        (np.ones(4), r"has shape \(4,\); give one number, or one for each of the 23"),
        (pb.priors.per_layer([1.0]), r"per_layer was given shape \(1,\), but 2 layers"),
    ],
)
def test_scales_that_do_not_fit(scale, message):
    with pytest.raises(ValueError, match=message):
        pb.priors.normal(scale=scale)(SPLIT)


def test_errors_when_built():
    for scale in (0.0, {"**": -1.0}, pb.priors.fan_in(0.0)):
        with pytest.raises(ValueError, match="scale must be positive and finite"):
            pb.priors.laplace(scale=scale)
    with pytest.raises(ValueError, match=r"sampled\(\) is for parameters of a likelihood"):
        pb.priors.normal(scale=pb.priors.per_layer(pb.sampled(1.0)))
    with pytest.raises(ValueError, match="degrees_of_freedom must be positive"):
        pb.priors.student_t(degrees_of_freedom=0.0)
    with pytest.raises(ValueError, match=r"mean of the prior has shape \(3,\)"):
        pb.priors.normal(mean=np.ones(3))(SPLIT)
    with pytest.raises(ValueError, match=r"sample of the custom prior gives shape \(2, 3\)"):
        pb.priors.custom(lambda phi: phi.sum(), lambda key, num: jnp.ones((num, 3)))(SPLIT)

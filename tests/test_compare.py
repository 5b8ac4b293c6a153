"""Every method on the same small problem, through the same `fit` and `predict`, by changing one word."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partialbayes as pb

METHODS: dict[str, Callable[[pb.Model], pb.Algorithm]] = {
    "ohsmc": lambda model: pb.ohsmc(model, num_particles=100),
    "map": lambda model: pb.map_estimate(model),
    "swag": lambda model: pb.swag(model, warm_up=60, rank=5, num_samples=20),
    "swag, psi too": lambda model: pb.swag(model, warm_up=60, rank=5, num_samples=20, sample_psi=True),
    "deep ensemble": lambda model: pb.ensemble(pb.map_estimate(model), 3),
    "particle gradient descent": lambda model: pb.particle_gradient_descent(model, num_particles=20),
    "sgld": lambda model: pb.sgld(model, burn_in=60, num_samples=20),
    "svgd": lambda model: pb.svgd(model, num_particles=20),
}


def moons(seed: int, num: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Two noisy half circles."""
    rng = np.random.default_rng(seed)
    labels = np.arange(num) % 2
    angle = np.pi * rng.uniform(size=num)
    upper = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    lower = np.stack([1.0 - np.cos(angle), 0.5 - np.sin(angle)], axis=1)
    return np.where(labels[:, None] == 0, upper, lower) + 0.2 * rng.normal(size=(num, 2)), labels


TRAIN, VALIDATION, TEST = moons(0), moons(1), moons(2)
MODEL = pb.partial_bnn(pb.mlp([2, 8, 4, 1]), "layers/1/*", pb.bernoulli())


@pytest.mark.parametrize("name", METHODS)
def test_one_word_changes_the_method(name):
    fitted = pb.fit(
        METHODS[name](MODEL), TRAIN, epochs=40, batch_size=20, validation=VALIDATION, progress=False
    )
    assert isinstance(fitted, pb.Fit)
    assert isinstance(fitted.posterior, pb.Posterior)
    values, log_weights = fitted.posterior.particles
    assert values.shape == (*log_weights.shape, MODEL.split.dim)
    assert bool(jnp.isfinite(values).all())
    assert np.isclose(jax.nn.logsumexp(log_weights), 0.0, atol=1e-5)
    assert fitted.history.steps["loss"].shape == (120,)
    assert fitted.history.validation_nlpd.shape == (40,)

    nlpd = float(pb.nlpd(pb.log_predictive_density(MODEL, fitted.posterior, TEST)))
    predictive = pb.predict(MODEL, fitted.posterior, TEST[0])
    assert predictive.mean.shape == (60,)
    # A coin has 0.69; a method that has learnt anything is well below, and none can be near zero.
    assert 0.02 < nlpd < 0.5
    assert float(pb.accuracy(predictive.mean, TEST[1])) > 0.8

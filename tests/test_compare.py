"""Every method on the same small problem, through the same door."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examples.compare_methods import FULL_BATCH, METHODS

import partialbayes as pb

SHORT = {"num_chains": 2, "num_burn_in": 100, "num_draws": 100, "num_particles": 32}

# Small settings for the methods of examples/compare_methods.py, by the same names.
SMALL: dict[str, Callable[[pb.Model], pb.Algorithm]] = {
    "MAP": lambda model: pb.map_estimate(model),
    "OHSMC": lambda model: pb.ohsmc(model, num_particles=32),
    "OHSMC, forgetting": lambda model: pb.ohsmc(model, num_particles=64, kernel=pb.forgetting()),
    "OHSMC, backward": lambda model: pb.backward_ohsmc(model, num_particles=32),
    "SMC": lambda model: pb.smc(model, num_particles=32),
    "SGSMC": lambda model: pb.sgsmc(model, num_particles=32),
    "SGSMC-HMC": lambda model: pb.then(
        pb.sgsmc(model, num_particles=32), pb.hmc(num_leapfrog=10, step_size=0.1, **SHORT)
    ),
    "OHSMC-tempered SMC": lambda model: pb.then(
        pb.ohsmc(model, num_particles=32), pb.tempered_smc(num_particles=32)
    ),
    "MAP-HMC": lambda model: pb.then(
        pb.map_estimate(model), pb.hmc(num_leapfrog=10, step_size=0.1, **SHORT)
    ),
    "MAP-HMC, adapted": lambda model: pb.then(
        pb.map_estimate(model), pb.hmc(num_leapfrog=5, step_size=pb.adapted(), **SHORT)
    ),
    "MAP-NUTS": lambda model: pb.then(pb.map_estimate(model), pb.nuts(**SHORT)),
    "MAP-Laplace": lambda model: pb.then(pb.map_estimate(model), pb.laplace(num_particles=32)),
    "MAP-Laplace, diagonal": lambda model: pb.then(
        pb.map_estimate(model), pb.laplace(covariance="diagonal", num_particles=32)
    ),
    "VB, mean field": lambda model: pb.mean_field_vb(model, num_samples=8, num_particles=32),
    "VB, full rank": lambda model: pb.full_rank_vb(model, num_samples=8, num_particles=32),
    "EKF": lambda model: pb.ekf(model, num_particles=32),
    "SWAG": lambda model: pb.swag(model, num_samples=32, rank=5, warm_up=50),
    "SWAG, psi too": lambda model: pb.swag(model, num_samples=16, rank=5, warm_up=50, sample_psi=True),
    "SGLD": lambda model: pb.sgld(model, num_samples=32, burn_in=50),
    "SVGD": lambda model: pb.svgd(model, num_particles=32),
    "Particle gradient": lambda model: pb.particle_gradient_descent(model, num_particles=32),
    "Monte Carlo": lambda model: pb.monte_carlo(model, num_samples=200),
    "Monte Carlo, bound": lambda model: pb.monte_carlo(
        model, num_samples=200, objective=pb.expected_log_likelihood
    ),
    "Deep ensemble": lambda model: pb.ensemble(pb.map_estimate(model), 3),
    "Ensemble of OHSMC": lambda model: pb.ensemble(pb.ohsmc(model, num_particles=16), 3),
}


def blobs(seed: int, rows: int = 60) -> tuple:
    """Two classes, one inside the other: no straight line tells them apart."""
    rng = np.random.default_rng(seed)
    labels = np.arange(rows) % 2
    angles = rng.uniform(0, 2 * np.pi, rows)
    radii = np.where(labels == 1, 1.8, 0.5) + 0.25 * rng.normal(size=rows)
    return np.stack([radii * np.cos(angles), radii * np.sin(angles)], axis=1), labels


TRAIN, VALIDATION, TEST = blobs(0), blobs(1), blobs(2)
MODEL = pb.partial_bnn(pb.mlp([2, 16, 4, 1]), "layers/1/**", pb.bernoulli())


def test_example_and_test_name_the_same_methods():
    assert set(SMALL) == set(METHODS)
    assert set(METHODS) >= FULL_BATCH


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_same_door_and_sane_score(name):
    epochs, batch_size = (120, None) if name in FULL_BATCH else (40, 20)  # 120 steps either way
    with jax.debug_key_reuse(False):  # a false alarm on BlackJAX's loops mapped over chains
        posterior, history, _ = pb.fit(
            SMALL[name](MODEL),
            TRAIN,
            epochs=epochs,
            batch_size=batch_size,
            validation=VALIDATION,
            progress=False,
        )
    assert isinstance(posterior, pb.Posterior)
    assert posterior.particles.values.shape[-1] == MODEL.split.dim
    assert posterior.particles.values.shape[:-1] == posterior.particles.log_weights.shape
    assert np.isclose(jax.nn.logsumexp(posterior.particles.log_weights), 0.0, atol=1e-4)
    assert history.validation_nlpd.shape == (epochs,)
    predictive = pb.predict(MODEL, posterior, TEST[0])
    assert predictive.mean.shape == (60,)
    assert bool(((predictive.mean >= 0.0) & (predictive.mean <= 1.0)).all())
    score = float(pb.nlpd(pb.log_predictive_density(MODEL, posterior, TEST)))
    # Always answering one half scores log 2; no method may do worse by more than rounding.
    assert score < float(jnp.log(2.0)) + 0.01

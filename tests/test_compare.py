"""Every method on the same small problem, through the same `fit` and `predict`, by changing one word."""

import inspect
import sys
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examples.compare_methods import FULL_BATCH, METHODS

import partialbayes as pb

SHORT = {"num_chains": 2, "num_warmup": 100, "num_draws": 100, "num_particles": 32}

# Small settings for the methods of examples/compare_methods.py, by the same names.
SMALL: dict[str, Callable[[pb.types.Model], pb.types.Algorithm]] = {
    "MAP": lambda model: pb.map_estimate(model),
    "OHSMC": lambda model: pb.ohsmc(model, num_particles=100),
    "OHSMC, affine Langevin": lambda model: pb.ohsmc(
        model, num_particles=64, kernel=pb.kernels.affine_langevin()
    ),
    "OHSMC, random walk": lambda model: pb.ohsmc(
        model, num_particles=64, kernel=pb.kernels.random_walk(0.01)
    ),
    "OHSMC, backward": lambda model: pb.algorithms.backward_ohsmc(model, num_particles=32),
    "SMC": lambda model: pb.smc(model, num_particles=32),
    "SGSMC": lambda model: pb.sgsmc(model, num_particles=32),
    "SGSMC-HMC": lambda model: pb.two_stage(
        pb.sgsmc(model, num_particles=32), pb.samplers.hmc(num_leapfrog_steps=10, step_size=0.1, **SHORT)
    ),
    "OHSMC-tempered SMC": lambda model: pb.two_stage(
        pb.ohsmc(model, num_particles=32), pb.samplers.tempered_smc(num_particles=32)
    ),
    "MAP-HMC": lambda model: pb.two_stage(
        pb.map_estimate(model), pb.samplers.hmc(num_leapfrog_steps=10, step_size=0.1, **SHORT)
    ),
    "MAP-HMC, adapted": lambda model: pb.two_stage(
        pb.map_estimate(model),
        pb.samplers.hmc(num_leapfrog_steps=5, step_size=pb.samplers.adapted(), **SHORT),
    ),
    "MAP-NUTS": lambda model: pb.two_stage(pb.map_estimate(model), pb.samplers.nuts(**SHORT)),
    "MAP-Laplace": lambda model: pb.two_stage(
        pb.map_estimate(model), pb.samplers.laplace(num_particles=32)
    ),
    "MAP-Laplace, diagonal": lambda model: pb.two_stage(
        pb.map_estimate(model), pb.samplers.laplace(covariance="diagonal", num_particles=32)
    ),
    "VB, mean field": lambda model: pb.algorithms.mean_field_vb(model, num_samples=8, num_particles=32),
    "VB, full rank": lambda model: pb.algorithms.full_rank_vb(model, num_samples=8, num_particles=32),
    "EKF": lambda model: pb.algorithms.ekf(model, num_particles=32),
    "SWAG": lambda model: pb.algorithms.swag(model, num_particles=20, rank=5, num_warmup=60),
    "SWAG, psi too": lambda model: pb.algorithms.swag(
        model, num_particles=20, rank=5, num_warmup=60, sample_psi=True
    ),
    "SGLD": lambda model: pb.algorithms.sgld(model, num_particles=20, num_warmup=60),
    "SGHMC": lambda model: pb.algorithms.sghmc(model, num_particles=20, num_warmup=60),
    "Shared ensemble": lambda model: pb.algorithms.shared_ensemble(model),
    "SVGD": lambda model: pb.algorithms.svgd(model, num_particles=20),
    "Particle gradient": lambda model: pb.algorithms.particle_gradient_descent(model, num_particles=20),
    "Particle ensemble": lambda model: pb.algorithms.particle_ensemble(model, num_particles=8),
    "MC dropout of the prior": lambda model: pb.algorithms.mc_dropout(model, num_particles=20),
    "Monte Carlo": lambda model: pb.algorithms.monte_carlo(model, num_particles=200),
    "Monte Carlo, bound": lambda model: pb.algorithms.monte_carlo(
        model, num_particles=200, objective=pb.algorithms.expected_log_likelihood
    ),
    "Deep ensemble": lambda model: pb.ensemble(pb.map_estimate(model), 3),
    "MAP, averaged": lambda model: pb.algorithms.averaged(pb.map_estimate(model)),
    "Trajectory of MAP": lambda model: pb.algorithms.trajectory(pb.map_estimate(model), 3, every=20),
    "Trajectory of OHSMC": lambda model: pb.algorithms.trajectory(
        pb.ohsmc(model, num_particles=48), 3, every=20
    ),
    "Ensemble of OHSMC": lambda model: pb.ensemble(pb.ohsmc(model, num_particles=16), 3),
}


# The others are twice as many programs to compile: left to the slow tests.
QUICK = {"OHSMC", "MAP", "SWAG", "SWAG, psi too", "SGLD", "SVGD", "Particle gradient", "Deep ensemble"}
# Trained on prior draws: the bound hardly looks at the data, and few draws have any weight.
POOR = {"Monte Carlo", "Monte Carlo, bound", "MC dropout of the prior"}


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


def test_example_and_test_name_the_same_methods():
    assert set(SMALL) == set(METHODS)
    used = inspect.getsource(sys.modules[METHODS["MAP"].__module__])
    helpers = {"expected_log_likelihood", "log_expected_likelihood", "weight_prior"}
    toy_sizes_only = {"poisson_ohsmc"}
    for name in set(pb.algorithms.__all__) - helpers - toy_sizes_only:
        assert f"{name}(" in used, f"compare_methods.py lacks {name}"
    assert set(METHODS) >= FULL_BATCH | QUICK | POOR


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in SMALL]
)
def test_one_word_changes_the_method(name):
    epochs, batch_size = (120, None) if name in FULL_BATCH else (40, 20)  # 120 steps either way
    with jax.debug_key_reuse(False):  # a false alarm on BlackJAX's loops mapped over chains
        fitted = pb.fit(
            SMALL[name](MODEL),
            TRAIN,
            epochs=epochs,
            batch_size=batch_size,
            validation=VALIDATION,
        )
    assert isinstance(fitted, pb.results.Fit)
    assert isinstance(fitted.posterior, pb.types.Posterior)
    values, log_weights = fitted.posterior.particles
    assert values.shape == (*log_weights.shape, MODEL.split.dim)
    assert bool(jnp.isfinite(values).all())
    assert np.isclose(jax.nn.logsumexp(log_weights), 0.0, atol=1e-4)
    assert fitted.history.metrics["loss"].shape == (120,)
    assert fitted.history.validation_nlpd.shape == (epochs,)

    nlpd = float(-pb.prediction.log_predictive_density(MODEL, fitted.posterior, TEST).mean())
    predictive = pb.predict(MODEL, fitted.posterior, TEST[0])
    assert predictive.mean.shape == (60,)
    # A coin has 0.69; a method that has learned anything is well below, and none can be near zero.
    assert 0.02 < nlpd < (0.7 if name in POOR else 0.5)
    assert float(pb.metrics.accuracy(predictive.mean, TEST[1])) > (0.5 if name in POOR else 0.8)

"""What every algorithm must do, whatever it is. A new one is added to `ALGORITHMS`."""

from collections.abc import Callable
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partialbayes as pb
from partialbayes.model._batch import full_batch
from tests.oracles import conjugate

ORACLE = conjugate()

ALGORITHMS: dict[str, Callable[[pb.types.Model], pb.types.Algorithm]] = {
    "ohsmc": lambda model: pb.ohsmc(model, num_particles=16, kernel=pb.kernels.random_walk(0.01)),
    "transport": lambda model: pb.ohsmc(model),
    "ohsmc, ess": lambda model: pb.ohsmc(
        model,
        num_particles=16,
        kernel=pb.kernels.random_walk(0.01),
        resample=pb.resampling.when_ess_below(0.5, pb.resampling.systematic),
    ),
    "ohsmc, ou": lambda model: pb.ohsmc(
        model, num_particles=16, kernel=pb.kernels.ornstein_uhlenbeck(0.1)
    ),
    "ohsmc, kernel with memory, gradient of few": lambda model: pb.ohsmc(
        model, num_particles=16, kernel=pb.kernels.adapted_metropolis(), gradient_particles=4
    ),
    "backward_ohsmc": lambda model: pb.algorithms.backward_ohsmc(model, num_particles=16),
    "poisson_ohsmc": lambda model: pb.algorithms.poisson_ohsmc(
        model, log_c=2000.0, intensity=1500.0, subset_size=4, num_particles=16
    ),
    "ekf": lambda model: pb.algorithms.ekf(model, num_particles=16),
    "map": lambda model: pb.map_estimate(model),
    "map, hmc": lambda model: pb.two_stage(
        pb.map_estimate(model),
        pb.samplers.hmc(num_leapfrog_steps=3, num_warmup=5, num_draws=10, num_particles=8),
    ),
    "swag": lambda model: pb.algorithms.swag(model, num_particles=8, rank=3, num_warmup=2),
    "swag, psi too": lambda model: pb.algorithms.swag(
        model, num_particles=8, rank=3, num_warmup=2, sample_psi=True
    ),
    "deep ensemble": lambda model: pb.ensemble(pb.map_estimate(model), 3),
    "ensemble of transport": lambda model: pb.ensemble(pb.ohsmc(model, num_particles=16), 3),
    "particle gradient descent": lambda model: pb.algorithms.particle_gradient_descent(
        model, num_particles=16
    ),
    "particle gradient descent, few particles and rows": lambda model: (
        pb.algorithms.particle_gradient_descent(
            model, num_particles=3, rows_per_particle=4, start="network"
        )
    ),
    "particle ensemble": lambda model: pb.algorithms.particle_ensemble(
        model, num_particles=4, rows_per_particle=4, start="prior"
    ),
    "trajectory": lambda model: pb.algorithms.trajectory(pb.ohsmc(model, num_particles=16), 3, every=2),
    "trajectory of an ensemble": lambda model: pb.algorithms.trajectory(
        pb.ensemble(pb.map_estimate(model), 2), 2, every=2
    ),
    "averaged": lambda model: pb.algorithms.averaged(pb.map_estimate(model), num_warmup=2),
    "mc dropout": lambda model: pb.algorithms.mc_dropout(model, num_particles=8),
    "sghmc": lambda model: pb.algorithms.sghmc(model, num_particles=8, num_warmup=2),
    "sgld": lambda model: pb.algorithms.sgld(model, num_particles=8, num_warmup=2),
    "shared ensemble": lambda model: pb.algorithms.shared_ensemble(model, num_particles=2),
    "smc": lambda model: pb.smc(model, num_particles=16),
    "sgsmc": lambda model: pb.sgsmc(
        model,
        num_particles=16,
        schedule=pb.annealing.blocks(3),
        kernel=pb.kernels.random_walk_metropolis(0.05),
        gradient_particles=4,
    ),
    "svgd": lambda model: pb.algorithms.svgd(model, num_particles=16),
    "mean-field vb": lambda model: pb.algorithms.mean_field_vb(model, num_samples=4, num_particles=8),
    "full-rank vb": lambda model: pb.algorithms.full_rank_vb(model, num_samples=4, num_particles=8),
    "monte carlo": lambda model: pb.algorithms.monte_carlo(model, num_particles=4000),
}

# Sixteen draws of the prior are worth few of the posterior.
pytestmark = pytest.mark.filterwarnings("ignore::partialbayes.errors.MixingWarning")

every_algorithm = pytest.mark.parametrize("name", ALGORITHMS)


@cache
def built(name: str) -> pb.types.Algorithm:
    """One object per algorithm: what one test has compiled the next one uses."""
    return ALGORITHMS[name](ORACLE.model)


def trained(name: str, key: int) -> pb.results.Fit:
    data = (ORACLE.inputs, ORACLE.targets)
    batch_size = None if built(name).wants == "all rows" else 8
    return pb.fit(built(name), data, epochs=3, batch_size=batch_size, validation=data, key=key)


@every_algorithm
def test_step_keeps_shape_dtype_and_weak_type(name):
    """So that it is compiled once. Traced alone: the next tests run it."""
    algorithm = built(name)
    batch = full_batch(ORACLE.inputs, ORACLE.targets)
    state = jax.eval_shape(algorithm.init, jax.random.key(0))
    after, info = jax.eval_shape(algorithm.step, jax.random.key(1), state, batch)
    before = [(leaf.shape, leaf.dtype, leaf.weak_type) for leaf in jax.tree.leaves(state)]
    assert before == [(leaf.shape, leaf.dtype, leaf.weak_type) for leaf in jax.tree.leaves(after)]
    assert jax.tree.structure(state) == jax.tree.structure(after)
    assert not any(weak for _, _, weak in before)
    assert "loss" in info
    if "smc" in name or name == "ekf":
        assert set(info) >= {"ess", "log_evidence_increment", "acceptance", "ancestors"}
    assert all(value.shape == () for value in info.values())


@every_algorithm
def test_fit_and_predict(name):
    posterior, history, *_ = trained(name, key=5)
    particles = posterior.particles
    assert jnp.allclose(jax.nn.logsumexp(particles.log_weights), 0.0, atol=1e-5)
    assert particles.values.shape[-2:-1] == particles.log_weights.shape[-1:]
    predictive = pb.predict(ORACLE.model, posterior, ORACLE.inputs)
    assert predictive.mean.shape == ORACLE.targets.shape
    assert bool((predictive.variance >= predictive.epistemic_variance).all())
    assert history.validation_nlpd.shape == (3,)
    assert all(np.isfinite(values).all() for values in history.metrics.values())


@every_algorithm
def test_the_validation_score_is_the_nlpd_of_the_predictive_mixture(name):
    if built(name).finish is not None:
        pytest.skip("the posterior is that of the second stage")
    posterior, history, *_ = trained(name, key=5)
    score = -pb.prediction.log_predictive_density(
        ORACLE.model, posterior, (ORACLE.inputs, ORACLE.targets)
    ).mean()
    assert np.isclose(score, history.validation_nlpd.min(), rtol=1e-5)
    assert history.best_step == history.eval_steps[history.validation_nlpd.argmin()]


@every_algorithm
def test_same_key_same_bits(name):
    first, again, other = (jax.tree.leaves(trained(name, key).posterior) for key in (5, 5, 6))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))

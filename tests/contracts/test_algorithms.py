"""What every algorithm must do, whatever it is. A new one is added to `ALGORITHMS`."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partialbayes as pb
from partialbayes.batches import whole
from tests.oracles import conjugate

ORACLE = conjugate()

ALGORITHMS: dict[str, Callable[[pb.Model], pb.Algorithm]] = {
    "ohsmc": lambda model: pb.ohsmc(model, num_particles=16),
    "ohsmc, ess": lambda model: pb.ohsmc(
        model, num_particles=16, resample=pb.when_ess_below(0.5, pb.systematic)
    ),
    "ohsmc, ou": lambda model: pb.ohsmc(model, num_particles=16, kernel=pb.ornstein_uhlenbeck(0.1)),
    "map": lambda model: pb.map_estimate(model),
    "mean-field vb": lambda model: pb.mean_field_vb(model, num_samples=4, num_particles=8),
    "full-rank vb": lambda model: pb.full_rank_vb(model, num_samples=4, num_particles=8),
    "monte carlo": lambda model: pb.monte_carlo(model, num_samples=16),
}

every_algorithm = pytest.mark.parametrize("build", ALGORITHMS.values(), ids=ALGORITHMS.keys())


@every_algorithm
def test_step_keeps_shape_dtype_and_weak_type(build):
    algorithm = build(ORACLE.model)
    state = algorithm.init(jax.random.key(0))
    after, info = algorithm.step(jax.random.key(1), state, whole(ORACLE.inputs, ORACLE.targets))
    before = jax.tree.map(jax.typeof, state)
    assert before == jax.tree.map(jax.typeof, after)
    assert not any(leaf.weak_type for leaf in jax.tree.leaves(before))
    assert "loss" in info
    assert all(jnp.shape(value) == () and jnp.isfinite(value) for value in info.values())


@every_algorithm
def test_step_compiles_once(build):
    algorithm = build(ORACLE.model)
    step = jax.jit(algorithm.step)
    state = jax.jit(algorithm.init)(jax.random.key(0))
    batch = whole(ORACLE.inputs, ORACLE.targets)
    for seed in range(3):
        state, _ = step(jax.random.key(seed), state, batch)
    assert step._cache_size() == 1


@every_algorithm
def test_fit_and_predict(build):
    algorithm = build(ORACLE.model)
    data = (ORACLE.inputs, ORACLE.targets)
    trained = pb.fit(algorithm, data, epochs=3, batch_size=8, validation=data, progress=False)
    particles = trained.posterior.particles
    assert jnp.allclose(jax.nn.logsumexp(particles.log_weights), 0.0, atol=1e-5)
    assert particles.values.shape[-2:-1] == particles.log_weights.shape[-1:]
    predictive = pb.predict(ORACLE.model, trained.posterior, ORACLE.inputs)
    assert predictive.mean.shape == ORACLE.targets.shape
    assert bool((predictive.variance >= predictive.epistemic).all())
    assert trained.history.validation_nlpd.shape == (3,)


@every_algorithm
def test_same_key_same_bits(build):
    algorithm = build(ORACLE.model)
    data = (ORACLE.inputs, ORACLE.targets)

    def leaves(key):
        trained = pb.fit(algorithm, data, epochs=2, batch_size=8, key=key, progress=False)
        return jax.tree.leaves(trained.posterior)

    first, again, other = leaves(5), leaves(5), leaves(6)
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))

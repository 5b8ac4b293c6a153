"""The evidence of several runs, and the ancestry that tells its error in one."""

import jax
import jax.numpy as jnp
import numpy as np

import partialbayes as pb
from partialbayes.feynman_kac._feynman_kac import Cloud, keep_chains
from partialbayes.types import Moments, Target


def test_runs_are_averaged_and_not_their_logarithms():
    pooled = pb.feynman_kac.evidence_from_runs(jnp.log(jnp.array([1.0, 2.0, 6.0])))
    np.testing.assert_allclose(pooled.log_evidence, np.log(3.0), rtol=1e-6)
    # Of 1/3, 2/3 and 2: the sample variance is 7/9, over three runs.
    np.testing.assert_allclose(pooled.standard_error, np.sqrt(7 / 27), rtol=1e-5)


def test_every_state_of_a_chain_has_the_founder_of_the_chain():
    """Of two founders, each at the place of its number, with chains that stay where they start."""
    founders = jnp.array([0, 1, 0, 1, 0, 1], jnp.int32)
    log_weights = jnp.log(jnp.array([0.5, 0.0, 0.0, 0.0, 0.0, 0.5]))
    particles = pb.types.Particles(founders.astype(float)[:, None], log_weights)
    prior = Moments(jnp.zeros(1), jnp.ones(1))
    target = Target(lambda phi: jnp.zeros(()), lambda phi: jnp.zeros(()), prior, jnp.ones(()))
    cloud = Cloud(particles, founders, jnp.zeros(()), jnp.zeros(()), ())
    mutation = keep_chains(pb.kernels.identity(), 3)
    after, _ = jax.jit(lambda key: mutation.step(key, cloud, target))(jax.random.key(0))
    assert sorted(after.founders.tolist()) == [0, 0, 0, 1, 1, 1]
    assert np.array_equal(after.founders, after.particles.values[:, 0])

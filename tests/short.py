"""Training of a few steps without compiling them, for tests of what trains rather than how well."""

import jax
import numpy as np

import partialbayes as pb
from partialbayes.model._batch import as_batch


def train_briefly(
    model: pb.types.Model, data, num_particles: int = 3, steps: int = 2
) -> pb.types.Posterior:
    """OHSMC for a few steps on all the data; the loss must stay finite."""
    algorithm = pb.ohsmc(model, num_particles=num_particles)
    batch = as_batch(model, data, "data")
    state = algorithm.init(jax.random.key(0))
    for seed in range(1, steps + 1):
        state, info = algorithm.step(jax.random.key(seed), state, batch)
        assert np.isfinite(info["loss"])
    return algorithm.posterior(state)

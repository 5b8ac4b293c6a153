"""Monte Carlo dropout: φ keeps its prior, and ψ is trained under that noise.

Every row of a batch has its own φ, drawn from the prior, and ψ follows

    (N/M) Σ_{n in batch} ∇_ψ log p(y_n | φ_n; ψ),    φ_n ~ π,

an estimate of the gradient of E_π[Σ_n log p(y_n | φ; ψ)]. The posterior of φ is its prior: the
uncertainty comes from the noise that was put in, not from the data. With `rank_one` factors of the
inputs of layers in φ, and the prior `priors.dropout`, this is dropout at the rate of the prior, in
training and in prediction.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, UInt32

from partialbayes._utils.checks import require_positive_int
from partialbayes.algorithms._common import ascend, default_optimizer
from partialbayes.feynman_kac._gradients import own_gradients
from partialbayes.types import Algorithm, Batch, Info, Model, Particles, Posterior, PRNGKey, Psi
from partialbayes.weights import uniform_log_weights


class McDropoutState(NamedTuple):
    """ψ with its optimizer, and the seed of the samples, so that a state always gives the same ones."""

    psi: Psi
    optimizer: optax.OptState
    seed: UInt32[Array, " two"]


def mc_dropout(
    model: Model, *, num_particles: int = 100, optimizer: optax.GradientTransformation | None = None
) -> Algorithm:
    """Train ψ under a φ drawn from its prior for every row, and predict by draws from it.

    Args:
        model: The model to train; for dropout one with factors of inputs as φ, as in the example.
        num_particles: Number J of draws of φ to predict by.
        optimizer: Optax transformation for ψ; Adam at 0.01 by default.

    Returns:
        The algorithm, to pass to `fit`.

    Example:
        >>> import partialbayes as pb
        >>> network = pb.networks.rank_one(pb.mlp([4, 50, 50, 1]), "layers/[12]/kernel")
        >>> prior = pb.priors.dropout(0.1)
        >>> model = pb.partial_bnn(network, "factors/**/input", pb.gaussian(pb.learned(0.1)), prior)
        >>> algorithm = pb.algorithms.mc_dropout(model)
    """
    require_positive_int("num_particles", num_particles, "for example num_particles=100.")
    optimizer = default_optimizer(optimizer)

    def init(key: PRNGKey) -> McDropoutState:
        key_psi, key_seed = jax.random.split(key)
        psi = model.init(key_psi).psi
        return McDropoutState(psi, optimizer.init(psi), jax.random.bits(key_seed, (2,), jnp.uint32))

    def step(key: PRNGKey, state: McDropoutState, batch: Batch) -> tuple[McDropoutState, Info]:
        key_phi, key_rows = jax.random.split(key)
        values = model.sample_prior(key_phi, state.psi, batch.mask.shape[0])
        ascent = own_gradients(model, key_rows, values, state.psi, batch, 1)
        psi, optimizer_state = ascend(optimizer, ascent.psi, state.optimizer, state.psi)
        log_prior = jax.vmap(lambda phi: model.log_prior(phi, state.psi))(values).mean()
        num_data = batch.scale * batch.mask.sum()
        loss = (log_prior - ascent.log_densities.mean()) / num_data
        return McDropoutState(psi, optimizer_state, state.seed), {"loss": loss}

    def posterior(state: McDropoutState) -> Posterior:
        key = jax.random.wrap_key_data(state.seed, impl="threefry2x32")
        values = model.sample_prior(key, state.psi, num_particles)
        return Posterior(state.psi, Particles(values, uniform_log_weights(num_particles)))

    def restart(state: McDropoutState, posterior: Posterior) -> McDropoutState:
        return state._replace(psi=posterior.psi)

    return Algorithm(model, init, step, posterior, restart=restart)

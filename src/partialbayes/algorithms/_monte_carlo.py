"""Monte Carlo estimates of the marginal likelihood of ψ from draws of the prior.

On each batch, with new φ_1..S ~ π(φ; ψ) and L_j = (N/M) log p(batch | φ_j; ψ), ascend in ψ one of

    (1/S) Σ_j L_j                the paper's bound, E_π[Σ_n log p(y_n | φ; ψ)]
    log (1/S) Σ_j exp L_j        the log marginal likelihood, log E_π[Π_n p(y_n | φ; ψ)]

By Jensen's inequality the first is a lower bound of the second, often a loose one with another
maximizer. The second is estimated without bias (before the logarithm) only from all data at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from partialbayes._utils.checks import require_positive_int
from partialbayes.algorithms._combinators import two_stage
from partialbayes.algorithms._common import default_optimizer, posterior_of, start_cloud
from partialbayes.feynman_kac._gradients import forward_pass
from partialbayes.samplers._importance import importance_sampling
from partialbayes.types import Algorithm, Batch, Info, Model, Particles, PRNGKey, Psi, Scalar
from partialbayes.weights import effective_sample_size

Objective = Callable[[Float[Array, " sample"]], Scalar]


def expected_log_likelihood(log_likelihoods: Float[Array, " sample"]) -> Scalar:
    """Average log p(y | φ; ψ) over prior draws: the paper's bound.

    Args:
        log_likelihoods: The log-likelihood of each draw.

    Returns:
        The mean.

    Example:
        >>> import jax.numpy as jnp, partialbayes as pb
        >>> float(pb.algorithms.expected_log_likelihood(jnp.array([-1.0, -3.0])))
        -2.0
    """
    return jnp.mean(log_likelihoods)


def log_expected_likelihood(log_likelihoods: Float[Array, " sample"]) -> Scalar:
    """Compute the logarithm of the mean of p(y | φ; ψ) over prior draws: the log marginal likelihood.

    Args:
        log_likelihoods: The log-likelihood of each draw.

    Returns:
        The logarithm of the mean likelihood.

    Example:
        >>> import jax.numpy as jnp, partialbayes as pb
        >>> round(float(pb.algorithms.log_expected_likelihood(jnp.array([-1.0, -3.0]))), 4)
        -1.5662
    """
    return jax.nn.logsumexp(log_likelihoods) - math.log(log_likelihoods.shape[0])


class MonteCarloState(NamedTuple):
    """ψ with its optimizer, and the last draws of the prior, weighted by the last batch."""

    psi: Psi
    optimizer: optax.OptState
    particles: Particles


def monte_carlo(
    model: Model,
    *,
    objective: Objective = log_expected_likelihood,
    num_particles: int = 1000,
    optimizer: optax.GradientTransformation | None = None,
) -> Algorithm:
    """Train ψ on draws of the prior, weighted by the likelihood.

    During training the weights are those of the last batch, with its likelihood to the power N/M. The
    posterior that `fit` returns consists of new draws weighted by all the data; its effective sample
    size and log-evidence are in the report.

    Args:
        model: The model to train.
        objective: `log_expected_likelihood`, or the paper's bound `expected_log_likelihood`.
        num_particles: Number S of draws of the prior per step.
        optimizer: Optax transformation for ψ; Adam at 0.01 by default.

    Returns:
        The algorithm, to pass to `fit`.

    Example:
        >>> import partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 20, 1]), "layers/0/*", pb.gaussian())
        >>> algorithm = pb.algorithms.monte_carlo(model, objective=pb.algorithms.expected_log_likelihood)
    """
    require_positive_int("num_particles", num_particles, "for example num_particles=1000.")
    optimizer = default_optimizer(optimizer)

    def init(key: PRNGKey) -> MonteCarloState:
        psi, particles = start_cloud(model, key, num_particles)
        return MonteCarloState(psi, optimizer.init(psi), particles)

    def step(key: PRNGKey, state: MonteCarloState, batch: Batch) -> tuple[MonteCarloState, Info]:
        def loss(psi: Psi) -> tuple[Scalar, tuple[Array, Array]]:
            # A learned prior scale moves the draws, so they are differentiated too.
            values = model.sample_prior(key, psi, num_particles)
            terms = forward_pass(model, values, psi, batch)
            log_likelihoods = batch.scale * terms
            return -objective(log_likelihoods), (values, log_likelihoods)

        (value, (values, log_likelihoods)), gradient = jax.value_and_grad(loss, has_aux=True)(state.psi)
        updates, optimizer_state = optimizer.update(gradient, state.optimizer, state.psi)
        psi: Psi = optax.apply_updates(state.psi, updates)
        particles = Particles(values, jax.nn.log_softmax(log_likelihoods))
        info = {
            "loss": value / (batch.scale * batch.mask.sum()),
            "ess": effective_sample_size(particles.log_weights),
        }
        return MonteCarloState(psi, optimizer_state, particles), info

    training = Algorithm(model, init, step, posterior_of)
    return two_stage(training, importance_sampling(num_particles=num_particles))

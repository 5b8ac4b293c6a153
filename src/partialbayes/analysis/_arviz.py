"""Hand a posterior to ArviZ, with its plots and diagnostics.

ArviZ knows draws of equal weight in chains: the particles are resampled, each member of an ensemble
into a chain of its own, and every draw keeps the number and the weight of its particle.
"""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from partialbayes._utils.checks import as_key, require_positive_int
from partialbayes.model._batch import as_batch
from partialbayes.prediction import _mixture as mixture
from partialbayes.resampling import stratified_indices
from partialbayes.types import Batch, Chunks, Model, Posterior, PRNGKey, Seed


def to_arviz(
    model: Model,
    posterior: Posterior,
    data: Any = None,
    *,
    num_draws: int | None = None,
    key: Seed = 0,
    chunks: Chunks | None = None,
) -> Any:
    """Draws of φ as ArviZ holds them: ``InferenceData``, or from its version 1 a ``DataTree``.

    Args:
        model: The model that was trained.
        posterior: From `fit` or `refine`.
        data: A pair ``(inputs, targets)``; adds the groups log_likelihood, for ``arviz.loo``,
            posterior_predictive and observed_data.
        num_draws: Of each chain; as many as there are particles by default.
        key: A ``jax.random.key`` or a whole number to make one from.
        chunks: How many draws (``particles``) to take at a time; all by default.

    Returns:
        The group posterior has a variable for every weight with a random entry, its path with dots;
        sample_stats has the ``particle`` of each draw and its ``weight``.

    Raises:
        ValueError: ``num_draws`` is not a whole number of at least 1, or the data do not fit.
        ImportError: ArviZ is not installed.

    Example:
        >>> import jax, jax.numpy as jnp, partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 5, 1]), "layers/0/*", pb.gaussian())
        >>> x = jnp.linspace(-1.0, 1.0, 8)[:, None]
        >>> algorithm = pb.ohsmc(model, num_particles=10)
        >>> posterior = algorithm.posterior(algorithm.init(jax.random.key(0)))  # before training
        >>> draws = pb.to_arviz(model, posterior, (x, x))
        >>> draws.posterior["layers.0.kernel"].shape
        (1, 10, 1, 5)
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # ArviZ announces its next version at import
        import arviz

    key = as_key(key)
    key_resample, key_noise = jax.random.split(key)
    log_weights = posterior.particles.log_weights
    chains = posterior.num_members
    num_draws = log_weights.shape[-1] if num_draws is None else num_draws
    require_positive_int("num_draws", num_draws, "or None for as many as there are particles.")

    # Of each chain, and counted over all of them.
    weights = jax.nn.softmax(log_weights.reshape(chains, -1), axis=1)
    keys = jax.random.split(key_resample, chains)
    particle = jax.vmap(partial(stratified_indices, num=num_draws))(keys, weights)
    flat = (particle + weights.shape[1] * jnp.arange(chains)[:, None]).ravel()
    values = posterior.particles.values
    phi = np.asarray(values.reshape(-1, values.shape[-1])[flat]).reshape(chains, num_draws, -1)
    groups: dict[str, dict[str, Any]] = {
        "posterior": _by_path(model, phi),
        "sample_stats": {
            "particle": np.asarray(particle),
            "weight": np.asarray(jnp.take_along_axis(weights, particle, axis=1)),
        },
    }
    if data is not None:
        batch = as_batch(model, data, "data")
        of_draws = _of_draws(model, posterior, flat, batch, key_noise, chunks or Chunks())
        likelihoods, predicted = (
            np.asarray(array).reshape(chains, num_draws, *array.shape[1:]) for array in of_draws
        )
        groups["log_likelihood"] = {"y": likelihoods}
        groups["posterior_predictive"] = {"y": predicted}
        groups["observed_data"] = {"y": np.asarray(data[1]).reshape(predicted.shape[2:])}
    if int(arviz.__version__.split(".")[0]) >= 1:
        return arviz.from_dict(groups)
    return arviz.from_dict(**groups)


@partial(jax.jit, static_argnames=("model", "chunks"))
def _of_draws(
    model: Model,
    posterior: Posterior,
    chosen: Int[Array, " draw"],
    data: Batch,
    key: PRNGKey,
    chunks: Chunks,
) -> tuple[Array, Array]:
    """Log-likelihood of every row, and a new target for it, by each of the draws."""
    values, log_weights = posterior.particles

    def one(index: Array) -> Array:
        psi = posterior.psi
        if posterior.is_ensemble:
            psi = jax.tree.map(lambda leaf: leaf[index // log_weights.shape[1]], psi)
        return model.log_likelihood(values.reshape(-1, values.shape[-1])[index], psi, data)

    size = chunks.particles or chosen.shape[0]
    likelihoods = jax.lax.map(one, chosen, batch_size=size)
    drawn = mixture.draws(model, posterior, chosen, data.inputs, key, chunks)
    return likelihoods, drawn


def _by_path(model: Model, phi: Any) -> dict[str, Any]:
    """The random entries of each weight, in its shape where all of it is random."""
    variables, start = {}, 0
    for leaf, mask in zip(model.split.leaves, model.split.masks, strict=True):
        count = int(mask.sum())
        if count == 0:
            continue
        entries = phi[:, :, start : start + count]
        shape = leaf.shape if mask.all() else (count,)
        variables[leaf.path.replace("/", ".")] = entries.reshape(*phi.shape[:2], *shape)
        start += count
    return variables

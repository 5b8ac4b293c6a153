"""Hand a posterior to ArviZ, with its plots and diagnostics.

ArviZ knows draws of equal weight in chains. The chains of `hmc` and `nuts` stay what they are. Particles
are no chain: they are resampled, in random order, into one row of draws, and every draw keeps the number
and the weight of its particle, and of an ensemble its member.
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
from partialbayes.prediction._predict import posterior_of
from partialbayes.resampling import stratified_indices
from partialbayes.types import Batch, ChainReport, Chunks, Fit, Model, Posterior, PRNGKey, Seed


def to_arviz(
    model: Model,
    posterior: Posterior | Fit,
    data: Any = None,
    *,
    num_draws: int | None = None,
    key: Seed = 0,
    chunks: Chunks | None = None,
) -> Any:
    """Draws of φ as ArviZ holds them: ``InferenceData``, or from its version 1 a ``DataTree``.

    Args:
        model: The model that was trained.
        posterior: What `fit` returned, or a posterior. Chains are told from particles by the report of
            the second stage, so pass the whole `Fit` where there were any.
        data: A pair ``(inputs, targets)``; adds the groups log_likelihood, for ``arviz.loo``,
            posterior_predictive and observed_data.
        num_draws: Of particles; as many as there are by default. Chains are not thinned.
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
    key_resample, key_order, key_noise = jax.random.split(key, 3)
    chains = _num_chains(posterior)
    posterior = posterior_of(posterior)
    log_weights = posterior.particles.log_weights.ravel()
    if num_draws is not None:
        require_positive_int("num_draws", num_draws, "or None for as many as there are particles.")
    weights = jax.nn.softmax(log_weights)
    if chains > 1 or (chains == 1 and num_draws is None):
        flat = _in_chains(log_weights.size, chains)
    else:
        drawn = stratified_indices(key_resample, weights, num=num_draws or log_weights.size)
        # Copies of a particle would stand side by side, and be read as a chain that does not move.
        flat = np.asarray(jax.random.permutation(key_order, drawn))[None, :]
    num_chains, num_draws = flat.shape
    values = posterior.particles.values
    phi = np.asarray(values).reshape(-1, values.shape[-1])[flat]
    stats = {
        "particle": flat % posterior.num_particles,
        "weight": np.asarray(weights)[flat],
    }
    if posterior.is_ensemble:
        stats["member"] = flat // posterior.num_particles
    groups: dict[str, dict[str, Any]] = {"posterior": _by_path(model, phi), "sample_stats": stats}
    if data is not None:
        batch = as_batch(model, data, "data")
        of_draws = _of_draws(
            model, posterior, jnp.asarray(flat.ravel()), batch, key_noise, chunks or Chunks()
        )
        likelihoods, predicted = (
            np.asarray(array).reshape(num_chains, num_draws, *array.shape[1:]) for array in of_draws
        )
        groups["log_likelihood"] = {"y": likelihoods}
        groups["posterior_predictive"] = {"y": predicted}
        groups["observed_data"] = {"y": np.asarray(data[1]).reshape(predicted.shape[2:])}
    if int(arviz.__version__.split(".")[0]) >= 1:
        return arviz.from_dict(groups)
    return arviz.from_dict(**groups)


def _num_chains(found: Posterior | Fit) -> int:
    """How many chains the particles were drawn by; zero where they were not drawn by any."""
    if not isinstance(found, Fit) or found.posterior.is_ensemble:
        return 0
    return int(found.report.acceptance.shape[-1]) if isinstance(found.report, ChainReport) else 0


def _in_chains(total: int, chains: int) -> Any:
    """The particles of each chain, in its order; as many of each as the shortest has."""
    chain = np.arange(total) * chains // total
    each = [np.flatnonzero(chain == one) for one in range(chains)]
    shortest = min(len(own) for own in each)
    return np.stack([own[:shortest] for own in each])


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

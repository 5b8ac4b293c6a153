"""Export a posterior to ArviZ.

ArviZ expects equally weighted draws in chains. Chains of `hmc` and `nuts` are exported as they are.
Particles are resampled, in random order, into one chain of draws; each draw records the index and weight
of its particle, and its member in an ensemble.
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
from partialbayes.model._split import from_phi
from partialbayes.prediction import _mixture as mixture
from partialbayes.prediction._predict import as_posterior
from partialbayes.resampling import stratified_indices
from partialbayes.results import ChainReport, Fit
from partialbayes.types import Batch, Chunks, Model, Posterior, PRNGKey, Seed


def to_arviz(
    model: Model,
    posterior: Posterior | Fit,
    data: Any = None,
    *,
    num_draws: int | None = None,
    key: Seed = 0,
    chunks: Chunks | None = None,
) -> Any:
    """Export draws of φ to ArviZ, as ``InferenceData`` or, from version 1, a ``DataTree``.

    Args:
        model: The trained model.
        posterior: The result of `fit`, or a posterior. Only the report in a `Fit` distinguishes chains
            from particles, so pass the `Fit` if there are chains.
        data: A pair ``(inputs, targets)``; adds the groups log_likelihood (for ``arviz.loo``),
            posterior_predictive and observed_data.
        num_draws: Number of draws of particles; by default the number of particles. Chains are not
            thinned.
        key: A ``jax.random.key``, or an integer seed.
        chunks: Number of draws (``particles``) to compute at a time; all by default.

    Returns:
        The draws. The group posterior has a variable for every weight with a random entry, named by its
        path with dots. The group sample_stats has the ``particle`` and ``weight`` of each draw.

    Raises:
        ImportError: ArviZ is not installed.

    Example:
        >>> import partialbayes as pb  # model, trained and x as in the example of predict
        >>> draws = pb.to_arviz(model, trained, (x, x))
        >>> draws.posterior["layers.0.kernel"].shape
        (1, 10, 1, 5)
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # ArviZ announces its next version on import
        import arviz

    key = as_key(key)
    key_resample, key_order, key_noise = jax.random.split(key, 3)
    chains = _num_chains(posterior)
    posterior = as_posterior(posterior)
    log_weights = posterior.particles.log_weights.ravel()
    if num_draws is not None:
        require_positive_int("num_draws", num_draws, "or None for the number of particles.")
    weights = jax.nn.softmax(log_weights)
    if chains > 1 or (chains == 1 and num_draws is None):
        flat = _chain_indices(log_weights.size, chains)
    else:
        drawn = stratified_indices(key_resample, weights, num=num_draws or log_weights.size)
        # Permuted, because neighboring copies of a particle would resemble a stuck chain.
        flat = np.asarray(jax.random.permutation(key_order, drawn))[None, :]
    num_chains, num_draws = flat.shape
    values = posterior.particles.values
    phi = np.asarray(values).reshape(-1, values.shape[-1])[flat]
    stats = {"particle": flat % posterior.num_particles, "weight": np.asarray(weights)[flat]}
    if posterior.is_ensemble:
        stats["member"] = flat // posterior.num_particles
    groups: dict[str, dict[str, Any]] = {"posterior": _name_variables(model, phi), "sample_stats": stats}
    if data is not None:
        batch = as_batch(model, data, "data")
        evaluated = _evaluate_draws(
            model, posterior, jnp.asarray(flat.ravel()), batch, key_noise, chunks or Chunks()
        )
        likelihoods, predicted = (
            np.asarray(array).reshape(num_chains, num_draws, *array.shape[1:]) for array in evaluated
        )
        groups["log_likelihood"] = {"y": likelihoods}
        groups["posterior_predictive"] = {"y": predicted}
        groups["observed_data"] = {"y": np.asarray(data[1]).reshape(predicted.shape[2:])}
    if int(arviz.__version__.split(".")[0]) >= 1:
        return arviz.from_dict(groups)
    return arviz.from_dict(**groups)


def _num_chains(found: Posterior | Fit) -> int:
    """Return the number of chains that drew the particles; zero if none did."""
    if not isinstance(found, Fit) or found.posterior.is_ensemble:
        return 0
    return int(found.report.acceptance.shape[-1]) if isinstance(found.report, ChainReport) else 0


def _chain_indices(total: int, chains: int) -> Any:
    """Return the indices of the particles of each chain, in order, cut to the shortest chain."""
    chain = np.arange(total) * chains // total
    each = [np.flatnonzero(chain == one) for one in range(chains)]
    shortest = min(len(own) for own in each)
    return np.stack([own[:shortest] for own in each])


@partial(jax.jit, static_argnames=("model", "chunks"))
def _evaluate_draws(
    model: Model,
    posterior: Posterior,
    chosen: Int[Array, " draw"],
    data: Batch,
    key: PRNGKey,
    chunks: Chunks,
) -> tuple[Array, Array]:
    """Compute the log-likelihood of every row, and draw a new target for it, for each draw."""
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


def _name_variables(model: Model, phi: Any) -> dict[str, Any]:
    """Return the random entries of each weight, in its shape if every entry is random."""
    variables, start = {}, 0
    for leaf, mask in zip(model.split.leaves, model.split.masks, strict=True):
        count = int(mask.sum())
        if count == 0:
            continue
        variables[leaf.path.replace("/", ".")] = from_phi(leaf, mask, phi[:, :, start : start + count])
        start += count
    return variables

"""The evidence log Ẑ and its standard error.

**From one run, by its ancestry.** Let each of N independent draws found a family, A_k be the total
weight of family k, and S = Σ_k A_k² the probability that two particles drawn by weight are of one
family. Lee and Whiteley (2018) estimate the variance of Ẑ/Z, and so that of log Ẑ, by

    V = 1 − (N/(N−1))^{m+1} (1 − S)

after m rounds of multinomial resampling. The power corrects for the kinship that resampling itself
creates: each round multiplies 1 − S by 1 − 1/N on average. Other schemes create less, and resampling
that is skipped creates none. So each round is corrected by the kinship it did create,

    1 − V = N/(N−1) · Π_rounds (1 − S before) / (1 − S after) · (1 − S at the end).

For multinomial resampling this is the same estimate, to first order in 1/N. It is also right if
families keep their weight exactly, as they almost do under stratified resampling: it is then the
sample variance of N independent families. Without any resampling both are exactly the sample
variance of the mean importance weight. V cannot exceed one. Near one, all particles descend from
a few, and more particles are needed. A resampler that mixes particles (optimal transport) has no
ancestry, and V has no meaning.

**From R independent runs.** Z̄ = (1/R) Σ_r Ẑ_r, with the standard error of the mean. This estimate
needs no ancestry, and includes the error of an adaptive scheme.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from partialbayes.types import Scalar


class Evidence(NamedTuple):
    """An estimate of log p(y_1:N; ψ).

    Attributes:
        log_evidence: log Ẑ.
        standard_error: The standard error of log Ẑ, to first order that of Ẑ/Z.
    """

    log_evidence: Scalar
    standard_error: Scalar


def _shares(
    log_weights: Float[Array, " particle"], founders: Int[Array, " particle"], num_founders: int
) -> Float[Array, " founder"]:
    shares = jnp.zeros(num_founders, log_weights.dtype).at[founders].add(jnp.exp(log_weights))
    # Exactly: if one family is left, its share must be one.
    return shares / shares.sum()


def log_unrelated(
    log_weights: Float[Array, " particle"], founders: Int[Array, " particle"], num_founders: int
) -> Scalar:
    """Return log(1 − S); minus infinity once only one family is left."""
    shares = _shares(log_weights, founders, num_founders)
    return jnp.log(jnp.sum(shares * (1.0 - shares)))


def evidence_from_runs(log_evidences: Float[Array, " run"]) -> Evidence:
    """Pool independent runs: the log of the mean of Ẑ, and its standard error.

    Args:
        log_evidences: log Ẑ of each run; at least two.

    Returns:
        The pooled estimate.

    Example:
        >>> import jax.numpy as jnp, partialbayes as pb
        >>> pooled = pb.feynman_kac.evidence_from_runs(jnp.log(jnp.array([1.0, 3.0])))
        >>> round(float(pooled.log_evidence), 4), float(pooled.standard_error)
        (0.6931, 0.5)
    """
    log_evidences = jnp.asarray(log_evidences)
    num_runs = log_evidences.shape[0]
    if num_runs < 2:
        raise ValueError(f"log_evidences holds {num_runs} run; a standard error needs at least two.")
    log_mean = jax.nn.logsumexp(log_evidences) - jnp.log(num_runs)
    ratios = jnp.exp(log_evidences - log_mean)
    return Evidence(log_mean, jnp.std(ratios, ddof=1) / jnp.sqrt(num_runs))

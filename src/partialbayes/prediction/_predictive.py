"""The posterior predictive as an object: each quantity is computed when it is asked for.

A posterior is a mixture: Σ_j w_j p(y | x, φ_j; ψ), over members too where it is an ensemble. Every
quantity is one compiled function of `mixture`, in bounded memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from partialbayes._utils.checks import as_key, require_positive_int
from partialbayes.likelihoods._common import match_shape
from partialbayes.model._batch import as_batch
from partialbayes.prediction import _mixture as mixture
from partialbayes.prediction._target_scale import TargetScale
from partialbayes.types import Chunks, Model, Particles, Posterior, PRNGKey, Seed
from partialbayes.weights import weighted_quantile

_ENOUGH_SAMPLES = 2000  # where a likelihood has no closed form


class Components(NamedTuple):
    """What each particle predicts by itself, members of an ensemble one after another.

    Attributes:
        mean: Of the targets given the particle; class probabilities for a classification.
        variance: Of the targets given the particle.
        log_weights: Of the particles.
    """

    mean: Float[Array, "component example ..."]
    variance: Float[Array, "component example ..."]
    log_weights: Float[Array, " component"]


@dataclass(frozen=True, eq=False, repr=False)
class Predictive:
    """The predictive mixture at some inputs, in the original units of the targets.

    Made by `predict`. Arrays have one row per input, and the outputs after that; a single output
    has no axis of its own. Moments are computed once, at first use.

    Example:
        >>> import jax.numpy as jnp, partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 5, 1]), "layers/0/*", pb.gaussian())
        >>> x = jnp.linspace(-1.0, 1.0, 8)[:, None]
        >>> trained = pb.fit(pb.ohsmc(model, num_particles=10), (x, x), epochs=2, progress=False)
        >>> predictive = pb.predict(model, trained.posterior, x)
        >>> low, high = predictive.interval(0.9)
        >>> bool((low < high).all())
        True
    """

    model: Model
    posterior: Posterior
    inputs: PyTree
    target_scale: TargetScale | None = None
    chunks: Chunks = Chunks()  # noqa: RUF009

    def __repr__(self) -> str:
        rows, particles = jax.tree.leaves(self.inputs)[0].shape[0], self.posterior.particles
        return f"Predictive(rows={rows}, particles={particles.log_weights.size})"

    @cached_property
    def _moments(self) -> mixture.MixtureMoments:
        mean, aleatoric, epistemic = mixture.moments(*self._mixture, self.chunks)
        square = jnp.square(self._scale(mean))
        return mixture.MixtureMoments(self._restore(mean), square * aleatoric, square * epistemic)

    @property
    def mean(self) -> Float[Array, "example ..."]:
        """Σ_j w_j E[y | φ_j]; of classes the probability of class one, or of each class."""
        return self._moments.mean

    @property
    def variance(self) -> Float[Array, "example ..."]:
        """Total variance, aleatoric plus epistemic."""
        return self._moments.aleatoric_variance + self._moments.epistemic_variance

    @property
    def std(self) -> Float[Array, "example ..."]:
        """Standard deviation."""
        return jnp.sqrt(self.variance)

    @property
    def aleatoric_variance(self) -> Float[Array, "example ..."]:
        """Σ_j w_j Var[y | φ_j]: the noise that stays however much data there is."""
        return self._moments.aleatoric_variance

    @property
    def epistemic_variance(self) -> Float[Array, "example ..."]:
        """Variance between particles of E[y | φ_j]: the part more data would remove."""
        return self._moments.epistemic_variance

    @cached_property
    def _classes(self) -> mixture.Classes:
        if not self.model.likelihood.is_classification:
            raise ValueError(
                "class probabilities and entropies are for classifications, and this likelihood is not "
                "one; use mean, variance, aleatoric and epistemic."
            )
        return mixture.classes(*self._mixture, self.chunks)

    @property
    def probabilities(self) -> Float[Array, "example ... class"]:
        """Of each class, along the last axis; two of them for a Bernoulli likelihood."""
        return self._classes.probabilities

    @property
    def entropy(self) -> Float[Array, "example ..."]:
        """Entropy of the class probabilities in nats: expected entropy plus mutual information."""
        return jax.scipy.special.entr(self._classes.probabilities).sum(axis=-1)

    @property
    def expected_entropy(self) -> Float[Array, "example ..."]:
        """Σ_j w_j H[y | φ_j], the aleatoric part."""
        return self._classes.expected_entropy

    @property
    def mutual_information(self) -> Float[Array, "example ..."]:
        """Between the label and φ, the epistemic part: how far the particles disagree."""
        return self._classes.mutual_information

    def log_density(self, targets: Any) -> Float[Array, " example"]:
        """Log Σ_j w_j p(y_i | x_i, φ_j; ψ), in the targets' own units.

        Args:
            targets: One row per input.
        """
        data = as_batch(self.model, (self.inputs, self._standardize(targets)), "data")
        values = mixture.log_density(self.model, self.posterior, data, self.chunks)
        if self.target_scale is None:
            return values
        missing = np.isnan(np.asarray(targets, float))
        logs = np.log(np.broadcast_to(self.target_scale.scale, missing.shape))  # dz/dy = 1 / scale
        return values - jnp.asarray(np.where(missing, 0.0, logs).reshape(len(logs), -1).sum(axis=1))

    def cdf(self, targets: Any) -> Float[Array, "example ..."]:
        """Σ_j w_j P(Y ≤ y_i | x_i, φ_j; ψ), entry by entry.

        Args:
            targets: One row per input, or a threshold for all.
        """
        self._refuse_classes("cumulative probabilities")
        if self.model.likelihood.cdf is None:
            raise ValueError(
                "this likelihood has no cumulative distribution; pass custom(..., cdf=...)."
            )
        values = jnp.asarray(self._standardize(targets), jnp.result_type(float))
        shape = self.mean.shape
        if values.ndim > 0:
            values = match_shape(values, shape, "given")
        return mixture.cdf(*self._mixture, jnp.broadcast_to(values, shape), self.chunks)

    def quantile(self, levels: Any) -> Float[Array, ...]:
        """The smallest y with cumulative probability at least the level, entry by entry.

        Exact, by bisection, where the likelihood has a cumulative distribution; otherwise from
        weighted samples with a fixed seed.

        Args:
            levels: A number between 0 and 1, or several: these become the leading axis.
        """
        self._refuse_classes("quantiles")
        wanted = np.atleast_1d(np.asarray(levels, float))
        if wanted.ndim != 1 or not np.all((wanted > 0.0) & (wanted < 1.0)):
            raise ValueError(f"levels must lie strictly between 0 and 1, not {levels!r}.")
        array = jnp.asarray(wanted, jnp.result_type(float))
        if self.model.likelihood.cdf is not None:
            values = self._restore(mixture.quantile(*self._mixture, array, self.chunks))
        else:
            draws, log_weights = self.weighted_samples(jax.random.key(0))
            flat = Particles(draws.reshape(len(draws), -1), log_weights)
            values = weighted_quantile(flat, array).reshape(-1, *draws.shape[1:])
        return values[0] if np.ndim(levels) == 0 else values

    def interval(
        self, coverage: float = 0.9
    ) -> tuple[Float[Array, "example ..."], Float[Array, "example ..."]]:
        """The central interval: as much probability below as above.

        Args:
            coverage: Probability inside, between 0 and 1.
        """
        if not 0.0 < coverage < 1.0:
            raise ValueError(f"coverage must lie strictly between 0 and 1, not {coverage!r}.")
        low, high = self.quantile([0.5 - 0.5 * coverage, 0.5 + 0.5 * coverage])
        return low, high

    def sample(self, key: Seed, num: int) -> PyTree:
        """Draws of new targets, along a leading axis.

        One draw takes the same particle for every row, so that it is a draw of the whole function
        with noise on it.

        Args:
            key: A ``jax.random.key`` or a whole number to make one from.
            num: How many.
        """
        require_positive_int("num", num, "the number of draws.")
        key = as_key(key)
        draws = mixture.sample(*self._mixture, key, num, self.chunks)
        return draws if self.target_scale is None else self._restore(draws)

    def components(self) -> Components:
        """What each particle predicts by itself, and its weight."""
        means, variances = mixture.component_moments(*self._mixture, self.chunks)
        square = jnp.square(self._scale(means))
        log_weights = self.posterior.particles.log_weights.ravel()
        return Components(self._restore(means), square * variances, log_weights)

    def weighted_samples(
        self, key: PRNGKey
    ) -> tuple[Float[Array, "draw example ..."], Float[Array, " draw"]]:
        """At least 2000 draws, as many from every particle, and their log-weights."""
        each = -(-_ENOUGH_SAMPLES // self.posterior.particles.log_weights.size)
        draws, log_weights = mixture.weighted_samples(*self._mixture, key, each, self.chunks)
        return self._restore(draws), log_weights

    @property
    def _mixture(self) -> tuple[Model, Posterior, PyTree]:
        return self.model, self.posterior, self.inputs

    def _scale(self, like: Array) -> Array:
        scale = 1.0 if self.target_scale is None else self.target_scale.scale
        return jnp.broadcast_to(jnp.asarray(scale, like.dtype), like.shape)

    def _restore(self, values: Array) -> Array:
        if self.target_scale is None:
            return values
        shift = jnp.asarray(self.target_scale.shift, values.dtype)
        return jnp.broadcast_to(shift, values.shape) + self._scale(values) * values

    def _standardize(self, targets: Any) -> Any:
        return targets if self.target_scale is None else self.target_scale.apply(targets)

    def _refuse_classes(self, what: str) -> None:
        if self.model.likelihood.is_classification:
            raise ValueError(
                f"{what} are for targets that are numbers, and these are classes; use probabilities, "
                "entropy and mutual_information."
            )

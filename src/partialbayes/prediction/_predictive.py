"""The posterior predictive Σ_j w_j p(y | x, φ_j; ψ) as an object with lazy quantities.

Every quantity is one compiled function of `mixture`, in bounded memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from partialbayes._utils.checks import as_key, num_rows, require_coverage, require_positive_int
from partialbayes.likelihoods._common import match_shape
from partialbayes.model._batch import as_batch, rows_in_bucket
from partialbayes.prediction import _mixture as mixture
from partialbayes.prediction._target_scale import TargetScale
from partialbayes.types import Chunks, Model, Particles, Posterior, PRNGKey, Seed
from partialbayes.weights import uniform_log_weights, weighted_quantile

_ENOUGH_SAMPLES = 2000  # where a likelihood has no closed form

Values: TypeAlias = Array | np.ndarray
"""JAX arrays, or NumPy arrays in double precision where units are restored."""


class Components(NamedTuple):
    """The predictions of single particles, with the members of an ensemble concatenated.

    Attributes:
        mean: Mean of the targets given each particle; class probabilities for classification.
        variance: Variance of the targets given each particle.
        log_weights: Log-weights of the particles.
    """

    mean: Float[Values, "component example ..."]
    variance: Float[Values, "component example ..."]
    log_weights: Float[Array, " component"]


@dataclass(frozen=True, eq=False, repr=False)
class Predictive:
    """The predictive mixture at given inputs, in the original units of the targets.

    `predict` returns it. Arrays have one row per input, followed by the axes of the outputs; a single
    output has no axis. Moments are computed once, at first use. With a ``target_scale``, units are
    restored on the host and arrays are NumPy arrays in double precision.

    Example:
        >>> import jax.numpy as jnp, partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 5, 1]), "layers/0/*", pb.gaussian())
        >>> x = jnp.linspace(-1.0, 1.0, 8)[:, None]
        >>> trained = pb.fit(pb.ohsmc(model, num_particles=10), (x, x), epochs=2)
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
        rows, particles = self._rows, self.posterior.particles
        return f"Predictive(rows={rows}, particles={particles.log_weights.size})"

    def _repr_html_(self) -> str:
        """Format the first rows for a notebook."""
        rows = min(5, jax.tree.leaves(self.inputs)[0].shape[0])
        few = replace(self, inputs=jax.tree.map(lambda leaf: leaf[:rows], self.inputs))
        if self.model.likelihood.is_classification:
            shown = np.asarray(few.probabilities).reshape(rows, -1)[:, :8]
            names = [f"P(class {place})" for place in range(shown.shape[1])]
        else:
            parts = (few.mean, few.std)
            shown = np.concatenate([np.asarray(part).reshape(rows, -1)[:, :4] for part in parts], axis=1)
            names = [name for name in ("mean", "std") for _ in range(shown.shape[1] // 2)]
        head = "".join(f"<th>{name}</th>" for name in names)
        body = "".join(
            "<tr>" + "".join(f"<td>{value:.4g}</td>" for value in row) + "</tr>" for row in shown
        )
        return f"<p>{self!r}, the first {rows}:</p><table><tr>{head}</tr>{body}</table>"

    @property
    def _rows(self) -> int:
        return int(jax.tree.leaves(self.inputs)[0].shape[0])

    @cached_property
    def _padded(self) -> PyTree:
        """Inputs, padded with their last row to a number of rows that shares a compiled program.

        A program is compiled for each number of rows, so results are computed for padded inputs and cut
        on the host.
        """
        leaves = jax.tree.leaves(self.inputs)
        if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
            return self.inputs
        if any(isinstance(leaf, jax.Array) and len(leaf.devices()) > 1 for leaf in leaves):
            return self.inputs
        return jax.tree.map(self._pad, self.inputs)

    def _pad(self, leaf: Any) -> Array:
        array = np.asarray(leaf)
        missing = rows_to_compute(self.inputs) - len(array)
        return jax.device_put(np.concatenate([array, np.repeat(array[-1:], missing, axis=0)]))

    def _cut(self, values: Array, axis: int = 0) -> Array:
        """Cut the padding."""
        if self._padded is self.inputs or values.shape[axis] == self._rows:
            return values
        # jnp.asarray would compile a program for each shape.
        return jax.device_put(np.asarray(values)[(slice(None),) * axis + (slice(self._rows),)])

    def _take(self, values: Values, index: int) -> Values:
        if isinstance(values, np.ndarray) or self._padded is self.inputs:
            return values[index]
        return jax.device_put(np.asarray(values)[index])

    @cached_property
    def _moments(self) -> mixture.MixtureMoments:
        """Moments in the units of training, at the padded rows."""
        return mixture.moments(*self._mixture, self.chunks)

    @cached_property
    def _log_moments(self) -> mixture.MixtureMoments:
        """Moments of the targets themselves, if the model was trained on their logarithms."""
        means, variances, log_weights = self.components()
        arrays = _library(means)
        weights = arrays.exp(arrays.asarray(log_weights))
        mean = arrays.tensordot(weights, means, 1)
        between = arrays.tensordot(weights, arrays.square(means - mean[None]), 1)
        return mixture.MixtureMoments(mean, arrays.tensordot(weights, variances, 1), between)

    @property
    def mean(self) -> Float[Values, "example ..."]:
        """Mean Σ_j w_j E[y | φ_j]; for classes, the probability of class one or of each class."""
        return self._log_moments.mean if self._is_log else self._restore(self._cut(self._moments.mean))

    @property
    def variance(self) -> Float[Values, "example ..."]:
        """Total variance, aleatoric plus epistemic."""
        if self._is_log:
            return self.aleatoric_variance + self.epistemic_variance
        return self._stretch(self._cut(self._moments.variance), 2)

    @property
    def std(self) -> Float[Values, "example ..."]:
        """Standard deviation."""
        if self._is_log:
            return _library(self.variance).sqrt(self.variance)
        return self._stretch(self._cut(jnp.sqrt(self._moments.variance)), 1)

    @property
    def aleatoric_variance(self) -> Float[Values, "example ..."]:
        """Noise Σ_j w_j Var[y | φ_j], which more data do not reduce."""
        if self._is_log:
            return self._log_moments.aleatoric_variance
        return self._stretch(self._cut(self._moments.aleatoric_variance), 2)

    @property
    def epistemic_variance(self) -> Float[Values, "example ..."]:
        """Variance of E[y | φ_j] between particles, which more data reduce."""
        if self._is_log:
            return self._log_moments.epistemic_variance
        return self._stretch(self._cut(self._moments.epistemic_variance), 2)

    @cached_property
    def _classes(self) -> mixture.Classes:
        if not self.model.likelihood.is_classification:
            raise ValueError(
                "class probabilities and entropies are for classifications; for other likelihoods use "
                "mean, variance, aleatoric_variance and epistemic_variance."
            )
        return mixture.classes(*self._mixture, self.chunks)

    @property
    def probabilities(self) -> Float[Array, "example ... class"]:
        """Probability of each class, along the last axis; two classes for a Bernoulli likelihood."""
        return self._cut(self._classes.probabilities)

    @property
    def entropy(self) -> Float[Array, "example ..."]:
        """Entropy of the class probabilities in nats: expected entropy plus mutual information."""
        return self._cut(jax.scipy.special.entr(self._classes.probabilities).sum(axis=-1))

    @property
    def expected_entropy(self) -> Float[Array, "example ..."]:
        """Expected entropy Σ_j w_j H[y | φ_j], the aleatoric part."""
        return self._cut(self._classes.expected_entropy)

    @property
    def mutual_information(self) -> Float[Array, "example ..."]:
        """Mutual information of the label and φ, the epistemic part: the disagreement of particles."""
        return self._cut(self._classes.mutual_information)

    def log_density(self, targets: Any) -> Float[Array, " example"]:
        """Compute log Σ_j w_j p(y_i | x_i, φ_j; ψ), in the units of the targets.

        Args:
            targets: Observed targets, one row per input.

        Returns:
            The log-density of each row, in nats.
        """
        given = self._standardize(targets)
        rows = num_rows("data targets", given)
        if rows != self._rows:
            raise ValueError(
                f"data has {self._rows} rows of inputs but {rows} of targets; pass one target per row."
            )
        if self._padded is not self.inputs:
            given = jax.tree.map(self._pad, given)
        data = as_batch(self.model, (self._padded, given), "data")
        values = self._cut(mixture.log_density(self.model, self.posterior, data, self.chunks))
        if self.target_scale is None:
            return values
        observed = np.asarray(targets, float)
        missing = np.isnan(observed)
        logs = np.log(np.broadcast_to(self.target_scale.scale, missing.shape))  # dz/dy = 1 / scale
        if self._is_log:
            logs = logs + np.log(observed)
        shift = np.where(missing, 0.0, logs).reshape(len(logs), -1).sum(axis=1)
        return jax.device_put(np.asarray(values) - shift.astype(values.dtype))

    def cdf(self, targets: Any) -> Float[Array, "example ..."]:
        """Compute cumulative probabilities Σ_j w_j P(Y ≤ y_i | x_i, φ_j; ψ) of each entry.

        Args:
            targets: One row per input, or one threshold for all.

        Returns:
            The probability for each entry.
        """
        self._refuse_classes("cumulative probabilities")
        if self.model.likelihood.cdf is None:
            raise ValueError("likelihood has no cumulative distribution; pass custom(..., cdf=...).")
        shape = self._moments.mean.shape
        values = np.asarray(self._standardize(targets), np.result_type(jnp.result_type(float)))
        if values.ndim > 0:
            values = match_shape(values, (self._rows, *shape[1:]), "given")
            if self._padded is not self.inputs:
                values = np.asarray(self._pad(values))
        at = jnp.asarray(np.broadcast_to(values, shape))
        return self._cut(mixture.cdf(*self._mixture, at, self.chunks))

    def quantile(self, levels: Any) -> Float[Values, ...]:
        """Compute quantiles of each entry: the smallest y with cumulative probability ≥ the level.

        Quantiles are found by bisection if the likelihood has a cumulative distribution, else estimated
        from samples with a fixed seed.

        Args:
            levels: One level strictly between 0 and 1, or several, which become the leading axis.

        Returns:
            The quantiles.
        """
        self._refuse_classes("quantiles")
        wanted = np.atleast_1d(levels)
        is_number = wanted.dtype.kind in "iuf" or wanted.size == 0
        if not (is_number and wanted.ndim == 1 and np.all((wanted > 0.0) & (wanted < 1.0))):
            raise ValueError(f"levels must lie strictly between 0 and 1, not {levels!r}.")
        array = jnp.asarray(wanted, jnp.result_type(float))
        if self.model.likelihood.cdf is not None:
            values = mixture.quantile(*self._mixture, array, self.chunks)
        else:
            draws = self._even_draws(jax.random.key(0))
            flat = Particles(draws.reshape(len(draws), -1), uniform_log_weights(len(draws)))
            values = weighted_quantile(flat, array).reshape(-1, *draws.shape[1:])
        # Cut on the host: each slice on the device would compile a program.
        values = self._cut(values, axis=1)
        return self._restore(self._take(values, 0) if np.ndim(levels) == 0 else values)

    def interval(
        self, coverage: float = 0.9
    ) -> tuple[Float[Values, "example ..."], Float[Values, "example ..."]]:
        """Compute central intervals, with equal probability below and above.

        Args:
            coverage: Probability inside the interval, strictly between 0 and 1.

        Returns:
            The lower and the upper ends.
        """
        if np.ndim(coverage) != 0:
            raise ValueError(
                f"coverage must be one number, not {coverage!r}; call it once for each, or use "
                "quantile, which takes several levels."
            )
        require_coverage(coverage)
        both = self.quantile([0.5 - 0.5 * coverage, 0.5 + 0.5 * coverage])
        return self._take(both, 0), self._take(both, 1)

    def sample(self, key: Seed, num: int) -> PyTree:
        """Draw new targets, along a leading axis.

        Each draw uses one particle for all rows: it is a draw of the whole function, plus noise.

        Args:
            key: A ``jax.random.key``, or an integer seed.
            num: Number of draws.

        Returns:
            The draws, in the original units.
        """
        require_positive_int("num", num, "the number of draws.")
        key = as_key(key)
        draws = mixture.sample(*self._mixture, key, num, self.chunks)
        draws = jax.tree.map(lambda leaf: self._cut(leaf, axis=1), draws)
        return draws if self.target_scale is None else self._restore(draws)

    def components(self) -> Components:
        """Compute the predictions of each particle, and its weight.

        Returns:
            Mean, variance and log-weight of each component.
        """
        means, variances = mixture.component_moments(*self._mixture, self.chunks)
        log_weights = self.posterior.particles.log_weights.ravel()
        means = self._restore(self._cut(means, axis=1))
        variances = self._stretch(self._cut(variances, axis=1), 2)
        if self._is_log:  # the moments of exp Z for a normal Z
            arrays = _library(means)
            # Far from the data a variance may be so large that its exponential means nothing.
            variances = arrays.minimum(variances, self._stretch(arrays.ones_like(variances), 2))
            means = means * arrays.exp(0.5 * variances)
            variances = arrays.expm1(variances) * arrays.square(means)
        return Components(means, variances, log_weights)

    def even_sample(self, key: PRNGKey) -> Float[Values, "draw example ..."]:
        """Draw at least 2000 targets, and at least one per particle, stratified by weight.

        Args:
            key: A ``jax.random.key``.

        Returns:
            The draws, along a leading axis.
        """
        return self._restore(self._cut(self._even_draws(key), axis=1))

    def _even_draws(self, key: PRNGKey) -> Array:
        size = self.posterior.particles.log_weights.size
        each = -(-_ENOUGH_SAMPLES // size)  # the same from each where they weigh the same
        return mixture.even_sample(*self._mixture, key, each * size, self.chunks)

    @property
    def _mixture(self) -> tuple[Model, Posterior, PyTree]:
        return self.model, self.posterior, self._padded

    @property
    def _is_log(self) -> bool:
        return self.target_scale is not None and bool(self.target_scale.log)

    def _restore(self, values: Values) -> Values:
        if self.target_scale is None:
            return values
        if isinstance(values, jax.core.Tracer):  # inside a larger program
            shift = jnp.asarray(self.target_scale.shift, values.dtype)
            restored = jnp.broadcast_to(shift, values.shape) + self._stretch(values, 1)
            return jnp.exp(restored) if self._is_log else restored
        own_units: np.ndarray = self.target_scale.restore(values)
        return own_units

    def _stretch(self, values: Values, power: int) -> Values:
        """Convert a standard deviation (power 1) or variance (power 2) to the original units."""
        if self.target_scale is None:
            return values
        factor = np.asarray(self.target_scale.scale, float) ** power
        if isinstance(values, jax.core.Tracer):
            return jnp.broadcast_to(jnp.asarray(factor, values.dtype), values.shape) * values
        return factor * np.asarray(values, float)

    def _standardize(self, targets: Any) -> Any:
        if self._is_log and np.any(np.asarray(targets, float) < 0):
            raise ValueError(
                "targets must not be negative, because the model was trained on their logarithms."
            )
        return targets if self.target_scale is None else self.target_scale.apply(targets)

    def _refuse_classes(self, what: str) -> None:
        if self.model.likelihood.is_classification:
            raise ValueError(
                f"{what} need numeric targets, but these are classes; use probabilities, entropy and "
                "mutual_information."
            )


def rows_to_compute(inputs: PyTree) -> int:
    """Return the number of padded rows; small numbers of vectors share one compiled program."""
    leaves = jax.tree.leaves(inputs)
    rows = int(leaves[0].shape[0])
    return rows_in_bucket(max(rows, 64) if all(leaf.ndim == 2 for leaf in leaves) else rows)


def _library(values: Any) -> Any:
    """Return JAX inside a larger program, else NumPy, which has double precision."""
    return jnp if isinstance(values, jax.core.Tracer) else np

"""The crescent: two random weights, one parameter, and a posterior known by quadrature.

    φ ~ N(0, diag(2, 1)),    y ~ N(φ₁/ψ + (φ₀² + ψ²)/2, 1)

Given φ₀ everything is Gaussian, so evidence and posterior need one numerical integral. ψ̂, the
maximizer of the evidence, is not the ψ = 1 the data were drawn at: all data share one φ, so more of
them do not tell more of ψ. For a sample mean of ½ it is about 1.096.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from partialbayes.likelihoods import gaussian
from partialbayes.metrics._common import AnyArray
from partialbayes.model._partial_bnn import partial_bnn
from partialbayes.priors._priors import normal
from partialbayes.types import Model, Network, PRNGKey, Scalar

_FIRST = np.linspace(-12.0, 12.0, 4001)
"""Values of φ₀ that the integral runs over."""


class Crescent(NamedTuple):
    """The model with data.

    Attributes:
        model: Trains ψ from ``start``.
        inputs: Zeros: nothing depends on them.
        targets: The data.
    """

    model: Model
    inputs: Float[Array, "row 1"]
    targets: Float[Array, " row"]

    def log_evidence(self, psi: Scalar | float) -> Scalar:
        """Log p(y; ψ), the integral over φ₀ by quadrature."""
        rows = len(self.targets)
        squares = jnp.sum(jnp.square(self.targets - self.targets.mean()))
        within = -0.5 * squares - 0.5 * (rows - 1) * jnp.log(2.0 * jnp.pi) - 0.5 * jnp.log(rows)
        joint = self._log_joint(psi, jnp.asarray(_FIRST))
        return jax.nn.logsumexp(joint) + jnp.log(_FIRST[1] - _FIRST[0]) + within

    def best_psi(self) -> float:
        """The positive maximizer of the evidence, which is even in ψ."""
        grid = jnp.linspace(0.05, 4.0, 7901)
        return float(grid[jnp.argmax(jax.vmap(self.log_evidence)(grid))])

    def log_density(self, psi: float, phi: Float[Array, "*point 2"]) -> Float[Array, "*point"]:
        """Log p(φ, ȳ; ψ) up to a constant, for contours."""
        center = phi[..., 1] / psi + 0.5 * (phi[..., 0] ** 2 + psi**2)
        fit = -0.5 * len(self.targets) * jnp.square(self.targets.mean() - center)
        return fit - 0.25 * phi[..., 0] ** 2 - 0.5 * phi[..., 1] ** 2

    def distances(
        self, psi: float, values: Float[AnyArray, "particle 2"], weights: Float[AnyArray, " particle"]
    ) -> tuple[float, float]:
        """Kolmogorov–Smirnov distances of weighted samples to the posterior of φ₀ and of φ₁ at ψ."""
        first = second = np.linspace(-6.0, 6.0, 801)
        points = jnp.stack(jnp.meshgrid(jnp.asarray(first), jnp.asarray(second), indexing="ij"), -1)
        density = np.asarray(jnp.exp(self.log_density(psi, points)), float)
        marginals = ((first, density.sum(1)), (second, density.sum(0)))
        return tuple(  # type: ignore[return-value]
            _distance(grid, mass, np.asarray(values[:, index]), np.asarray(weights))
            for index, (grid, mass) in enumerate(marginals)
        )

    def _log_joint(self, psi: Scalar | float, first: Float[Array, " point"]) -> Float[Array, " point"]:
        """Log N(ȳ; (φ₀² + ψ²)/2, 1/N + 1/ψ²) + log N(φ₀; 0, 2), φ₁ integrated out."""
        center, variance = 0.5 * (first**2 + psi**2), 1.0 / len(self.targets) + 1.0 / psi**2
        log_mean = -0.5 * (self.targets.mean() - center) ** 2 / variance
        log_mean -= 0.5 * jnp.log(2.0 * jnp.pi * variance)
        return log_mean - 0.25 * first**2 - 0.5 * jnp.log(4.0 * jnp.pi)


def _distance(grid: np.ndarray, mass: np.ndarray, values: np.ndarray, weights: np.ndarray) -> float:
    """The largest gap between two distribution functions, at the grid's points."""
    exact = np.cumsum(mass) / mass.sum()
    order = np.argsort(values)
    steps = np.concatenate([[0.0], np.cumsum(weights[order]) / weights.sum()])
    return float(np.abs(exact - steps[np.searchsorted(values[order], grid, side="right")]).max())


def crescent(targets: Float[Array, " row"], start: float = 0.1) -> Crescent:
    """The model with given data.

    Args:
        targets: The data, see `reproduction.data.crescent`.
        start: Where ψ begins.
    """
    return Crescent(crescent_model(start), jnp.zeros((len(targets), 1)), jnp.asarray(targets))


@cache
def crescent_model(start: float) -> Model:
    """The model alone, one object for each start, so that many data sets compile once."""

    def init(key: PRNGKey) -> PyTree:
        return {"phi": jnp.zeros(2), "psi": jnp.asarray(start, float)}

    def apply(params: PyTree, inputs: Float[Array, "row 1"]) -> Float[Array, " row"]:
        phi, psi = params["phi"], params["psi"]
        return jnp.broadcast_to(phi[1] / psi + 0.5 * (phi[0] ** 2 + psi**2), inputs.shape[:1])

    prior = normal(scale=np.sqrt([2.0, 1.0]))  # variances 2 and 1
    return partial_bnn(Network(init, apply), "phi", gaussian(variance=1.0), prior)

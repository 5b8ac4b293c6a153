"""Correct the spread of a predictive mixture by the density of held-out rows.

    k, f, τ  or  T   =   argmax Σ_i log Σ_j w_j p(y_i | x_i, φ_j; ψ, numbers) + log prior(numbers)

The prior counts as one row: numbers from few rows stay near 1, and all are bounded.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree

from partialbayes._utils.checks import require_instance
from partialbayes.likelihoods._calibrated import adjust, calibrated
from partialbayes.model._batch import as_batch
from partialbayes.model._partial_bnn import with_likelihood
from partialbayes.prediction._components import components
from partialbayes.types import Likelihood, Model, Posterior

_FACTORS = (np.log(0.2), np.log(8.0))
_FLOORS = (np.log(1e-4), np.log(3.0))  # in standard deviations of the targets
_TAILS = (np.log(0.02), np.log(20.0))
_TEMPERATURES = (np.log(0.2), np.log(8.0))


def calibrate(model: Model, posterior: Posterior, data: Any) -> tuple[Model, Posterior]:
    """Correct the spread of any posterior by rows it was not trained on.

    Classes get a temperature; real targets with Gaussian or Student-t noise a scale factor and a floor
    of the noise, and Student's t also a correction of its tails. The numbers maximize the predictive
    density of the rows, are bounded, and become part of ψ: predictions, scores, `save` and `export` work
    as before.

    Args:
        model: The model that was trained.
        posterior: The posterior, from `fit`.
        data: A pair ``(inputs, targets)`` that training has not seen, in the units of training.

    Returns:
        The model with `likelihoods.calibrated` around its likelihood, and the posterior for it.

    Example:
        >>> import partialbayes as pb  # model, trained and x as in the example of predict
        >>> model, posterior = pb.calibrate(model, trained.posterior, (x, x))
        >>> sorted(posterior.psi.likelihood["calibration"])
        ['floor', 'log_factor', 'log_tail']
    """
    require_instance("model", model, Model, "for example partial_bnn(network, stochastic, likelihood).")
    batch = as_batch(model, data, "data")
    base = _components(model, posterior, batch.inputs)
    log_weights = posterior.particles.log_weights.reshape(-1, 1)
    numbers = find_numbers(model.likelihood, base, batch.targets, log_weights, batch.mask)
    psi = posterior.psi._replace(likelihood=_with_numbers(posterior, posterior.psi.likelihood, numbers))
    return _with_numbers_to_find(model), posterior._replace(psi=psi)


@lru_cache(maxsize=8)
def _with_numbers_to_find(model: Model) -> Model:
    """Return the same object for the same model, so that predictions compile once."""
    return with_likelihood(model, calibrated(model.likelihood))


def _with_numbers(posterior: Posterior, base: PyTree, numbers: dict[str, float]) -> PyTree:
    shape = (posterior.num_members,) if posterior.is_ensemble else ()
    each = {name: jnp.full(shape, value, jnp.result_type(float)) for name, value in numbers.items()}
    return {"base": base, "calibration": each}


_components = partial(jax.jit, static_argnames=("model",))(partial(components, particle_chunk=None))


def find_numbers(
    likelihood: Likelihood,
    parameters: PyTree,
    targets: PyTree,
    log_weights: Float[Array, "component row"],
    mask: Bool[Array, " example"],
) -> dict[str, float]:
    """Find the numbers of `calibrated`, by name, that make the held-out rows most probable.

    ``parameters`` are those of the distribution before any correction, with an axis of components and
    one of rows. ``log_weights`` are the same for all rows, or one per row.
    """
    from scipy import optimize  # slow to import, and needed only here

    counted = np.asarray(mask)
    count = max(int(counted.sum()), 1)

    def score(numbers: dict[str, float]) -> float:
        values = np.asarray(log_densities(numbers, likelihood, parameters, targets, log_weights))
        value = -float(np.mean(values[counted], dtype=float))
        return value if np.isfinite(value) else 1e9

    if likelihood.is_classification:

        def of_temperature(x: float) -> float:
            return score({"log_temperature": x}) + 0.5 * x * x / count

        found = optimize.minimize_scalar(
            of_temperature, bounds=_TEMPERATURES, method="bounded", options={"xatol": 0.01}
        )
        return {"log_temperature": float(found.x)}

    bounds = np.array([_FACTORS, _FLOORS, _TAILS])

    def named(x: Any) -> dict[str, float]:
        factor, floor, tail = np.clip(x, *bounds.T)
        return {"log_factor": float(factor), "floor": float(np.exp(floor)), "log_tail": float(tail)}

    def of_numbers(x: Any) -> float:
        outside = np.square(x - np.clip(x, *bounds.T)).sum()
        return score(named(x)) + 0.5 * (x[0] ** 2 + 0.25 * x[2] ** 2) / count + outside

    start = np.array([[0.0, -3.5, 0.0], [0.5, -3.5, 0.0], [0.0, -1.0, 0.0], [0.0, -3.5, -1.0]])
    found = optimize.minimize(
        of_numbers,
        start[0],
        method="Nelder-Mead",
        options={"initial_simplex": start, "xatol": 0.02, "fatol": 1e-5, "maxfev": 160},
    )
    return named(found.x)


@partial(jax.jit, static_argnames=("likelihood",))
def log_densities(
    numbers: dict[str, Array],
    likelihood: Likelihood,
    parameters: PyTree,
    targets: PyTree,
    log_weights: Array,
) -> Float[Array, " example"]:
    """Compute the log-density of each row under the corrected mixture."""
    each = jax.vmap(lambda base: likelihood.log_density(adjust(base, numbers), targets))(parameters)
    return jax.nn.logsumexp(each + log_weights, axis=0)

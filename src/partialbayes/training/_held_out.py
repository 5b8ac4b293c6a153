"""What rows that were not trained on say: how much noise there is, and how strong a prior of ψ to use.

The noise that is learned with the weights shrinks with the residuals of the rows they were trained on.
Here it is estimated on others; and of several priors of ψ, each trained to the end of its schedule, the
one with the best held-out density is chosen. Neither depends on which step of a run was looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PyTree

from partialbayes._engine.settings import Run
from partialbayes._utils.checks import require_positive, require_positive_int
from partialbayes.algorithms import weight_prior
from partialbayes.model._batch import as_batch
from partialbayes.model._partial_bnn import noise_of
from partialbayes.prediction import _mixture as mixture
from partialbayes.training._fit_many import fit_many
from partialbayes.types import Algorithm, Batch, Fit, Model, Posterior, Seed

_STEPS = 200


def calibrate_noise(model: Model, posterior: Posterior, held_out: Any) -> Posterior:
    """Estimate the learned parameters of the likelihood again, on rows that were not trained on.

    All members and particles keep their weights; what is learned of the likelihood, in coordinates
    without bounds, is shifted by the same amount for all members, to the highest density of the
    held-out rows under the predictive mixture.

    Args:
        model: The model that was trained.
        posterior: What training found.
        held_out: A pair ``(inputs, targets)``.

    Raises:
        ValueError: The likelihood has no learned parameter, or the data do not fit.

    Example:
        >>> import jax.numpy as jnp, partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 5, 1]), "layers/0/*", pb.gaussian(pb.learned(0.1)))
        >>> x = jnp.linspace(-1.0, 1.0, 8)[:, None]
        >>> trained = pb.fit(pb.map_estimate(model), (x, x), epochs=9)
        >>> posterior = pb.training.calibrate_noise(model, trained.posterior, (x, x + 1.0))
        >>> bool(posterior.psi.likelihood > trained.posterior.psi.likelihood)
        True
    """
    batch = as_batch(model, held_out, "held_out")
    if not jax.tree.leaves(model.likelihood.init()):
        raise ValueError(
            "the likelihood has no learned parameter to estimate; for example gaussian(learned(1.0))."
        )
    return _calibrated(model, posterior, batch)[0]


@partial(jax.jit, static_argnames="model")
def _calibrated(model: Model, posterior: Posterior, batch: Batch) -> tuple[Posterior, Array]:
    """The posterior with its likelihood shifted, and the log-density of each row under it."""

    def shifted(shift: PyTree) -> Posterior:
        likelihood = jax.tree.map(
            lambda value, step: value + step.astype(value.dtype), posterior.psi.likelihood, shift
        )
        return posterior._replace(psi=posterior.psi._replace(likelihood=likelihood))

    def loss(shift: PyTree) -> Array:
        return -mixture.log_density(model, shifted(shift), batch, model.chunks).mean()

    start = jax.tree.map(jnp.zeros_like, model.likelihood.init())
    # A short memory: the first gradients, far from the optimum, are larger by orders of magnitude.
    optimizer = optax.adam(optax.cosine_decay_schedule(0.2, _STEPS), b1=0.5, b2=0.8)

    def step(_: Any, carry: tuple[Any, ...]) -> tuple[Any, ...]:
        shift, state, best, lowest = carry
        value, gradient = jax.value_and_grad(loss)(shift)
        better = value < lowest
        best = jax.tree.map(partial(jnp.where, better), shift, best)
        updates, state = optimizer.update(gradient, state)
        return optax.apply_updates(shift, updates), state, best, jnp.where(better, value, lowest)

    infinity = jnp.asarray(jnp.inf, jnp.result_type(float))
    first = (start, optimizer.init(start), start, infinity)
    _, _, best, _ = jax.lax.fori_loop(0, _STEPS, step, first)
    found = shifted(best)
    return found, mixture.log_density(model, found, batch, model.chunks)


class PriorFit(NamedTuple):
    """What `fit_with_prior` returns.

    Attributes:
        fit: The run with the chosen prior, its noise estimated on the held-out rows.
        scale: The chosen scale.
        held_out_nlpd: The score of each scale, at the end of its run.

    Example:
        >>> import numpy as np, partialbayes as pb
        >>> chosen = pb.training.PriorFit(None, 1.0, np.array([1.2, 1.0]))
    """

    fit: Fit
    scale: float
    held_out_nlpd: Float[np.ndarray, " scale"]


def fit_with_prior(
    build: Callable[[optax.GradientTransformation], Algorithm],
    data: Any,
    held_out: Any,
    *,
    epochs: int,
    optimizer: optax.GradientTransformation,
    scales: Sequence[float] = (0.3, 1.0, 3.0, 10.0, 30.0),
    batch_size: int | None = None,
    key: Seed = 0,
    progress: bool = True,
) -> PriorFit:
    """Train with priors of ψ of several scales at once, each to the end, and keep the best.

    No step of a run is chosen: the score of a scale is that of its end, with the noise estimated on
    the held-out rows. The learning rate should therefore fall to nothing over the run.

    Args:
        build: From an optimizer to the method, such as ``lambda optimizer: ohsmc(model,
            optimizer=optimizer)``; what it is given has `weight_prior` in front.
        data: A pair ``(inputs, targets)``.
        held_out: A pair like it, to choose by.
        epochs: As in `fit`.
        optimizer: Any Optax transformation.
        scales: Those of `weight_prior` to try. They are trained in one program.
        batch_size: As in `fit`.
        key: As in `fit`; all scales have the same.
        progress: Whether to show a progress bar.

    Raises:
        ValueError: There is no scale, or one is not positive; as in `fit`.

    Example:
        >>> import jax.numpy as jnp, optax, partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 5, 1]), "layers/1/*", pb.gaussian(pb.learned(0.1)))
        >>> x = jnp.linspace(-1.0, 1.0, 8)[:, None]
        >>> found = pb.training.fit_with_prior(
        ...     lambda optimizer: pb.map_estimate(model, optimizer=optimizer),
        ...     (x, jnp.sin(x)), (x + 0.1, jnp.sin(x + 0.1)),
        ...     epochs=20, optimizer=optax.adam(0.01), scales=(0.3, 1.0), progress=False,
        ... )
        >>> found.scale in (0.3, 1.0)
        True
    """
    require_positive_int("the number of scales", len(scales), "for example scales=(0.3, 1.0, 3.0).")
    require_positive("scales", np.asarray(scales, float))
    model = build(optimizer).model
    batch = as_batch(model, held_out, "held_out")

    def with_scale(scale: Array) -> Algorithm:
        return build(optax.chain(weight_prior(model, scale), optimizer))

    several = jnp.asarray(scales, jnp.result_type(float))
    keys = jax.random.key(int(key)) if isinstance(key, int | np.integer) else key
    same = jnp.broadcast_to(keys, (len(scales),))
    runs = fit_many(
        with_scale,
        data,
        epochs=epochs,
        hyperparameters=several,
        batch_size=batch_size,
        key=same,
        run=Run(progress=progress),
    )
    posteriors, scores = [], []
    learns = bool(jax.tree.leaves(model.likelihood.init()))
    for run in runs:
        posterior = run.posterior
        if learns:
            posterior, log_densities = _calibrated(model, posterior, batch)
        else:
            log_densities = mixture.log_density(model, posterior, batch, model.chunks)
        posteriors.append(posterior)
        scores.append(float(-log_densities.mean()))
    best = int(np.nanargmin(scores))
    chosen = posteriors[best]
    fitted = runs[best]._replace(posterior=chosen, noise=noise_of(model, chosen))
    return PriorFit(fitted, float(scales[best]), np.asarray(scores))

"""What the figures show of a trained run: small arrays, kept with its scores."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from partialbayes.prediction._predict import predict
from partialbayes.types import Model, Particles, Posterior
from reproduction import data
from reproduction.experiments.crescent_oracle import Crescent
from reproduction.experiments.problems import Run
from reproduction.figures.records import Boundaries, Clouds, Curves, Flow

_NUM_LINES = 30
_NUM_POINTS = 500
_FLOW_PERCENT = (1, 2, 5, 10, 20, 50, 100)  # of the training
_WAVE_GRID = np.linspace(-8.0, 8.0, 160, dtype=np.float32)  # beyond the data, which end at ±6
_ACROSS, _UP = np.linspace(-2.0, 3.0, 50, dtype=np.float32), np.linspace(-1.5, 2.0, 50, dtype=np.float32)


def predict_curves(method: str, model: Model, posterior: Posterior, run: Run) -> Curves:
    """Return what single particles of the synthetic regression predict on a grid.

    Args:
        method: As in the table.
        model: Of the experiment.
        posterior: Of the trained run.
        run: Its data.
    """
    inputs, targets = (np.asarray(part).ravel() for part in run.test)
    truth = np.asarray(data.wave_function(jnp.asarray(_WAVE_GRID)))
    lines = _predict_lines(model, posterior, _WAVE_GRID[:, None])
    return Curves(_WAVE_GRID, truth, {method: lines}, inputs, targets)


def predict_boundaries(method: str, model: Model, posterior: Posterior, run: Run) -> Boundaries:
    """Return the probability of class one by single particles of the two moons, on a grid.

    Args:
        method: As in the table.
        model: Of the experiment.
        posterior: Of the trained run.
        run: Its data.
    """
    grid = np.stack(np.meshgrid(_ACROSS, _UP), -1).reshape(-1, 2)
    lines = _predict_lines(model, posterior, grid).reshape(-1, len(_UP), len(_ACROSS))
    inputs, labels = map(np.asarray, run.test)
    return Boundaries(_ACROSS, _UP, {method: lines}, inputs, labels)


def _predict_lines(model: Model, posterior: Posterior, grid: np.ndarray) -> np.ndarray:
    means, _, log_weights = predict(model, posterior, grid).components()
    values = np.asarray(means, np.float16).reshape(len(means), -1)
    return values[_sample_indices(np.exp(np.asarray(log_weights, float)), _NUM_LINES)]


def _sample_indices(weights: Float[np.ndarray, " particle"], count: int) -> np.ndarray:
    """Draw indices, each then of equal weight; a single point stays one."""
    if len(weights) == 1:
        return np.zeros(1, int)
    return np.random.default_rng(0).choice(len(weights), count, p=weights / weights.sum())


def sample_points(particles: Particles) -> np.ndarray:
    """Draw particles of equal weight from weighted ones.

    Args:
        particles: With their weights.
    """
    weights = np.exp(np.asarray(particles.log_weights, float))
    return np.asarray(particles.values)[_sample_indices(weights, _NUM_POINTS)]


def crescent_clouds(method: str, oracle: Crescent, best: float, posterior: Posterior) -> Clouds:
    """Return draws of the crescent's φ, with the density by quadrature.

    Args:
        method: As in the table.
        oracle: The model with the data of the run.
        best: The ψ to show the density at.
        posterior: Of the trained run.
    """
    first, second = jnp.linspace(-3.0, 3.0, 120), jnp.linspace(-4.0, 3.0, 120)
    density = jnp.exp(oracle.log_density(best, jnp.stack(jnp.meshgrid(first, second), -1)))
    points = sample_points(posterior.particles)
    return Clouds(np.asarray(first), np.asarray(second), np.asarray(density), {method: points})


def crescent_flow(oracle: Crescent, snapshots: Any, psi: np.ndarray, per_epoch: int) -> Flow:
    """Return the prior, then the cloud at times that about double.

    Args:
        oracle: The model with the data of the run.
        snapshots: Posteriors at equally spaced steps, the last at the end.
        psi: ψ at the start, and then at each of the snapshots.
        per_epoch: Steps per epoch.
    """
    posteriors, steps = snapshots.posteriors, snapshots.steps
    times = sorted({max(round(len(steps) * percent / 100), 1) - 1 for percent in _FLOW_PERCENT})
    prior = oracle.model.sample_prior(jax.random.key(0), posteriors[-1].psi, _NUM_POINTS)
    particles = [np.asarray(prior), *(sample_points(posteriors[time].particles) for time in times)]
    epochs = [0, *(steps[time] // per_epoch for time in times)]
    return Flow(np.array(epochs), psi[[0, *(time + 1 for time in times)]], np.stack(particles))

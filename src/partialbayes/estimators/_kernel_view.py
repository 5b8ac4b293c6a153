"""A third view of a small table: a Gaussian process, as a kernel machine for each fold.

    k(z, z') = l² (1 + z·z'/d) + a² h(z)·h(z') / 4d + r² exp(−½ |s ⊙ (z − z')|²)

The three parts are linear, additive (h are bumps of each column) and smooth. The marginal likelihood
finds their sizes l, a, r, the scales s and the noise. It uses the rows outside of a fourth of the folds,
at most 500, so that the rows of a fold never reach what predicts them. Classes are numbers for this
purpose. Given the kernel, numbers have the posterior mean, with a standard deviation that interpolates
those of each row left out. Classes have the most probable logits, by accelerated Newton steps with
Böhning's bound in place of the curvature.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import linalg, optimize, special
from threadpoolctl import threadpool_limits

from partialbayes.estimators._folds import Folds
from partialbayes.estimators._recipe import Recipe
from partialbayes.networks._kernel_machine import basis, draw_in

_MOST_ROWS = 500  # to learn a kernel from
_PARTS = 4  # of the folds, each with a kernel that has not seen it
_STEPS = 60  # of L-BFGS
_LEAST_NOISE = 1e-4  # variance, in units of the targets' own
_SPREAD = 0.5  # of the logarithms of the columns' scales around a common one, by their prior
_SMOOTHING = 0.1  # of the standard deviations between rows
_SIZES = (4.0, 16.0, 64.0, 256.0)  # of logits: variance of the prior, in units of the numbers' kernel
_MOST_ITERATIONS = 300


class Kernel(NamedTuple):
    """The kernel of a Gaussian process.

    Attributes:
        linear: Standard deviation l of the linear part.
        additive: Standard deviation a of the additive part.
        smooth: Standard deviation r of the smooth part.
        noise: Variance of the noise.
        scales: Scale s of each column.
    """

    linear: float
    additive: float
    smooth: float
    noise: float
    scales: Float[np.ndarray, " column"]


def kernel_view(
    recipe: Recipe, inputs: Any, targets: Any, folds: Folds, num_candidates: int
) -> list[dict[str, Float[np.ndarray, "fold ..."]]]:
    """Compute the kernel machine of each fold, in several versions among which the rows choose.

    Args:
        recipe: What is trained.
        inputs: Standardized rows.
        targets: Targets in units of training, or class numbers.
        folds: From `make_folds`.
        num_candidates: Number of versions.

    Returns:
        The weights of `with_kernel_machine` by name, for each version.
    """
    # Threads of BLAS wait by spinning: where a core is busy, they cost several times what they save.
    with threadpool_limits(limits=1, user_api="blas"):
        return _kernel_view(recipe, inputs, targets, folds, num_candidates)


def _kernel_view(recipe: Recipe, inputs: Any, targets: Any, folds: Folds, num_candidates: int) -> Any:
    columns = draw_in(np.asarray(inputs, float))
    values = _as_numbers(targets, recipe)
    in_fold = [folds.of_row == fold for fold in range(recipe.num_folds)]
    num_parts = min(_PARTS, recipe.num_folds)
    kernels = []
    for part in range(num_parts):
        rows = np.flatnonzero((folds.of_row % num_parts != part) | (folds.of_row < 0))
        rows = np.random.default_rng(part).permutation(rows)[:_MOST_ROWS]
        kernels.append(learn_kernel(columns[rows], values[rows] - values[rows].mean(axis=0)))
    sizes = _SIZES[-num_candidates:] if recipe.is_classifier else _SIZES[:1]
    versions: list[list[dict[str, Any]]] = [[] for _ in sizes]
    for fold, held_out in enumerate(in_fold):
        kernel, rows = kernels[fold % num_parts], np.flatnonzero(~held_out)
        fit = _Fit(kernel, columns[rows], recipe.num_centers)
        for version, size in zip(versions, sizes, strict=True):
            if recipe.is_classifier:
                version.append(fit.classes(np.asarray(targets)[rows], recipe.sizes[-1], size))
            else:
                version.append(fit.numbers(values[rows]))
    stacked = [{name: np.stack([one[name] for one in each]) for name in each[0]} for each in versions]
    return stacked if recipe.is_classifier else stacked * num_candidates


def _as_numbers(targets: Any, recipe: Recipe) -> Float[np.ndarray, "row output"]:
    """Return real targets with an axis of outputs, or a scaled indicator of each class."""
    if not recipe.is_classifier:
        return np.asarray(targets, float).reshape(len(targets), -1)
    count = max(recipe.sizes[-1], 2)
    indicators = (np.asarray(targets)[:, None] == np.arange(count)).astype(float)
    return 2.0 * indicators[:, 1:] if count == 2 else np.sqrt(count) * indicators


def learn_kernel(columns: Any, values: Any) -> Kernel:
    """Find the kernel with the largest marginal likelihood, times a wide prior.

    Args:
        columns: Rows, drawn in.
        values: Their targets, of mean zero.

    Returns:
        The kernel.
    """
    parts, count = _fixed_parts(columns), columns.shape[1]
    start = np.concatenate([[0.0, -0.5, -0.5, -1.0, 0.5 * np.log(count)], np.zeros(count)])
    bounds = [(-5.0, 3.0)] * 3 + [(-4.5, 1.0), (-2.0, 6.0)] + [(-3.0, 5.0)] * count
    found = optimize.minimize(
        negative_log_evidence,
        start,
        args=(columns, values, parts),
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options={"maxiter": _STEPS},
    )
    return _kernel_of(found.x)


def _kernel_of(logarithms: Any) -> Kernel:
    linear, additive, smooth, noise = np.exp(logarithms[:4])
    scales = np.exp(-logarithms[4] - logarithms[5:])
    return Kernel(linear, additive, smooth, noise**2 + _LEAST_NOISE, scales)


def _fixed_parts(columns: Any) -> tuple[Any, Any]:
    """Compute the linear and the additive part of the kernel, of size one."""
    count = columns.shape[1]
    bumps = basis(columns, np)[:, 1 + count :]
    return 1.0 + columns @ columns.T / count, bumps @ bumps.T / (4.0 * count)


def _smooth_part(columns: Any, scales: Any) -> Any:
    scaled = columns * scales
    square = np.square(scaled).sum(axis=1)
    return np.exp(-0.5 * np.maximum(square[:, None] + square[None] - 2.0 * scaled @ scaled.T, 0.0))


def negative_log_evidence(
    logarithms: Any, columns: Any, values: Any, parts: tuple[Any, Any]
) -> tuple[float, Any]:
    """Compute the negative log marginal likelihood and log prior, and their gradient.

    Args:
        logarithms: Logarithms of the sizes, the noise, the common scale and the columns' own factors.
        columns: Rows, drawn in.
        values: Their targets.
        parts: The parts of the kernel that do not change.

    Returns:
        The value and its gradient; where the matrix has no factor, a large value.
    """
    kernel = _kernel_of(logarithms)
    smooth = kernel.smooth**2 * _smooth_part(columns, kernel.scales)
    linear, additive = (
        size**2 * part for size, part in zip((kernel.linear, kernel.additive), parts, strict=True)
    )
    rows, outputs = values.shape
    total = linear + additive + smooth + kernel.noise * np.eye(rows)
    factor, failed = linalg.lapack.dpotrf(total, lower=1)
    if failed:
        return 1e10, np.zeros_like(logarithms)
    inverse, _ = linalg.lapack.dpotri(factor, lower=1)
    inverse = np.tril(inverse) + np.tril(inverse, -1).T
    weights = inverse @ values
    log_determinant = 2.0 * np.log(np.diag(factor)).sum()
    deviations = np.concatenate(
        [
            logarithms[:3] / 2.0,
            [0.0, (logarithms[4] - 0.5 * np.log(columns.shape[1])) / 2.0],
            logarithms[5:] / _SPREAD,
        ]
    )
    value = 0.5 * (np.sum(weights * values) + outputs * log_determinant + deviations @ deviations)
    slope = 0.5 * (outputs * inverse - weights @ weights.T)  # by the entries of the matrix
    scaled = columns * kernel.scales
    spread = slope * smooth
    # Σ_ij M_ij (u_i − u_j)² of a symmetric M, for every column u.
    of_columns = 2.0 * (
        spread.sum(axis=1) @ np.square(scaled) - np.einsum("ic,ic->c", scaled, spread @ scaled)
    )
    gradient = np.concatenate(
        [
            [2.0 * np.sum(slope * part) for part in (linear, additive)],
            [2.0 * spread.sum(), 2.0 * (kernel.noise - _LEAST_NOISE) * np.trace(slope)],
            [of_columns.sum()],
            of_columns,
        ]
    )
    of_prior = deviations / np.concatenate([[2.0, 2.0, 2.0, 1.0, 2.0], np.full(len(scaled[0]), _SPREAD)])
    return float(value), gradient + of_prior


class _Fit:
    """The kernel machines that a kernel gives for some rows."""

    def __init__(self, kernel: Kernel, columns: Any, num_centers: int) -> None:
        self.kernel, self.columns, self.num_centers = kernel, columns, num_centers
        linear, additive = _fixed_parts(columns)
        self.matrix = (
            kernel.linear**2 * linear
            + kernel.additive**2 * additive
            + kernel.smooth**2 * _smooth_part(columns, kernel.scales)
        )

    def numbers(self, values: Any) -> dict[str, Any]:
        """Compute the posterior mean, and a standard deviation from those of each row left out."""
        rows = len(values)
        factor = linalg.cho_factor(self.matrix + self.kernel.noise * np.eye(rows), lower=True)
        inverse = linalg.cho_solve(factor, np.eye(rows))
        middle = values.mean(axis=0)
        weights = inverse @ (values - middle)
        raw = np.log(np.expm1(np.diag(inverse) ** -0.5))[:, None]  # as the likelihood takes a scale
        size = np.mean(np.diag(self.matrix))
        smoother = linalg.cho_factor(self.matrix / size + _SMOOTHING * np.eye(rows), lower=True)
        of_scale = linalg.cho_solve(smoother, raw - raw.mean()) / size
        outputs = np.concatenate([weights, np.repeat(of_scale, weights.shape[1], axis=1)], axis=1)
        constants = np.concatenate([middle, np.full(len(middle), raw.mean())])
        return self._machine(outputs, constants, 1.0)

    def classes(self, labels: Any, num_outputs: int, size: float) -> dict[str, Any]:
        """Compute the most probable logits under a prior of this size: f = K v with v = y − p(f)."""
        if num_outputs == 1:
            wanted, curvature = labels[:, None].astype(float), 0.25
        else:
            wanted, curvature = (labels[:, None] == np.arange(num_outputs)).astype(float), 0.5
        matrix = size * self.matrix
        factor = linalg.cho_factor(curvature * matrix + np.eye(len(matrix)), lower=True)
        weights = before = np.zeros_like(wanted)
        for step in range(_MOST_ITERATIONS):
            ahead = weights + step / (step + 3.0) * (weights - before)
            change = linalg.cho_solve(factor, wanted - _probabilities(matrix @ ahead) - ahead)
            before, weights = weights, ahead + change
            if np.abs(change).max() < 1e-4:
                break
        return self._machine(weights, np.zeros(wanted.shape[1]), size)

    def _machine(self, weights: Any, constants: Any, size: float) -> dict[str, Any]:
        """Return the weights of `with_kernel_machine`, padded to the number of centers."""
        kernel, count = self.kernel, self.columns.shape[1]
        features = basis(self.columns, np)
        sizes = np.concatenate(
            [
                [kernel.linear**2],
                np.full(count, kernel.linear**2 / count),
                np.full(features.shape[1] - 1 - count, kernel.additive**2 / (4.0 * count)),
            ]
        )
        coefficients = size * sizes[:, None] * (features.T @ weights)
        coefficients[0] += constants
        missing = ((0, self.num_centers - len(weights)), (0, 0))
        machine = {
            "centers": np.pad(self.columns, missing),
            "coefficients": coefficients,
            "scales": kernel.scales,
            "switch": np.ones(()),
            "weights": np.pad(size * kernel.smooth**2 * weights, missing),
        }
        return {name: leaf.astype(np.float32) for name, leaf in machine.items()}


def _probabilities(logits: Any) -> Any:
    return special.expit(logits) if logits.shape[1] == 1 else special.softmax(logits, axis=1)

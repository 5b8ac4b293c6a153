"""Whiten a cloud of particles with matrix products only.

Kernels that use the covariance of the cloud need a factor R with C = Rᵀ R, and `transport` also the
inverse square root of a symmetric matrix. LAPACK has both, but its threads wait in busy loops, which
makes a small factorization many times slower on a busy machine, and a library cannot turn that off. The
functions here use only products and elementwise operations, which XLA runs in its own threads:

- `whiten` eliminates the correlation matrix to L⁻¹, column by column, and then corrects the rounding in
  single precision: y = A W, with W ≈ R⁻¹, becomes y (yᵀy/J)^{−½}.
- `inverse_root` is the coupled Newton–Schulz iteration Y ← Y T, Z ← T Z, T = ½ (3 I − Z Y), from Y = S/c
  and Z = I: Y → (S/c)^{½}, Z → (S/c)^{−½}. It takes three rounds near the identity, and two more for
  every factor of five between the eigenvalues.
- `floored` raises eigenvalues to a lower bound by X ↦ ½ (X + |X|) for X = S − bound, where
  |X| = X sign(X). The sign is a composition of seven odd polynomials of degree five. Each is the best
  approximation of one on the interval to which the previous ones map the eigenvalues. Eigenvalues above
  a thousandth of the norm of X get their sign up to rounding. If the norm is larger than the bound, the
  second polynomial is repeated: it maps its interval into itself, and multiplies small eigenvalues by
  four.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from partialbayes.types import Phi, Scalar

Matrix = Float[Array, "dim dim"]

_MOST_ROUNDS = 50
_SIGN_STEPS = (  # a, b, c of a x + b x³ + c x⁵, minimax on [0.001, 1] and on its successive images
    (8.4703, -25.1082, 18.6293),
    (4.1828, -3.1087, 0.5806),
    (3.9619, -2.9541, 0.563),
    (3.2866, -2.4647, 0.5074),
    (2.2737, -1.6447, 0.4162),
    (1.8887, -1.2652, 0.3765),
    (1.875, -1.25, 0.375),
)


class Whitened(NamedTuple):
    """A whitened cloud: φ_j = mean + factorᵀ standard_j.

    Attributes:
        mean: The mean of the cloud.
        standard: Coordinates with mean zero and covariance I (in diagonal form: variances one).
        factor: R with C = Rᵀ R (in diagonal form: the standard deviations).
    """

    mean: Phi
    standard: Float[Array, "particle dim"]
    factor: Float[Array, "*dim dim"]


def whiten(values: Float[Array, "particle dim"]) -> Whitened:
    """Return coordinates in which the covariance of the cloud is the identity."""
    cloud = whiten_each(values)
    unscaled = cloud.standard
    correlation = _gram(unscaled)
    # Raise the diagonal slightly, so that the matrix stays positive definite under rounding.
    raised = (
        values.shape[1]
        * float(np.finfo(values.dtype).eps)
        * jnp.eye(values.shape[1], dtype=values.dtype)
    )
    rough = _product(unscaled, factorize(correlation + raised).inverse.T)
    standard = _product(rough, inverse_root(_gram(rough)))
    factor = _product(standard.T, unscaled) / values.shape[0]
    return Whitened(cloud.mean, standard, factor * cloud.factor[None, :])


def whiten_each(values: Float[Array, "particle dim"]) -> Whitened:
    """Return coordinates in which each variance is one; constant coordinates stay unscaled."""
    mean = values.mean(axis=0)
    centered = values - mean[None, :]
    deviation = jnp.sqrt(jnp.mean(jnp.square(centered), axis=0))
    return Whitened(mean, centered / jnp.where(deviation > 0.0, deviation, 1.0)[None, :], deviation)


def inverse_root(matrix: Matrix) -> Matrix:
    """Return S^{−½} of a symmetric S without negative eigenvalues."""
    identity = jnp.eye(matrix.shape[0], dtype=matrix.dtype)
    scale = jnp.maximum(1.0, 0.5 * jnp.abs(matrix).sum(axis=1).max())
    rounding = float(np.finfo(matrix.dtype).eps)
    enough = np.sqrt(rounding)

    def going(carry: tuple[Matrix, Matrix, Matrix, Array]) -> Bool[Array, ""]:
        _, _, rest, rounds = carry
        return (jnp.sqrt(jnp.sum(jnp.square(rest))) > enough) & (rounds < _MOST_ROUNDS)

    def improve(carry: tuple[Matrix, Matrix, Matrix, Array]) -> tuple[Matrix, Matrix, Matrix, Array]:
        root, inverse, rest, rounds = carry
        factor = identity + 0.5 * rest
        root, inverse = _product(root, factor), _product(factor, inverse)
        return root, inverse, identity - _product(inverse, root), rounds + 1

    start = matrix / scale + 4.0 * rounding * identity  # a zero that was rounded below zero would grow
    carry = (start, identity, identity - start, jnp.zeros((), jnp.int32))
    _, inverse, rest, _ = jax.lax.while_loop(going, improve, carry)
    return _product(identity + 0.5 * rest, inverse) / jnp.sqrt(scale)


def floored(matrix: Matrix, least: float | Scalar) -> Matrix:
    """Raise the eigenvalues of a symmetric matrix to at least ``least``."""
    identity = jnp.eye(matrix.shape[0], dtype=matrix.dtype)
    above = matrix - least * identity
    norm = jnp.sqrt(jnp.sum(jnp.square(above))) + float(np.finfo(matrix.dtype).tiny)

    repeated = 1 + jnp.clip(
        jnp.ceil(jnp.log(norm / least) / np.log(_SIGN_STEPS[1][0])), 0.0, 10.0
    ).astype(int)
    table = jnp.asarray(_SIGN_STEPS, matrix.dtype)

    # A loop over the polynomials, because every product that is written out is compiled by itself.
    def apply(step: Array, sign: Matrix) -> Matrix:
        first, third, fifth = table[
            jnp.where(step <= repeated, jnp.minimum(step, 1), step - repeated + 1)
        ]
        square = _product(sign, sign)
        return _product(sign, first * identity + _product(square, third * identity + fifth * square))

    sign = jax.lax.fori_loop(0, repeated + len(_SIGN_STEPS) - 1, apply, above / norm)
    size = _product(above, sign)
    # Rounding must not leave a negative eigenvalue where others are large.
    rounding = float(np.finfo(matrix.dtype).eps) * matrix.shape[0] * norm
    return (least + rounding) * identity + 0.5 * above + 0.25 * (size + size.T)


class Factor(NamedTuple):
    """A positive definite C = L Lᵀ.

    Attributes:
        lower: L, lower triangular.
        inverse: L⁻¹.
    """

    lower: Float[Array, "*half dim dim"]
    inverse: Float[Array, "*half dim dim"]


def factorize(covariance: Matrix) -> Factor:
    """Return L with C = L Lᵀ, and its inverse; NaN where C is not positive definite."""
    eliminated = _eliminated(covariance)
    root = jnp.sqrt(jnp.diagonal(eliminated))[:, None]
    unit = jnp.tril(eliminated, -1) + jnp.eye(covariance.shape[0], dtype=covariance.dtype)
    return Factor((jnp.triu(eliminated) / root).T, unit / root)


def _eliminated(matrix: Matrix) -> Matrix:
    """Eliminate a symmetric S = L D Lᵀ in place: D Lᵀ on and above the diagonal, L⁻¹ below it."""
    places = jnp.arange(matrix.shape[0])

    def column(index: Array, matrix: Matrix) -> Matrix:
        row, here, below = matrix[index], places == index, places > index
        factors = jnp.where(below, matrix[:, index] / row[index], 0.0)
        cleared = jnp.where(below[:, None] & here[None, :], 0.0, matrix)
        return cleared - factors[:, None] * jnp.where(here, 1.0, row)[None, :]

    return jax.lax.fori_loop(0, matrix.shape[0], column, matrix)


def _gram(rows: Float[Array, "particle dim"]) -> Matrix:
    return _product(rows.T, rows) / rows.shape[0]


def _product(left: Float[Array, "a b"], right: Float[Array, "b c"]) -> Float[Array, "a c"]:
    return jnp.matmul(left, right, precision=jax.lax.Precision.HIGHEST)

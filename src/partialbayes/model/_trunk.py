"""Compute what comes before the random and trained weights once, and keep it.

The network is traced, and every operation is one of three kinds: it depends only on constants; on the
inputs but not on φ or ψ; or on φ or ψ. The values of the second kind that the third kind needs are the
*features*: one set of arrays per row. The rest of the network, the head, needs only these.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from partialbayes._utils.checks import as_float_arrays, num_rows, require_instance, require_positive_int
from partialbayes._utils.compat import evaluate, is_jit
from partialbayes._utils.jaxprs import interpret
from partialbayes.model._partial_bnn import with_outputs
from partialbayes.types import Model, Phi, Psi


class _Row(NamedTuple):
    """A value that depends only on the inputs: its number, and its value if known."""

    number: int
    value: Any


class _Mixed(NamedTuple):
    """A value that depends on φ or ψ."""

    value: Any


class _Place(NamedTuple):
    """The position of the rows in a feature: the axis, and the number of its entries per row."""

    axis: int
    each: int


class Trunk(NamedTuple):
    """A model in two parts; `split_trunk` makes it.

    Attributes:
        head: The model with the features as inputs; φ, ψ and outputs do not change.
        features: ``(inputs, rows=256, folder=None) -> features``, computed ``rows`` rows at a time, in
            memory or as memory maps in a folder.
    """

    head: Model
    features: Any


def split_trunk(model: Model, inputs: PyTree) -> Trunk:
    """Cut a model before its first random or trained weights.

    If everything that is not random is frozen (``freeze="**"``), all layers before the random ones are
    in the trunk. They run once per row, for any number of particles and epochs, and training needs
    neither their weights nor their activations.

    Args:
        model: The model.
        inputs: A few rows of inputs, for the shapes and to check that rows do not depend on each other.

    Returns:
        The head, which is a model of the features, and the function that computes them. A posterior of
        the head is a posterior of the model, and vice versa.

    Raises:
        ValueError: The outputs of a row depend on the other rows, so that nothing can be kept.

    Example:
        >>> import jax, jax.numpy as jnp, partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([2, 50, 7, 1]), "layers/2/*", pb.gaussian(), freeze="**")
        >>> x = jnp.ones((100, 2))
        >>> trunk = pb.model.split_trunk(model, x)
        >>> features = trunk.features(x)
        >>> [feature.shape for feature in features]
        [(100, 7)]
        >>> data = (features, jnp.ones(100))
        >>> trained = pb.fit(pb.ohsmc(trunk.head, num_particles=5), data, epochs=2)
        >>> pb.predict(model, trained.posterior, x).mean.shape
        (100,)
    """
    require_instance("model", model, Model, "for example partial_bnn(network, stochastic, likelihood).")
    num_rows("inputs", inputs)
    few = as_float_arrays(jax.tree.map(lambda leaf: leaf[:3], inputs))
    row = jax.eval_shape(lambda few: jax.tree.map(lambda leaf: leaf[0], few), few)
    places = _places(model, row)

    def outputs(phi: Phi, psi: Psi, features: Sequence[Any]) -> PyTree:
        rows = features[0].shape[0]
        closed, treedef = _trace(model, _of_rows(row, rows))
        known = [_restore(feature, place) for feature, place in zip(features, places, strict=True)]
        results = _run_head(closed, jax.tree.leaves((phi, psi)), known)
        return jax.tree.unflatten(treedef, results)

    head = with_outputs(model, outputs)
    compiled: dict[int, Any] = {}

    def features(inputs: PyTree, rows: int = 256, folder: str | Path | None = None) -> tuple[Any, ...]:
        require_positive_int("rows", rows, "how many to compute at a time.")
        total = num_rows("inputs", inputs)
        rows = min(rows, total)
        if rows not in compiled:
            closed, _ = _trace(model, _of_rows(row, rows))
            compiled[rows] = (closed.consts, _compiled_trunk(closed, places))
        constants, run = compiled[rows]
        kept: list[Any] = []
        for begin in range(0, total, rows):
            # The last piece overlaps the previous one, so that there is one shape and one program.
            start = min(begin, total - rows)
            piece = jax.tree.map(lambda leaf, s=start: leaf[s : s + rows], inputs)
            found = run(constants, jax.tree.leaves(as_float_arrays(piece)))
            if not kept:
                kept = [_room(folder, place, total, one) for place, one in enumerate(found)]
            for store, one in zip(kept, found, strict=True):
                store[start : start + rows] = np.asarray(one)
        return tuple(kept)

    trunk = Trunk(head, features)
    _require_same(model, trunk, few)
    return trunk


def _of_rows(row: PyTree, rows: int) -> PyTree:
    return jax.eval_shape(
        lambda row: jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (rows, *leaf.shape)), row), row
    )


def _trace(model: Model, inputs: PyTree) -> tuple[Any, Any]:
    params = jax.eval_shape(model.init, jax.random.key(0))
    closed, shape = jax.make_jaxpr(model.outputs, return_shape=True)(params.phi, params.psi, inputs)
    return closed, jax.tree.structure(shape)


def _kinds(arguments: list[Any]) -> type | None:
    if any(isinstance(argument, _Mixed) for argument in arguments):
        return _Mixed
    return _Row if any(isinstance(argument, _Row) for argument in arguments) else None


def _values(arguments: list[Any]) -> list[Any]:
    return [
        argument.value if isinstance(argument, _Row | _Mixed) else argument for argument in arguments
    ]


def _features(closed: Any, inputs: Sequence[Array]) -> dict[int, Array]:
    """Compute the values that depend only on the inputs and that the rest needs, by their numbers."""
    found: dict[int, Array] = {}
    numbers = itertools.count()

    def note(values: Sequence[Any]) -> None:
        found.update({one.number: one.value for one in values if isinstance(one, _Row)})

    def rule(equation: Any, arguments: list[Any]) -> list[Any] | None:
        if is_jit(equation):
            return None
        kind = _kinds(arguments)
        if kind is _Mixed:
            note(arguments)
            return [_Mixed(None) for _ in equation.outvars]
        results = evaluate(equation, _values(arguments))
        return [_Row(next(numbers), result) for result in results] if kind is _Row else results

    params = [_Mixed(None)] * (len(closed.jaxpr.invars) - len(inputs))
    note(interpret(closed, [*params, *(_Row(next(numbers), value) for value in inputs)], rule))
    return dict(sorted(found.items()))


def _shapes(closed: Any, num_params: int) -> dict[int, Any]:
    """Return shape and dtype of each feature, by number."""
    return dict(jax.eval_shape(partial(_features, closed), closed.in_avals[num_params:]))


def _run_head(closed: Any, params: Sequence[Array], features: Sequence[Array]) -> list[Array]:
    """Compute the outputs from φ, ψ and the features."""
    known = dict(zip(_shapes(closed, len(params)), features, strict=True))
    numbers = itertools.count()

    def rows(count: int) -> list[_Row]:
        return [_Row(number, known.get(number)) for number in itertools.islice(numbers, count)]

    def rule(equation: Any, arguments: list[Any]) -> list[Any] | None:
        if is_jit(equation):
            return None
        kind = _kinds(arguments)
        if kind is _Row:
            return rows(len(equation.outvars))
        results = evaluate(equation, _values(arguments))
        return [_Mixed(result) for result in results] if kind is _Mixed else results

    inputs = rows(len(closed.jaxpr.invars) - len(params))
    return _values(interpret(closed, [*map(_Mixed, params), *inputs], rule))


def _places(model: Model, row: PyTree) -> list[_Place]:
    """Find the rows in each feature, from the shapes with two and with three rows."""
    shapes = []
    for rows in (2, 3):
        closed, _ = _trace(model, _of_rows(row, rows))
        num_params = len(closed.jaxpr.invars) - len(jax.tree.leaves(row))
        shapes.append([feature.shape for feature in _shapes(closed, num_params).values()])
    places = []
    for two, three in zip(*shapes, strict=True):
        axes = [axis for axis, (a, b) in enumerate(zip(two, three, strict=False)) if a != b]
        if len(two) != len(three) or len(axes) != 1 or 3 * two[axes[0]] != 2 * three[axes[0]]:
            raise ValueError(_MIXED_ROWS)
        places.append(_Place(axes[0], two[axes[0]] // 2))
    return places


_MIXED_ROWS = (
    "the outputs of a row depend on the other rows of the batch, so that its features cannot be kept; "
    "use layers that see one row at a time (batch normalization in evaluation mode)."
)


def _store(feature: Array, place: _Place) -> Array:
    """Move the rows of a feature first."""
    first = jnp.moveaxis(feature, place.axis, 0)
    if place.each == 1:
        return first
    return first.reshape(first.shape[0] // place.each, place.each, *first.shape[1:])


def _restore(feature: Any, place: _Place) -> Array:
    feature = jnp.asarray(feature)
    if place.each > 1:
        feature = feature.reshape(feature.shape[0] * place.each, *feature.shape[2:])
    return jnp.moveaxis(feature, 0, place.axis)


def _compiled_trunk(closed: Any, places: list[_Place]) -> Any:
    """Compile the trunk with its weights as arguments; as constants they would be held twice."""

    def run(constants: list[Any], inputs: list[Array]) -> list[Array]:
        found = _features(closed.replace(consts=constants), inputs)
        return [_store(one, place) for one, place in zip(found.values(), places, strict=True)]

    return jax.jit(run)


def _room(folder: str | Path | None, place: int, total: int, like: Array) -> Any:
    shape = (total, *like.shape[1:])
    if folder is None:
        return np.empty(shape, like.dtype)
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    return np.lib.format.open_memmap(path / f"features-{place}.npy", "w+", like.dtype, shape)


def _require_same(model: Model, trunk: Trunk, few: PyTree) -> None:
    """Raise an error if the cut changes the outputs, or rows depend on other rows."""
    phi, psi = model.init(jax.random.key(0))
    features = trunk.features(few, rows=1)  # each row individually
    found = jax.tree.leaves(trunk.head.outputs(phi, psi, features))
    wanted = jax.tree.leaves(model.outputs(phi, psi, few))
    for one, other in zip(found, wanted, strict=True):
        if not np.allclose(one, other, rtol=1e-3, atol=1e-4):
            raise ValueError(_MIXED_ROWS)

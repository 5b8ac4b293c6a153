"""Identify a run by named fields, for its checkpoint.

Parts that record how they were built (networks, likelihoods, priors) are identified by that record.
Everything else that determines a step (the algorithm, its kernel, its optimizer, their numbers) is
identified by the step itself: its operations as JAX traces them, with every constant in them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from importlib import metadata
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal
from jaxtyping import Array, Key, PyTree

from partialbayes._engine.compiled import Program, step_on
from partialbayes._engine.sources import Source
from partialbayes._utils.warn import warn
from partialbayes.errors import CheckpointError, CheckpointWarning
from partialbayes.io._pytree_file import fingerprint
from partialbayes.types import Batch, Model

_VERSION = 1
_DESCRIPTIONS = {
    "plan": "the plan (epochs, batch_size, validation, until)",
    "key": "the key",
    "data": "the data",
    "validation": "the validation data",
    "hyperparameters": "the hyperparameters",
    "model": "the model (network, stochastic weights, likelihood or prior)",
    "step": "the algorithm (method, kernel, optimizer, their settings, or the model's own functions)",
}


def identity_of(
    program: Program,
    hyperparameters: PyTree,
    key: Key[Array, "*run"],
    source: Source,
    rows: Any,
    validation: Batch | None,
) -> dict[str, Any]:
    """Return the fields, in a form that JSON can hold.

    Args:
        program: The program that is compiled.
        hyperparameters: The hyperparameters of many runs; None for one run.
        key: The key, or the keys of many runs.
        source: The source of the data.
        rows: Rows of the source; only their shapes are used.
        validation: The validation data.

    Returns:
        The fields by name.
    """
    first = hyperparameters if program.runs is None else _first(hyperparameters)
    one_rows = _first(rows) if program.runs is not None and program.runs.data else rows
    model = program.algorithm(first).model
    plan = program.plan._asdict()
    until = program.plan.until
    return {
        "version": _VERSION,
        "made by": {name: metadata.version(name) for name in ("partialbayes", "jax")},
        "plan": plan | {"until": None if until is None else until._asdict()},
        "key": np.asarray(jax.random.key_data(key)).tolist(),
        "data": source.identity,
        "validation": None if validation is None else fingerprint(validation),
        "hyperparameters": fingerprint(hyperparameters) if jax.tree.leaves(hyperparameters) else None,
        "model": _digest_of_model(model),
        "step": _digest_of_step(program, first, one_rows),
    }


def require_same_run(path: Any, saved: Any, own: dict[str, Any]) -> None:
    """Raise an error for the checkpoint of a different run; warn if only the step differs, by version.

    Raises:
        CheckpointError: A field differs; the message names it.
    """
    if not isinstance(saved, dict) or saved.get("version") != _VERSION:
        raise CheckpointError(f"{path} is not the checkpoint of a training run of this version.")
    for name, description in _DESCRIPTIONS.items():
        if saved.get(name) == own[name]:
            continue
        if name == "step" and saved.get("made by") != own["made by"]:
            was = ", ".join(f"{key} {value}" for key, value in dict(saved.get("made by", {})).items())
            warn(
                f"{path} was written by {was}. The steps are different now, due to the change of "
                "version or to a different algorithm; the run continues, but its result may not be "
                "exactly that of an uninterrupted run.",
                CheckpointWarning,
            )
            continue
        raise CheckpointError(
            f"{path} is of a different run: {description} differs. Resume with the arguments of that "
            "run, or start a new run with a different path."
        )


def _first(tree: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: leaf[0], tree)


def _digest_of_model(model: Model) -> str:
    digest = hashlib.sha256(json.dumps(model.recipes._asdict(), sort_keys=True).encode())
    for leaf, mask in zip(model.split.leaves, model.split.masks, strict=True):
        described = f"{leaf.path}{leaf.shape}{leaf.dtype}"
        if leaf.axes != tuple(range(len(leaf.shape))):
            described += f"{leaf.axes}"
        digest.update(described.encode() + np.packbits(mask).tobytes())
    return digest.hexdigest()[:16]


def _digest_of_step(program: Program, hyperparameters: PyTree, rows: Any) -> str:
    def step(hyperparameters: PyTree, key: Any, rows: Any, state: Any, order: Any, number: Any) -> Any:
        algorithm = program.algorithm(hyperparameters)
        return step_on(algorithm, program.draw, key, rows, state, order, number)

    key = jax.random.key(0)
    state = jax.eval_shape(lambda h, k: program.algorithm(h).init(k), hyperparameters, key)
    # Shapes without devices: a run may be resumed on different ones.
    shapes = jax.eval_shape(lambda: jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), rows))
    order = jax.eval_shape(program.draw.order, shapes)
    return digest_of(step, hyperparameters, key, shapes, state, order, jnp.zeros((), jnp.int32))


def digest_of(function: Callable[..., Any], *arguments: Any) -> str:
    """Return a digest of a function's operations and of every constant in them."""
    closed = jax.make_jaxpr(function)(*arguments)
    digest = hashlib.sha256()
    # Functions that are parameters of an operation are printed with their addresses.
    digest.update(re.sub(r"0x[0-9a-f]+", "", str(closed.jaxpr)).encode())
    _add_constants(digest, closed)
    return digest.hexdigest()[:16]


def _add_constants(digest: Any, node: Any) -> None:
    if isinstance(node, ClosedJaxpr):
        for constant in node.consts:
            _add_array(digest, constant)
        _add_constants(digest, node.jaxpr)
    elif isinstance(node, Jaxpr):
        for equation in node.eqns:
            for atom in equation.invars:
                if isinstance(atom, Literal):
                    _add_array(digest, atom.val)
            for parameter in equation.params.values():
                _add_constants(digest, parameter)
    elif isinstance(node, tuple | list):
        for item in node:
            _add_constants(digest, item)


def _add_array(digest: Any, value: Any) -> None:
    if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    array = np.asarray(value)
    digest.update(f"{array.dtype}{array.shape}".encode() + np.ascontiguousarray(array).tobytes())

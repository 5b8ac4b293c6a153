"""Store pytrees as safetensors with a checksum; reading executes no code.

A file holds the leaves of one pytree by path, and a JSON description. It is written atomically: under a
temporary name, flushed to disk, then renamed.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from partialbayes._utils.atomic import write_atomically
from partialbayes._utils.paths import named_leaves
from partialbayes.errors import CheckpointError
from partialbayes.parallel._hosts import is_shared, to_numpy

FORMAT = "partialbayes"
VERSION = 2
"""Incremented when the layout of files changes."""


def save_tree(path: str | Path, tree: PyTree, description: dict[str, Any]) -> None:
    """Write a pytree and a JSON description atomically, readable by the owner only.

    Args:
        path: The file to write. Its folder is created if it does not exist.
        tree: A pytree of arrays. Typed random keys are stored as their data, arrays divided over
            devices as whole arrays. If several processes share an array, all must call this, and
            process 0 writes.
        description: A dictionary of JSON values.

    Raises:
        CheckpointError: The file could not be written. An earlier file is unchanged.
    """
    from safetensors.numpy import save

    path = Path(path)
    leaves = [(name, _key_data(leaf)) for name, leaf in named_leaves(tree)]
    arrays = {name: to_numpy(leaf) for name, leaf in leaves}
    if any(is_shared(leaf) for _, leaf in leaves) and jax.process_index() > 0:
        return  # all processes took part in gathering; process 0 writes
    text = json.dumps(description)
    metadata = {
        "format": FORMAT,
        "version": str(VERSION),
        "checksum": _checksum(arrays, text),
        "description": text,
    }
    content = save(arrays, metadata)
    try:
        write_atomically(path, content)
    except OSError as error:
        raise CheckpointError(
            f"the checkpoint {path} could not be written ({error.strerror or error}); an earlier one "
            "is unchanged. Free some space or choose another folder, then resume."
        ) from error


def load_tree(path: str | Path, like: PyTree) -> tuple[PyTree, dict[str, Any]]:
    """Read a pytree of a known structure.

    Args:
        path: A file written by `save_tree`.
        like: A pytree of the same structure, shapes and dtypes, such as from ``jax.eval_shape``.

    Returns:
        The pytree on the device, and the description.

    Raises:
        CheckpointError: The file is missing, damaged, not of this library, of a newer version, or has
            another structure. The message names the first leaf that differs.
    """
    arrays, description = read_file(path)
    return as_tree(path, arrays, like), description


def as_tree(path: str | Path, arrays: dict[str, Any], like: PyTree) -> PyTree:
    """Arrange the arrays of a file as a pytree of a known structure; see `load_tree`."""
    arrays, leaves = dict(arrays), []
    for name, leaf in named_leaves(like):
        if name not in arrays:
            raise CheckpointError(
                f"{path} holds no {name!r}: it was written by another algorithm, network or subset."
            )
        array = arrays.pop(name)
        expected = jax.eval_shape(_key_data, leaf)
        if (array.shape, array.dtype) != (expected.shape, expected.dtype):
            raise CheckpointError(
                f"{name!r} in {path} is {array.dtype}{list(array.shape)}, but this run needs "
                f"{expected.dtype}{list(expected.shape)}: the network, the number of particles or the "
                "precision differs."
            )
        leaves.append(jax.random.wrap_key_data(array) if _is_key(leaf) else jnp.asarray(array))
    if arrays:
        raise CheckpointError(
            f"{path} holds {sorted(arrays)[0]!r}, which this run does not have: it was written by "
            "another algorithm, network or subset."
        )
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def read_file(path: str | Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read the arrays of a file by name, and its description; check format, version and checksum."""
    from safetensors import safe_open

    path = Path(path)
    if not path.is_file():
        raise CheckpointError(f"there is no checkpoint at {path}.")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except Exception as error:  # whatever the reader raises, the file is the cause
        raise CheckpointError(
            f"{path} is not a readable checkpoint ({error}); it may be truncated, or not a checkpoint."
        ) from error
    if metadata.get("format") != FORMAT:
        raise CheckpointError(f"{path} is a safetensors file, but not one from partialbayes.")
    version = metadata.get("version", "")
    if version != str(VERSION):
        raise CheckpointError(
            f"{path} has version {version!r}, but this library reads version {VERSION}; "
            "update partialbayes, or write the file again."
        )
    if metadata.get("checksum") != _checksum(arrays, metadata.get("description", "")):
        raise CheckpointError(f"{path} has been altered or damaged: its checksum does not match.")
    try:
        description = json.loads(metadata.get("description", ""))
    except (ValueError, RecursionError):
        description = None
    if not isinstance(description, dict):
        raise CheckpointError(f"{path} has been altered or damaged: it has no description.")
    return arrays, description


def fingerprint(tree: PyTree) -> str:
    """Return a short digest of the values in a pytree, to recognize a data set."""
    named = {name: to_numpy(_key_data(leaf)) for name, leaf in named_leaves(tree)}
    return _checksum(named)[:16]


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _key_data(leaf: Any) -> Any:
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def _checksum(arrays: dict[str, Any], description: str = "") -> str:
    digest = hashlib.sha256(description.encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name}:{array.dtype}:{array.shape};".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()

"""Pytrees on disk: safetensors with a checksum, written atomically, read without executing anything.

A file holds the leaves of one pytree by their paths, and a JSON description. It is written beside
its final name, flushed to the disk, and renamed over it, so that whatever happens there is always
one whole file: the new one or the one before.
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
from partialbayes.errors import CheckpointError
from partialbayes.parallel._hosts import is_shared, to_numpy

FORMAT = "partialbayes"
VERSION = 2
"""Raised when the layout of files changes."""


def save_tree(path: str | Path, tree: PyTree, description: dict[str, Any]) -> None:
    """Write a pytree and a JSON description of it, atomically, readable by the owner alone.

    Args:
        path: The file; its folder is made if need be.
        tree: A pytree of arrays; typed random keys are kept as their data. Arrays divided over devices
            are written whole; where several processes share them all call this, and process 0 writes.
        description: Anything JSON can hold.

    Raises:
        CheckpointError: The disk refused. A file that was there before is untouched.
    """
    from safetensors.numpy import save

    path = Path(path)
    leaves = [(name, _key_data(leaf)) for name, leaf in _named_leaves(tree)]
    arrays = {name: to_numpy(leaf) for name, leaf in leaves}
    if any(is_shared(leaf) for _, leaf in leaves) and jax.process_index() > 0:
        return  # all bring what they have, one writes
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
            f"the checkpoint {path} could not be written ({error.strerror or error}); the one before "
            "it, if any, is intact. Free some space or choose another folder, then resume."
        ) from error


def load_tree(path: str | Path, like: PyTree) -> tuple[PyTree, dict[str, Any]]:
    """Read a pytree of a known structure.

    Args:
        path: A file written by `save_tree`.
        like: A pytree of the same structure, shapes and dtypes; ``jax.eval_shape`` gives one.

    Returns:
        The pytree on the device, and the description.

    Raises:
        CheckpointError: The file is missing, damaged, foreign, newer than this library, or of
            another structure; the message names the first leaf that differs.
    """
    arrays, description = read_file(path)
    return as_tree(path, arrays, like), description


def as_tree(path: str | Path, arrays: dict[str, Any], like: PyTree) -> PyTree:
    """The arrays of a file as a pytree of a known structure; see `load_tree`."""
    arrays, leaves = dict(arrays), []
    for name, leaf in _named_leaves(like):
        if name not in arrays:
            raise CheckpointError(
                f"{path} holds no {name!r}: it was written by another algorithm, network or subset."
            )
        array = arrays.pop(name)
        expected = jax.eval_shape(_key_data, leaf)
        if (array.shape, array.dtype) != (expected.shape, expected.dtype):
            raise CheckpointError(
                f"{name!r} in {path} is {array.dtype}{list(array.shape)}, but this run needs "
                f"{expected.dtype}{list(expected.shape)}: another network, number of particles or "
                "precision."
            )
        leaves.append(_as_key(jnp.asarray(array), leaf))
    if arrays:
        raise CheckpointError(
            f"{path} holds {sorted(arrays)[0]!r}, which this run does not have: it was written by "
            "another algorithm, network or subset."
        )
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def read_file(path: str | Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arrays of a file by name, and its description, after all checks of the file itself."""
    from safetensors import safe_open

    path = Path(path)
    if not path.is_file():
        raise CheckpointError(f"there is no checkpoint at {path}.")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except Exception as error:  # whatever the reader raises, it is the file
        raise CheckpointError(
            f"{path} is not a readable checkpoint ({error}); it may be truncated or something else."
        ) from error
    if metadata.get("format") != FORMAT:
        raise CheckpointError(f"{path} is a safetensors file, but not one of partialbayes.")
    version = metadata.get("version", "")
    if version != str(VERSION):
        raise CheckpointError(
            f"{path} has version {version!r}, but this library reads version {VERSION}; "
            "update partialbayes, or make the file again."
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
    """A short digest of the values in a pytree, to tell one data set from another."""
    named = {name: to_numpy(_key_data(leaf)) for name, leaf in _named_leaves(tree)}
    return _checksum(named)[:16]


def _named_leaves(tree: PyTree) -> list[tuple[str, Any]]:
    with_paths, _ = jax.tree_util.tree_flatten_with_path(tree)
    return [(jax.tree_util.keystr(path, simple=True, separator="/"), leaf) for path, leaf in with_paths]


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _key_data(leaf: Any) -> Any:
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def _as_key(array: Any, like: Any) -> Any:
    return jax.random.wrap_key_data(array) if _is_key(like) else array


def _checksum(arrays: dict[str, Any], description: str = "") -> str:
    digest = hashlib.sha256(description.encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name}:{array.dtype}:{array.shape};".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()

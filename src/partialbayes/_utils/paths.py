"""List, nest and match paths of weights, such as ``layers/0/kernel``."""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Mapping, Sequence
from typing import Any

import jax
from jaxtyping import PyTree


def path_of(keys: Any) -> str:
    """Join the keys of a leaf by ``/``."""
    return jax.tree_util.keystr(keys, simple=True, separator="/")


def named_leaves(tree: PyTree) -> list[tuple[str, Any]]:
    """Return the path and the value of each leaf."""
    return [(path_of(keys), leaf) for keys, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]]


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Convert ``{"a/b": 1, "a/c": 2}`` to ``{"a": {"b": 1, "c": 2}}``, in the same order."""
    tree: dict[str, Any] = {}
    for path, value in flat.items():
        *parents, name = path.split("/")
        place = tree
        for parent in parents:
            place = place.setdefault(parent, {})
        place[name] = value
    return tree


def sort_like(template: PyTree, tree: PyTree) -> PyTree:
    """Sort the keys of nested dictionaries by the order of a template with the same keys."""
    if not isinstance(tree, dict) or not isinstance(template, dict) or set(tree) != set(template):
        return tree
    return {name: sort_like(template[name], tree[name]) for name in template}


def matches(path: str, pattern: str) -> bool:
    """Return True if a path matches a glob: ``*`` within a name, ``**`` for any number of names."""

    def match(names: list[str], globs: list[str]) -> bool:
        if not globs:
            return not names
        if globs[0] == "**":
            return any(match(names[skip:], globs[1:]) for skip in range(len(names) + 1))
        return bool(names) and fnmatch.fnmatchcase(names[0], globs[0]) and match(names[1:], globs[1:])

    return match(path.split("/"), pattern.split("/"))


def require_match(pattern: str, names: Sequence[str], argument: str = "stochastic") -> None:
    """Require that a pattern matches at least one path."""
    if not any(matches(name, pattern) for name in names):
        raise ValueError(
            f"{argument}: the pattern {pattern!r} matches no weight; "
            f"the nearest paths are {nearest(pattern, names)}."
        )


def nearest(pattern: str, names: Sequence[str]) -> str:
    """List the five paths most similar to a pattern, for an error message."""

    def likeness(name: str) -> float:
        return difflib.SequenceMatcher(None, pattern, name).ratio()

    return ", ".join(repr(name) for name in sorted(names, key=likeness, reverse=True)[:5])

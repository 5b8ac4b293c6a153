"""Convert weights between paths and nested dictionaries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


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


def paths(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of nested dictionaries by path."""

    def walk(node: Any, prefix: str) -> Iterator[tuple[str, Any]]:
        if not isinstance(node, Mapping):
            yield prefix, node
            return
        for name, child in node.items():
            yield from walk(child, f"{prefix}/{name}" if prefix else name)

    return dict(walk(tree, ""))

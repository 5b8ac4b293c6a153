"""Match paths of weights by glob patterns: ``*`` within a name, ``**`` for any number of names."""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Sequence


def matches(path: str, pattern: str) -> bool:
    """Return True if a path matches a glob."""

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

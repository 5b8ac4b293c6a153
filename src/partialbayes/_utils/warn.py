"""Bad news goes one way: a warning with a type, at the line of the user's that caused it."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

_PACKAGE = str(Path(__file__).parents[1])


def warn(message: str, category: type[Warning]) -> None:
    """Warn at the first line outside this package that led here.

    Args:
        message: What is wrong, and what to do.
        category: One of `partialbayes.errors`.
    """
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and _is_ours(frame.f_code.co_filename):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def _is_ours(file: str) -> bool:
    # The checker of types in the tests wraps our functions in code of its own.
    return file.startswith((_PACKAGE, "<@beartype")) or "/jaxtyping/" in file

"""Issue typed warnings at the user's line that caused them."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

_PACKAGE = str(Path(__file__).parents[1])


def warn(message: str, category: type[Warning]) -> None:
    """Warn at the first calling line outside this package.

    Args:
        message: The problem and the remedy.
        category: A warning of `partialbayes.errors`.
    """
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and _is_ours(frame.f_code.co_filename):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def _is_ours(file: str) -> bool:
    # In the tests a type checker wraps our functions.
    return file.startswith((_PACKAGE, "<@beartype")) or "/jaxtyping/" in file

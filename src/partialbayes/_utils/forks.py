"""Processes made by a fork: the threads of JAX stay behind, and what needs them would wait for ever."""

from __future__ import annotations

import os

_used_by: int | None = None


def require_not_forked() -> None:
    """Note that this process computes with JAX; refuse one that was forked from one that did.

    Raises:
        RuntimeError: The process is such a copy.
    """
    global _used_by
    if _used_by is None:
        _used_by = os.getpid()
    elif _used_by != os.getpid():
        raise RuntimeError(
            "this process was forked from one that had computed with JAX, whose threads a fork does not "
            "copy: it would hang. Start processes by multiprocessing.get_context('spawn') or joblib, or "
            "fork before the first computation."
        )

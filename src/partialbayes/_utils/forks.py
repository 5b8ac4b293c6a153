"""Detect forked processes, in which JAX would hang because its threads are not copied."""

from __future__ import annotations

import os

_used_by: int | None = None


def require_not_forked() -> None:
    """Register this process as one that uses JAX; refuse a fork of such a process.

    Raises:
        RuntimeError: The process was forked from one that had used JAX.
    """
    global _used_by
    if _used_by is None:
        _used_by = os.getpid()
    elif _used_by != os.getpid():
        raise RuntimeError(
            "this process was forked after JAX had been used, and would hang because a fork does not "
            "copy JAX's threads. Start processes by multiprocessing.get_context('spawn') or joblib, or "
            "fork before the first computation."
        )

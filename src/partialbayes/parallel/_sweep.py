"""Run independent tasks in parallel, through joblib."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar

from partialbayes._utils.checks import require_positive_int

Task = TypeVar("Task")
Result = TypeVar("Result")


def sweep(
    function: Callable[[Task], Result], tasks: Sequence[Task], *, n_jobs: int | None = None
) -> Iterator[tuple[Task, Result]]:
    """Call a function on each task in parallel, and yield results as they complete.

    By default joblib starts processes on this machine with one thread each. Inside
    ``joblib.parallel_config("dask")`` or ``"ray"`` the workers are those of the cluster, with its
    settings.

    Args:
        function: Called on each task. It and its results are sent between processes, so it should return
            NumPy arrays, numbers or a `Fit`, and take a seed rather than a typed key.
        tasks: The arguments, one per call.
        n_jobs: Number of tasks at a time. By default joblib's setting, or one per processor of this
            machine or cluster. A single local job runs in this process.

    Returns:
        An iterator over pairs of task and result, in order of completion.

    Raises:
        TypeError: ``function`` cannot be sent to the workers of a cluster.
        ImportError: joblib is not installed; scikit-learn installs it.

    Example:
        >>> import partialbayes as pb
        >>> squares = pb.parallel.sweep(lambda number: number**2, [1, 2, 3], n_jobs=1)
        >>> dict(squares)  # in order of completion
        {1: 1, 2: 4, 3: 9}
    """
    if n_jobs is not None:
        require_positive_int("n_jobs", n_jobs, "or None for one per processor.")
    return _sweep(function, tasks, n_jobs)


def _sweep(
    function: Callable[[Task], Result], tasks: Sequence[Task], n_jobs: int | None
) -> Iterator[tuple[Task, Result]]:
    try:
        import joblib
        from joblib.parallel import get_active_backend
    except ImportError as error:
        raise ImportError("sweep needs joblib: pip install 'partialbayes[sklearn]'") from error

    backend, configured = get_active_backend()
    is_local = type(backend).__name__ == "LokyBackend"  # joblib's default
    if is_local:
        n_jobs = min(n_jobs or joblib.effective_n_jobs(configured or _processors()), len(tasks))
        if n_jobs <= 1:
            yield from ((task, function(task)) for task in tasks)
            return
    if not is_local and not getattr(backend, "uses_threads", False):
        _require_sendable(function)
    setting: AbstractContextManager[dict[str, Any]]
    setting = _one_thread_each() if is_local else nullcontext({})
    with setting as workers:
        parallel = joblib.Parallel(
            n_jobs=n_jobs, return_as="generator_unordered", batch_size=1, **workers
        )
        calls = (joblib.delayed(_number_tasks)(function, *pair) for pair in enumerate(tasks))
        for number, result in parallel(calls):
            yield tasks[number], result


def _number_tasks(function: Callable[[Task], Result], number: int, task: Task) -> tuple[int, Result]:
    """Return the result with the number of its task, which then need not be sent back."""
    return number, function(task)


def _require_sendable(function: Callable[..., object]) -> None:
    """Reject a function that cannot be pickled; joblib on Dask would wait forever."""
    import cloudpickle  # joblib, Dask and Ray each bring it

    try:
        cloudpickle.dumps(function)
    except Exception as error:
        raise TypeError(
            f"function cannot be sent to other processes ({error}); define it in a module that the "
            "workers import, and keep locks, open files and typed keys out of it."
        ) from error


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def _one_thread_each() -> Iterator[dict[str, Any]]:
    """Make processes started inside the block run XLA on one thread.

    joblib reuses worker processes between calls with equal arguments; a distinct initializer keeps these
    workers separate from those of other users.

    Yields:
        The arguments for ``joblib.Parallel``.
    """
    before = dict(os.environ)
    flags = f"{before.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false".strip()
    os.environ |= {"NPROC": "1", "XLA_FLAGS": flags}
    try:
        yield {"initializer": _mark_worker, "initargs": (flags,)}
    finally:
        for name in ("NPROC", "XLA_FLAGS"):
            os.environ.pop(name)
            if name in before:
                os.environ[name] = before[name]


def _mark_worker(flags: str) -> None:
    """Do nothing: name and argument distinguish the workers of a sweep."""

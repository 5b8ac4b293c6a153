"""Independent runs over processes: joblib's local ones, or whatever cluster it is told to use."""

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
    """Call a function on each task, and give every task with its result as they come.

    The work goes through joblib. By default it is done by processes of this machine, of one thread
    each, so that they do not get in each other's way; inside ``joblib.parallel_config("dask")`` or
    ``"ray"`` the workers are the cluster's, and their threads its own business.

    Args:
        function: What to do. It and its results go between processes: let it return NumPy arrays,
            numbers or a `Fit`, and take a seed, not a typed key.
        tasks: What to do it on.
        n_jobs: How many at a time. By default as many as joblib was told to use; if it was told
            nothing, one for each processor of this machine, or of the cluster. One local job is
            done in this process.

    Raises:
        ValueError: ``n_jobs`` is not a whole number of at least 1.
        TypeError: ``function`` cannot be sent to the workers of a cluster.
        ImportError: joblib is not there; scikit-learn brings it.

    Example:
        >>> import partialbayes as pb
        >>> squares = pb.parallel.sweep(lambda number: number**2, [1, 2, 3], n_jobs=1)
        >>> dict(squares)  # as they come, so not always in order
        {1: 1, 2: 4, 3: 9}
    """
    if n_jobs is not None:
        require_positive_int("n_jobs", n_jobs, "or None for as many as there are processors.")
    return _sweep(function, tasks, n_jobs)


def _sweep(
    function: Callable[[Task], Result], tasks: Sequence[Task], n_jobs: int | None
) -> Iterator[tuple[Task, Result]]:
    try:
        import joblib
        from joblib.parallel import get_active_backend
    except ImportError as error:
        raise ImportError("sweep needs joblib: pip install 'partialbayes[sklearn]'") from error

    backend, told = get_active_backend()
    is_local = type(backend).__name__ == "LokyBackend"  # joblib's own, unless it is told otherwise
    if is_local:
        n_jobs = min(n_jobs or joblib.effective_n_jobs(told or _processors()), len(tasks))
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
    """The result with the number of its task, so that the task need not travel back."""
    return number, function(task)


def _require_sendable(function: Callable[..., object]) -> None:
    """Refuse what cannot go to another process: joblib on Dask would wait for it for ever."""
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
    """Processes started in here run XLA on one thread; this one is not touched.

    Gives what joblib has to be told. It keeps its processes for whoever calls it next in the same
    words, so that without an initializer of our own we would get threads that others have set, and they
    ours.
    """
    before = dict(os.environ)
    flags = f"{before.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false".strip()
    os.environ |= {"NPROC": "1", "XLA_FLAGS": flags}
    try:
        yield {"initializer": _of_a_sweep, "initargs": (flags,)}
    finally:
        for name in ("NPROC", "XLA_FLAGS"):
            os.environ.pop(name)
            if name in before:
                os.environ[name] = before[name]


def _of_a_sweep(flags: str) -> None:
    """Nothing to do: its name and argument tell the processes of a sweep from others."""

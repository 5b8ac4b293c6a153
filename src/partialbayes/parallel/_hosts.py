"""Start JAX's distributed runtime, and exchange data between processes.

Every process runs the same program. JAX joins their devices into one list, over which a mesh is laid.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import metadata
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from partialbayes._utils.checks import num_rows, require_positive_int
from partialbayes._utils.compat import detect_cluster, distributed_store


def initialize(
    coordinator: str | None = None,
    *,
    num_processes: int | None = None,
    process_id: int | None = None,
    bind: str | None = None,
    timeout: int = 60,
    heartbeat_timeout: int = 100,
) -> None:
    """Join the processes of a run; every process calls it before any computation.

    Under Slurm, Open MPI or on a TPU pod no argument is needed, because JAX detects the cluster.
    Elsewhere pass the address of process 0, the number of processes and the id of this one. All
    processes must have the same versions of JAX and of this library. On CPUs, first choose how they
    communicate: ``jax.config.update("jax_cpu_collectives_implementation", "gloo")``.

    Args:
        coordinator: ``"host:port"`` of process 0. Anyone who can reach that port can join the run.
        num_processes: Number of processes.
        process_id: The id of this process, counted from 0.
        bind: ``"host:port"`` on which process 0 listens. By default only that of ``coordinator``, so
            ``"127.0.0.1:…"`` stays on this machine.
        timeout: Seconds within which all processes must join. If some are missing, JAX ends process 0.
        heartbeat_timeout: Seconds without a heartbeat after which a process counts as dead. JAX then
            ends the remaining ones.

    Raises:
        ValueError: No cluster was detected, and an argument is missing or out of range.
        TimeoutError: Process 0 could not be reached within the timeout.
        RuntimeError: The versions differ, or JAX has already been used.

    Example:
        >>> import partialbayes as pb
        >>> try:  # process_id is missing
        ...     pb.parallel.initialize("127.0.0.1:8476", num_processes=2)
        ... except ValueError as error:
        ...     print(error)
        process_id is needed: JAX found no Slurm or other cluster to take it from.
    """
    require_positive_int("timeout", timeout, "a number of seconds.")
    require_positive_int("heartbeat_timeout", heartbeat_timeout, "a number of seconds.")
    address, count, number, devices = _find_cluster(coordinator, num_processes, process_id, timeout)
    if number > 0:
        _require_reachable(address, timeout)
    jax.distributed.initialize(
        address,
        count,
        number,
        local_device_ids=devices,
        coordinator_bind_address=bind or address,  # JAX alone would listen on all interfaces
        initialization_timeout=timeout,
        heartbeat_timeout_seconds=heartbeat_timeout,
        shutdown_timeout_seconds=heartbeat_timeout,
    )
    _require_same_versions(count, number, timeout)


def _find_cluster(
    coordinator: str | None, num_processes: int | None, process_id: int | None, timeout: int
) -> tuple[str, int, int, Any]:
    """Complete the arguments by what JAX detects."""
    address, count, number, devices = detect_cluster(coordinator, num_processes, process_id, timeout)
    named = {"coordinator": address, "num_processes": count, "process_id": number}
    for name, value in named.items():
        if value is None:
            raise ValueError(f"{name} is needed: JAX found no Slurm or other cluster to take it from.")
    if not address.rpartition(":")[2].isdigit():
        raise ValueError(f"coordinator must be 'host:port', not {address!r}.")
    if not 0 <= number < count:
        raise ValueError(f"process_id must be from 0 to {count - 1}, not {number}.")
    return address, count, number, devices


def _require_reachable(address: str, timeout: int) -> None:
    """Wait for process 0; JAX would end this process without an exception."""
    host, _, port = address.rpartition(":")
    deadline = time.monotonic() + timeout
    while True:
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=1.0).close()
            return
        except OSError as error:
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"process 0 could not be reached at {address} within {timeout} seconds "
                    f"({error.strerror or error}); check that it runs there and that the port is open."
                ) from None
        time.sleep(0.2)


def _require_same_versions(count: int, number: int, timeout: int) -> None:
    """Compare versions in process 0 and send the result to all."""
    client = distributed_store()
    milliseconds = 1000 * timeout
    own = f"partialbayes {metadata.version('partialbayes')} and JAX {jax.__version__}"
    same = "the same"
    client.key_value_set(f"partialbayes/versions/{number}", own)
    if number == 0:
        verdict = same
        for other in range(1, count):
            theirs = client.blocking_key_value_get(f"partialbayes/versions/{other}", milliseconds)
            if theirs != own:
                verdict = (
                    f"process 0 has {own}, but process {other} has {theirs}; install the same versions "
                    "on every host."
                )
        client.key_value_set("partialbayes/verdict", verdict)
    verdict = client.blocking_key_value_get("partialbayes/verdict", milliseconds)
    if verdict != same:
        raise RuntimeError(verdict)


def allgather_rows(rows: PyTree) -> PyTree:
    """Concatenate the rows that each process has read, in the order of the processes.

    Each host reads its own files; `fit`, `refine` and `predict` need the same rows on every host.

    Args:
        rows: Pytree of arrays with a leading axis of rows, whose number may differ between processes.

    Returns:
        The pytree with all rows as NumPy arrays, on every host.

    Example:
        >>> import numpy as np, partialbayes as pb
        >>> x, y = pb.parallel.allgather_rows((np.zeros((8, 2)), np.zeros(8)))  # one process
        >>> x.shape
        (8, 2)
    """
    rows = jax.tree.map(np.asarray, rows)
    own = num_rows("rows", rows)
    if jax.process_count() == 1:
        return rows
    from jax.experimental import multihost_utils

    counts = np.asarray(multihost_utils.process_allgather(np.asarray(own)))

    def gather(leaf: np.ndarray) -> np.ndarray:
        padded = np.concatenate([leaf, np.repeat(leaf[-1:], counts.max() - own, axis=0)])
        everyone = np.asarray(multihost_utils.process_allgather(padded))
        return np.concatenate([theirs[:count] for theirs, count in zip(everyone, counts, strict=True)])

    return jax.tree.map(gather, rows)


def is_shared(array: Any) -> bool:
    """Return True if an array is on devices of several processes."""
    return isinstance(array, jax.Array) and not array.is_fully_addressable


def to_numpy(array: Any) -> np.ndarray:
    """Copy an array to this host; all processes of a shared array must call it."""
    if is_shared(array) and not array.is_fully_replicated:
        from jax.experimental import multihost_utils

        return np.asarray(multihost_utils.process_allgather(array, tiled=True))
    return np.asarray(array)


def gather_to_host(tree: PyTree) -> PyTree:
    """Convert shared arrays to arrays of this process; leave the rest."""
    return jax.tree.map(lambda leaf: jnp.asarray(to_numpy(leaf)) if is_shared(leaf) else leaf, tree)


def broadcast_from_process_zero(number: int, shared: bool) -> int:
    """Broadcast process 0's value, so that decisions based on wall-clock time agree."""
    if not shared:
        return number
    from jax.experimental import multihost_utils

    return int(multihost_utils.broadcast_one_to_all(np.asarray(number, np.int32)))


@contextmanager
def explain_lost_process(remedy: Callable[[], str]) -> Iterator[None]:
    """Explain the failure of a computation that several processes share."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        reason = str(error).splitlines()[0]
        raise RuntimeError(f"another process of this run is gone ({reason}); {remedy()}") from error

"""Several processes, on one host or many, that work as one: JAX's own distributed runtime, started.

Every process runs the same program. JAX joins their devices to one list, over which a `mesh` is laid;
what is said here is how they find each other, and what each brings.
"""

from __future__ import annotations

_LOOPBACK = ("127.", "localhost", "[::1]")


def initialise(
    coordinator: str | None = None,
    *,
    num_processes: int | None = None,
    process_id: int | None = None,
    bind: str | None = None,
    timeout: int = 60,
    heartbeat_timeout: int = 100,
) -> None:
    """Join the processes of a run; called by each, before anything is computed.

    Under Slurm, Open MPI or on a TPU pod no argument is needed: JAX finds them by itself. Elsewhere each
    process says where process 0 is, how many there are and which one it is. They must have the same
    versions of JAX and of this library. On CPUs, choose how they talk first:
    ``jax.config.update("jax_cpu_collectives_implementation", "gloo")``.

    Args:
        coordinator: ``"host:port"`` of process 0. Whoever reaches that port can take part in the run.
        num_processes: How many processes there are.
        process_id: Which one this is, counted from 0.
        bind: ``"host:port"`` on which process 0 listens. By default that of ``coordinator`` and no
            other, so that ``"127.0.0.1:…"`` stays on this machine.
        timeout: Seconds in which all processes have to be there.
        heartbeat_timeout: Seconds after which a process that is not heard of is taken for dead, and the
            others are ended.

    Raises:
        ValueError: No cluster was found, and ``coordinator``, ``num_processes`` and ``process_id`` do
            not say where it is.
        TimeoutError: Process 0 could not be reached, or not all came, within the timeout.
        RuntimeError: The versions differ, or JAX has computed something already.

    Example:
        >>> import partialbayes as pb
        >>> try:  # which one is this?
        ...     pb.parallel.initialise("127.0.0.1:8476", num_processes=2)
        ... except ValueError as error:
        ...     print(error)
        process_id is needed with coordinator: which process this is, counted from 0.
    """

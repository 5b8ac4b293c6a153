"""What is private in JAX and used all the same: the one place that a new version of JAX can break.

`tests/_utils/test_compat.py` tests each of them.
"""

from __future__ import annotations

from typing import Any


def is_jit(equation: Any) -> bool:
    """Return whether an operation of a traced function is a call of a compiled one."""
    return equation.primitive.name in ("jit", "pjit")


def evaluate(equation: Any, arguments: list[Any]) -> list[Any]:
    """Return the results of one operation of a traced function."""
    bound = equation.primitive.get_bind_params(equation.params)
    # Older JAX gives the functions a primitive calls apart from its other parameters.
    functions, params = bound if isinstance(bound, tuple) else ((), bound)
    results = equation.primitive.bind(*functions, *arguments, **params)
    return list(results) if equation.primitive.multiple_results else [results]


def detect_cluster(
    coordinator: str | None, num_processes: int | None, process_id: int | None, timeout: int
) -> tuple[Any, Any, Any, Any]:
    """Return address, number of processes, own number and devices: as given, or as JAX finds them."""
    from jax._src.clusters import ClusterEnv  # JAX asks it too, but does not tell the address

    found: Any = ClusterEnv.auto_detect_unset_distributed_params(
        coordinator, num_processes, process_id, None, None, timeout
    )
    address, count, number, devices = found
    return address, count, number, devices


def distributed_store() -> Any:
    """Return the store of keys and values that the processes of a run share."""
    from jax._src.distributed import global_state  # the store needs no devices to work

    return global_state.client


def is_tracing() -> bool:
    """Return whether this is called inside a function that JAX is transforming."""
    from jax._src.core import trace_state_clean  # there is no public way to ask

    return not trace_state_clean()

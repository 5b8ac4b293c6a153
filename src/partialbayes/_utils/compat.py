"""Wrap the private parts of JAX that the library uses, in one place.

`tests/_utils/test_compat.py` tests each of them.
"""

from __future__ import annotations

from typing import Any


def is_jit(equation: Any) -> bool:
    """Return True if an operation of a jaxpr is a call of a jitted function."""
    return equation.primitive.name in ("jit", "pjit")


def evaluate(equation: Any, arguments: list[Any]) -> list[Any]:
    """Evaluate one operation of a jaxpr."""
    bound = equation.primitive.get_bind_params(equation.params)
    # Older JAX returns the called functions separately from the other parameters.
    functions, params = bound if isinstance(bound, tuple) else ((), bound)
    results = equation.primitive.bind(*functions, *arguments, **params)
    return list(results) if equation.primitive.multiple_results else [results]


def detect_cluster(
    coordinator: str | None, num_processes: int | None, process_id: int | None, timeout: int
) -> tuple[Any, Any, Any, Any]:
    """Return address, number of processes, process id and devices, as given or as JAX detects them."""
    from jax._src.clusters import ClusterEnv  # the public function hides the address

    found: Any = ClusterEnv.auto_detect_unset_distributed_params(
        coordinator, num_processes, process_id, None, None, timeout
    )
    address, count, number, devices = found
    return address, count, number, devices


def distributed_store() -> Any:
    """Return the key-value store that the processes of a run share."""
    from jax._src.distributed import global_state  # the store needs no devices to work

    return global_state.client


def is_tracing() -> bool:
    """Return True inside a function that JAX is transforming."""
    from jax._src.core import trace_state_clean  # no public equivalent

    return not trace_state_clean()

"""Evaluate the part of a function that does not depend on φ once.

At fixed ψ (HMC, `refine`, prediction in chunks) the same function of φ is called many times, and the
layers before the first stochastic one give the same activations each time. `partially_evaluate` traces
the function, evaluates all operations that do not depend on φ, and returns the rest as a function of φ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
from jax.extend.core import ClosedJaxpr, Literal

from partialbayes._utils.compat import evaluate, is_jit

Result = TypeVar("Result")


class _Slot(NamedTuple):
    """A placeholder for a value that depends on φ: its index in the list of such values."""

    place: int


class _Operation(NamedTuple):
    """A postponed operation: its inputs (values or slots) and the slots of its outputs."""

    equation: Any
    inputs: list[Any]
    outputs: list[_Slot]


def partially_evaluate(function: Callable[[Any], Result], phi: Any) -> Callable[[Any], Result]:
    """Evaluate everything in a function that does not depend on φ.

    Args:
        function: A function of φ; other values are in its closure.
        phi: A value of φ, or its shape and dtype; only these are used.

    Returns:
        A function of φ with the same results, which can be differentiated and mapped over φ.
    """
    jaxpr, shape = jax.make_jaxpr(function, return_shape=True)(phi)
    treedef = jax.tree.structure(shape)
    tape: list[_Operation] = []
    slots = [_Slot(place) for place in range(len(jax.tree.leaves(phi)))]
    counter = [len(slots)]

    def postpone(equation: Any, arguments: list[Any]) -> list[Any] | None:
        if not any(isinstance(argument, _Slot) for argument in arguments):
            return evaluate(equation, arguments)
        if is_jit(equation):
            return None  # part of a jitted function may not depend on φ
        slots = [_Slot(counter[0] + place) for place in range(len(equation.outvars))]
        counter[0] += len(slots)
        tape.append(_Operation(equation, arguments, slots))
        return slots

    results = interpret(jaxpr, slots, postpone)

    def remainder(phi: Any) -> Result:
        values: list[Any] = [None] * counter[0]
        values[: len(slots)] = jax.tree.leaves(phi)

        def read(item: Any) -> Any:
            return values[item.place] if isinstance(item, _Slot) else item

        for equation, inputs, outputs in tape:
            computed = evaluate(equation, [read(item) for item in inputs])
            for slot, value in zip(outputs, computed, strict=True):
                values[slot.place] = value
        return jax.tree.unflatten(treedef, [read(item) for item in results])

    return remainder


def interpret(
    closed: ClosedJaxpr, inputs: Sequence[Any], rule: Callable[[Any, list[Any]], list[Any] | None]
) -> list[Any]:
    """Evaluate a traced function operation by operation.

    Args:
        closed: The traced function.
        inputs: The arguments of the function.
        rule: Returns the results of an operation given its arguments, or None for the ordinary results.
            For a call of a jitted function None interprets the operations inside.

    Returns:
        The results of the function.
    """
    known: dict[Any, Any] = dict(zip(closed.jaxpr.constvars, closed.consts, strict=True))
    known.update(zip(closed.jaxpr.invars, inputs, strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, Literal) else known[atom]

    for equation in closed.jaxpr.eqns:
        arguments = [read(atom) for atom in equation.invars]
        results = rule(equation, arguments)
        if results is None and is_jit(equation):
            results = interpret(equation.params["jaxpr"], arguments, rule)
        elif results is None:
            results = evaluate(equation, arguments)
        known.update(zip(equation.outvars, results, strict=True))
    return [read(atom) for atom in closed.jaxpr.outvars]

"""How things are measured: side by side, interleaved, after they are ready, compilation apart."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

# On one core, processor time is the time that the work takes, whatever else the machine does.
PINNED = len(os.sched_getaffinity(0)) == 1
clock = time.process_time if PINNED else time.perf_counter


class Row(NamedTuple):
    """One line of the table.

    `value` is in `unit`; for a line with a goal it is the ratio the goal speaks of. `rival` says what
    it was compared with, `spread` is the range of the middle half of the repeats.
    """

    name: str
    value: float
    unit: str
    rival: str | None = None
    goal: str | None = None
    met: bool | None = None
    spread: float | None = None


def row(
    name: str,
    value: float,
    unit: str,
    rival: str | None = None,
    goal: str | None = None,
    spread: float | None = None,
) -> Row:
    """A row, judged by its goal, which is text such as ">= 8"."""
    met = None
    if goal is not None:
        relation, bound = goal.split()
        met = bool(value >= float(bound) if relation == ">=" else value <= float(bound))
    return Row(name, round(float(value), 5), unit, rival, goal, met, spread)


class Times(NamedTuple):
    """Seconds of each repeat, by name."""

    seconds: dict[str, np.ndarray]

    def median(self, name: str) -> float:
        return float(np.median(self.seconds[name]))

    def spread(self, name: str) -> float:
        low, high = np.quantile(self.seconds[name], [0.25, 0.75])
        return round(float(high - low), 6)

    def ratio(self, slow: str, fast: str) -> tuple[float, float]:
        """Median of the ratios of neighboring repeats, and the range of their middle half."""
        ratios = self.seconds[slow] / self.seconds[fast]
        low, high = np.quantile(ratios, [0.25, 0.75])
        return float(np.median(ratios)), round(float(high - low), 4)


def interleaved(jobs: dict[str, Callable[[], Any]], repeats: int) -> Times:
    """Run every job once to compile, then all of them in turn, again and again."""
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for job in jobs.values():
        jax.block_until_ready(job())
    for _ in range(repeats):
        for name, job in jobs.items():
            begin = clock()
            jax.block_until_ready(job())
            seconds[name].append(clock() - begin)
    return Times({name: np.array(values) for name, values in seconds.items()})


def temporary_bytes(function: Callable[..., Any], *arguments: Any) -> int:
    """What the compiled function sets aside for values in between."""
    compiled = jax.jit(function).lower(*arguments).compile()
    memory: Any = compiled.memory_analysis()
    return int(memory.temp_size_in_bytes)


def peak_memory() -> int:
    """The most memory this process has had, in bytes.

    Not `getrusage`: that of a child counts what its parent had when it was started.
    """
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("this system does not tell the peak memory of a process")

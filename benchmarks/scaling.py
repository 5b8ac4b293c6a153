"""What a step of OHSMC costs on many devices: bytes sent, memory and efficiency, by formula.

``python -m benchmarks.scaling`` prints the table of docs/scaling.md; ``--bandwidth``, ``--latency``,
``--speed`` and ``--memory`` describe other links and devices. `sent_bytes` is the formula, `collectives`
reads the same from a compiled program, and a test holds the one against the other.
"""

from __future__ import annotations

import argparse
import itertools
import math
import re
from typing import NamedTuple

_COLLECTIVE = re.compile(
    r"= (.*?) (all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter)(?:-done)?\("
)
_ARRAY = re.compile(r"\b(pred|[suf]\d+|bf16)\[([\d,]*)\]")


class Size(NamedTuple):
    """What is trained.

    Attributes:
        particles: J.
        dim: d, stochastic weights.
        before: Deterministic weights in layers before the stochastic one.
        after: The others.
        rows: M, rows of a batch.
        boundary: h, units that the stochastic layer takes in; 0 if it is the first.
        row_numbers: Numbers in one row of inputs and targets.
        units: Units whose values a particle keeps for the backward pass, for each row.
    """

    particles: int
    dim: int
    before: int
    after: int
    rows: int
    boundary: int
    row_numbers: int
    units: int


class Machine(NamedTuple):
    """What it is trained on: assumptions, not measurements.

    Attributes:
        bandwidth: Bytes per second that a device sends.
        latency: Seconds per message.
        speed: Floating point operations per second of a device.
        memory: Bytes per second that a device reads from its own memory or writes to it.
    """

    bandwidth: float = 25e9
    latency: float = 10e-6
    speed: float = 10e12
    memory: float = 1e12


def sent_bytes(size: Size, particle: int, data: int) -> dict[str, int]:
    """Bytes of the results of each collective operation of a step, on a mesh, in single precision."""
    numbers = {}
    if particle > 1:
        numbers["gather φ"] = size.particles * size.dim
        numbers["gather log p"] = size.particles
        numbers["sum over particles"] = size.rows // data * size.boundary + size.after
    if data > 1:
        numbers["sum log p over rows"] = size.particles // particle
        numbers["sum over rows"] = size.before + size.after
        numbers["a row"] = size.row_numbers
    counted = {name: 4 * count for name, count in numbers.items()}
    if data > 1:  # rows that count: how many there are, and the first of each part
        counted["mask"] = 4 + 5 * data
    return counted


def collectives(program: str) -> dict[str, int]:
    """Bytes of the results of the collective operations in a compiled program's text, by operation."""
    found: dict[str, int] = {}
    for line in program.splitlines():
        if match := _COLLECTIVE.search(line):
            arrays = _ARRAY.findall(match[1])
            found[match[2]] = found.get(match[2], 0) + sum(_bytes(*array) for array in arrays)
    return found


def _bytes(kind: str, shape: str) -> int:
    bits = {"pred": 8, "bf16": 16}.get(kind) or int(kind[1:])
    return bits // 8 * math.prod(int(length) for length in shape.split(",") if length)


def operations(size: Size, particle: int, data: int) -> float:
    """Of a device in a step: two for each weight and row, once forward and twice backward.

    What comes before the stochastic layer is done once for all particles, on each device with the rows.
    """
    each = size.dim + size.after
    return 6.0 * size.rows / data * (size.before + size.particles / particle * each)


def traffic(size: Size, particle: int) -> float:
    """Bytes that a device moves in its own memory to resample and move its particles."""
    return 4.0 * (6 * size.particles / particle * size.dim + 10 * size.particles)


def seconds(size: Size, particle: int, data: int, machine: Machine) -> float:
    """Of a step, with nothing sent while something is computed."""
    sent = sent_bytes(size, particle, data)
    time = operations(size, particle, data) / machine.speed + traffic(size, particle) / machine.memory
    gathers = [sent.get("gather φ", 0), sent.get("gather log p", 0)]
    over_particles = [sent.get("sum over particles", 0)]
    over_rows = [sent.get("sum log p over rows", 0), sent.get("sum over rows", 0)]
    for parts, sizes, passes in (
        (particle, gathers, 1),
        (particle, over_particles, 2),
        (data, over_rows, 2),
    ):
        if parts > 1:
            share = (parts - 1) / parts  # a ring; a tree's latency
            for count in sizes:
                time += passes * (share * count / machine.bandwidth + math.log2(parts) * machine.latency)
    return time


def device_bytes(size: Size, particle: int, data: int) -> float:
    """Memory of a device: what it holds at once.

    Its particles (now, moved, best) and all of them while they are gathered; ψ, its gradient, two
    moments of Adam and the best so far; the log-weights and what resampling makes of them; what the
    backward pass keeps.
    """
    cloud = 3 * size.particles / particle * size.dim + (size.particles * size.dim if particle > 1 else 0)
    weights = 5 * (size.before + size.after)
    kept = size.rows / data * (size.particles / particle * size.units + size.boundary)
    return 4.0 * (cloud + 6 * size.particles + weights + kept)


def best_mesh(size: Size, devices: int, machine: Machine) -> tuple[int, int]:
    """The mesh of so many devices on which a step takes least."""
    meshes = [(devices // data, data) for data in (2**k for k in range(11)) if devices % data == 0]
    fitting = [
        (particle, data)
        for particle, data in meshes
        if size.rows % data == 0 and size.particles % particle == 0
    ]
    return min(fitting, key=lambda mesh: seconds(size, *mesh, machine))


def table(machine: Machine) -> str:
    """The table of docs/scaling.md."""
    counts = (8, 64, 1024)
    lines = [
        "| J | w | stochastic layer | step on 1, ms | sent on 64, MB | memory on 64, GB | "
        + " | ".join(f"on {devices}" for devices in counts)
        + " |",
        "| --- " * (6 + len(counts)) + "|",
    ]
    for particles, weights, first in itertools.product(
        (2**10, 2**14, 2**20), (10**5, 10**7, 10**9), (True, False)
    ):
        before, after, boundary = (0, weights, 0) if first else (weights, 0, 100)
        size = Size(particles, 1000, before, after, 64, boundary, 100, 1000 if first else 10)
        alone = seconds(size, 1, 1, machine)
        meshes = [best_mesh(size, devices, machine) for devices in counts]
        efficiencies = [
            f"{alone / math.prod(mesh) / seconds(size, *mesh, machine):.0%} ({mesh[0]} × {mesh[1]})"
            for mesh in meshes
        ]
        lines.append(
            f"| {particles:,} | {weights:,} | {'first' if first else 'last'} | {1e3 * alone:.3g} | "
            f"{sum(sent_bytes(size, *meshes[1]).values()) / 1e6:.3g} | "
            f"{device_bytes(size, *meshes[1]) / 1e9:.3g} | {' | '.join(efficiencies)} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in Machine()._asdict().items():
        parser.add_argument(f"--{name}", type=float, default=default)
    print(table(Machine(**vars(parser.parse_args()))))

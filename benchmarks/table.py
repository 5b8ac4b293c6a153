"""`make bench`: run the groups, write results.json after each row, and docs/benchmarks.md at the end.

Run: python -m benchmarks.table [--quick] [--only steps,methods]
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks import rivals, runs, steps
from benchmarks.measure import PINNED, Row

GROUPS: dict[str, Callable[[bool], Iterator[Row]]] = {
    "steps": steps.against_naive,
    "methods": steps.against_methods,
    "validation": runs.validation,
    "seeds": runs.many_seeds,
    "score": runs.time_to_score,
    "checkpoints": runs.checkpoints,
    "compilation": runs.compilation,
    "memory": runs.memory_bound,
    "scaling": steps.scaling,
    "noise": rivals.noise,
    "resampling": rivals.resampling,
    "hmc": rivals.hamiltonian,
}
# What a user asks first, and the row that answers.
ASKED = {
    "How much longer is a step than one of MAP, 100 particles?": "step, two moons, J=100: OHSMC / MAP",
    "With 1000 particles?": "step, two moons, J=1000: OHSMC / MAP",
    "Than one of mean-field VB with as many draws?": "step, two moons, J=1000: OHSMC / VB",
    "How long is a step on a small network, 1000 particles?": "step, two moons, J=1000: ours",
    "On a convolutional network for MNIST, 100 particles?": "step, MNIST network, J=100: ours",
    "How long is the first compilation?": "compilation, two moons, J=1000: first start",
    "And the second, with the cache?": (
        "compilation, two moons, J=1000: second start / first, with the cache"
    ),
    "How much memory do 100,000 particles take?": ("peak memory, two moons, J=100000, chunk of 100000"),
    "How much faster than OHSMC written naively?": "step, two moons, J=1000: naive / ours",
    "Than NumPyro's HMC on the same posterior?": (
        "HMC, two moons, 300 draws × 100 leapfrog: NumPyro / ours"
    ),
}
WHY = (
    "Why they are missed. On the regression 210 of 261 weights are random, so the naive step, too, is",
    "little more than one forward and one backward pass. Those alone (*bare passes*) are 2.7 times as",
    "fast as the naive step: a goal of 2.5 leaves 8 % of a step for noise, resampling, weights and",
    "Adam. Without noise the ratio is 2.3; drawing 105,000 normal numbers is a quarter of a step. A",
    "validation scores 100 rows with 1000 particles: one forward pass over as many rows as an epoch",
    "has, beside its forward and backward passes. With `Validation(particles=250)` the goal is met.",
)
PACKAGES = ("partialbayes", "jax", "jaxlib", "optax", "blackjax", "numpyro")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few repeats, to see that all of it runs")
    parser.add_argument("--only", default=",".join(GROUPS), help="groups: " + ", ".join(GROUPS))
    parser.add_argument("--results", type=Path, default=Path("benchmarks/results.json"))
    parser.add_argument("--page", type=Path, default=Path("docs/benchmarks.md"))
    options = parser.parse_args()
    chosen = options.only.split(",")
    if unknown := set(chosen) - set(GROUPS):
        parser.error(f"no such group: {', '.join(sorted(unknown))}")
    rows = kept(options.results, chosen)
    for group in chosen:
        begin = time.perf_counter()
        for entry in GROUPS[group](options.quick):
            rows.append({"group": group, "pinned": PINNED, **entry._asdict()})
            write(options.results, rows)
            print(describe(entry), flush=True)
        print(f"-- {group}: {time.perf_counter() - begin:.0f} s", flush=True)
    options.page.write_text(page(rows))


def kept(path: Path, chosen: list[str]) -> list[dict]:
    """Rows of earlier runs, of groups that are not run again."""
    if not path.exists():
        return []
    return [entry for entry in json.loads(path.read_text())["rows"] if entry["group"] not in chosen]


def write(path: Path, rows: list[dict]) -> None:
    order = list(GROUPS)
    rows = sorted(rows, key=lambda entry: order.index(entry["group"]))
    content = {"machine": machine(), "versions": versions(), "rows": rows}
    temporary = path.with_suffix(".part")
    temporary.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    temporary.replace(path)


def machine() -> str:
    return f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}, no accelerator"


def versions() -> dict[str, str]:
    found = {name: importlib.metadata.version(name) for name in PACKAGES}
    return {"python": platform.python_version(), **found}


def describe(entry: Row) -> str:
    goal = "" if entry.goal is None else f"   goal {entry.goal}: {'met' if entry.met else 'MISSED'}"
    spread = "" if entry.spread is None else f" ± {entry.spread:g}"
    return f"{entry.name}: {entry.value:.4g}{spread} {entry.unit}{goal}"


def page(rows: list[dict]) -> str:
    order = list(GROUPS)
    rows = sorted(rows, key=lambda entry: order.index(entry["group"]))
    goals = [entry for entry in rows if entry["goal"] is not None]
    met = sum(entry["met"] for entry in goals)
    by_name = {entry["name"]: entry for entry in rows}
    lines = ["# Benchmarks", "", "How long a step takes, how much memory, and beside what.", ""]
    lines += ["| question | measured |", "| --- | ---: |"]
    lines += [
        f"| {asked} | {_value(by_name[name])} |" for asked, name in ASKED.items() if name in by_name
    ]
    lines += [
        "",
        "The two moons have a network 2–100–20–5–1 with 105 random weights, and batches of 20 rows;",
        "OHSMC moves its particles by a random walk, not by its default kernel. For scores",
        "see [face-off](faceoff.md) (tables), [reproduction](reproduction.md) (the paper) and",
        "[which method when](guides/methods.md).",
        "",
        "`make bench` writes this page; the same numbers are in `benchmarks/results.json`. Baselines",
        "run in turn in one process, and each figure is the median over repeats, after compilation.",
        "A ratio is the median of the ratios of neighboring repeats, ± the range of their middle half.",
        "",
        f"Machine: {machine()}, float32. "
        + ", ".join(f"{name} {version}" for name, version in versions().items())
        + ".",
        "",
        *_pinned(rows),
        f"## Goals: {met} of {len(goals)} met",
        "",
        "| what | value | goal | met |",
        "| --- | ---: | ---: | --- |",
    ]
    for entry in goals:
        verdict = "yes" if entry["met"] else "**no**"
        lines.append(f"| {entry['name']} | {_value(entry)} | {entry['goal']} | {verdict} |")
    lines += ["", *WHY]
    lines += ["", "## All rows", "", "| what | value | compared with |", "| --- | ---: | --- |"]
    lines += [f"| {entry['name']} | {_value(entry)} | {entry['rival'] or ''} |" for entry in rows]
    return "\n".join(lines) + "\n"


def _pinned(rows: list[dict]) -> list[str]:
    groups = sorted({entry["group"] for entry in rows if entry.get("pinned")})
    if not groups:
        return []
    names = ", ".join(groups)
    return [f"Measured on one core, by processor time, because the machine was busy: {names}.", ""]


def _value(entry: dict) -> str:
    unit = "×" if entry["unit"] == "times" else f" {entry['unit']}"
    spread = "" if entry["spread"] is None else f" ± {entry['spread']:.2g}"
    return f"{entry['value']:.3g}{spread}{unit}"


if __name__ == "__main__":
    main()

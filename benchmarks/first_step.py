"""Where does the time from `fit` to the first step go? A table of 300 rows, in a new process.

Every program that is compiled is counted, with the seconds that JAX spent on tracing it, on lowering it
to StableHLO and on compiling it (XLA). ``fit`` is the default OHSMC on a network 10–50–50–1 whose last
layer is random, stopped after the first step; ``estimator`` is `PartialBNNRegressor` at its defaults,
all of its training included. Seconds are processor time.

Run: python benchmarks/first_step.py [fit | validated | estimator]
"""

from __future__ import annotations

import logging
import sys
import time
from collections import Counter

BEGIN = time.process_time()

import jax  # noqa: E402
import numpy as np  # noqa: E402

import partialbayes as pb  # noqa: E402

IMPORTED = time.process_time()
EVENTS = {
    "jaxpr_trace_duration": "tracing",
    "jaxpr_to_mlir_module_duration": "lowering",
    "backend_compile_duration": "compiling",
}


class Programs(logging.Handler):
    """The programs that JAX says it has compiled, and the seconds that XLA took for them."""

    def __init__(self) -> None:
        super().__init__()
        self.count: Counter[str] = Counter()
        self.seconds: Counter[str] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        words = record.getMessage().split()
        if words[:3] == ["Finished", "XLA", "compilation"]:
            self.count[words[4]] += 1
            self.seconds[words[4]] += float(words[6])


def main(what: str = "fit") -> None:
    spent: Counter[str] = Counter()

    def note(event: str, seconds: float, **_: object) -> None:
        for ending, name in EVENTS.items():
            if event.endswith(ending):
                spent[name] += seconds

    jax.monitoring.register_event_duration_secs_listener(note)
    programs = Programs()
    logger = logging.getLogger("jax")
    logger.addHandler(programs)
    logger.propagate = False
    jax.config.update("jax_log_compiles", True)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 10))
    y = np.sin(x[:, 0]) + 0.1 * rng.normal(size=300)
    begin, wall = time.process_time(), time.perf_counter()
    if what == "estimator":
        pb.estimators.PartialBNNRegressor().fit(x, y)
    else:
        network = pb.mlp([10, 50, 50, 1])
        model = pb.partial_bnn(network, pb.subsets.layer(-1), pb.gaussian(pb.learned(1.0)))
        held_out = (x[:50], y[:50]) if what == "validated" else None
        stop = pb.Run(callbacks=[lambda progress: True])
        pb.fit(pb.ohsmc(model), (x, y), epochs=50, batch_size=32, validation=held_out, run=stop)
    whole = time.process_time() - begin
    print(f"import {IMPORTED - BEGIN:.2f} s")
    print(f"{what} {whole:.2f} s of processor time, {time.perf_counter() - wall:.2f} s of wall time")
    for name in EVENTS.values():
        print(f"  {name} {spent[name]:.2f} s of wall time")
    print(f"{programs.count.total()} programs:")
    for name, seconds in programs.seconds.most_common():
        print(f"  {seconds:6.2f} s  {programs.count[name]:3}  {name}")


if __name__ == "__main__":
    main(*sys.argv[1:])
